package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/retry"
)

// Grouping is how transfers that wait at the same time share a transaction.
// Every number is at least 1.
type Grouping struct {
	Size     int           // commands in one transaction at most; their transfers are at most as many as a batch may have
	Lanes    int           // transactions at work at once
	Queue    int           // transfers that wait at most; more are refused early
	LockWait time.Duration // how long a group waits for one lock
	Waiters  int           // connections that may wait for what others keep locked

	// OnGroup, where not nil, is told the size of each group that begins.
	OnGroup func(size int)
}

// Grouped returns s with group commit: callers that wait at the same time share
// one transaction, and each still succeeds or fails alone. There is no timer:
// while one group is in the database, the next one fills. It panics in a mode
// other than [Pessimistic], whose locks are what makes a group one.
func (s *Service) Grouped(g Grouping) *Service {
	if s.mode != Pessimistic {
		panic("only the pessimistic mode moves groups")
	}
	grouped := *s
	grouped.groups = newGroups(g, &grouped, s.policy.LockTimeout, s.locking.NoWait)
	return &grouped
}

// Waiting returns how many transfers wait for their group now, and how many for
// a lock that somebody else keeps.
func (s *Service) Waiting() (queued, parked int) {
	if s.groups == nil {
		return 0, 0
	}
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	return len(s.groups.queue), s.groups.parked
}

// A mover is what groups need of a service.
type mover interface {
	runGroup(ctx context.Context, ms []*move) error
	findBusy(ctx context.Context, ms []*move) (map[uuid.UUID]bool, error)
	waitFor(l lock, wait time.Duration) error
}

// groups puts callers together. A caller's member is in one of three places:
// the queue, a group at work, or the waiting room, which is in room.go.
type groups struct {
	Grouping
	mover
	lockTimeout time.Duration // for all waits of a member together
	noWait      bool          // none for accounts
	places      chan struct{} // one for each waiter

	mu      sync.Mutex
	arrived int
	queue   []*member // in the order of arrival
	lanes   int       // at work
	members int       // of their groups
	atWork  footprint // of their groups
	room    map[lock][]*member
	parked  int // in the room
}

func newGroups(g Grouping, m mover, lockTimeout time.Duration, noWait bool) *groups {
	return &groups{
		Grouping: g, mover: m, lockTimeout: lockTimeout, noWait: noWait,
		places: make(chan struct{}, g.Waiters), atWork: newFootprint(), room: map[lock][]*member{},
	}
}

// A member is a caller's move on its way through a group. Whoever takes it out
// of the queue or the room answers it, or puts it back.
type member struct {
	*move
	ctx     context.Context // the caller's
	answer  chan error      // has room for the one answer
	arrival int             // counts from 1
	lock    lock            // that it waits for, in the room
	until   time.Time       // the end of its waits for locks; zero before the first
}

// move makes m in some group and returns when it is answered, or ctx ends; what
// moves alone ends with ctx's deadline. The error is as [Service.Create]'s.
func (g *groups) move(ctx context.Context, m *move) error {
	w := &member{move: m, ctx: ctx, answer: make(chan error, 1)}
	alone, err := g.join(w)
	if err != nil {
		return err
	}
	if alone {
		g.moveAlone(w)
	}
	select {
	case err := <-w.answer:
		return err
	case <-ctx.Done():
	}
	if g.leave(w) {
		return fmt.Errorf("%w: %w", retry.ErrUnavailable, ctx.Err())
	}
	select {
	case err := <-w.answer: // it came together with the end of ctx
		return err
	default:
		return fmt.Errorf("%w: %w", retry.ErrCommitUnknown, ctx.Err())
	}
}

// moveAlone moves w on its caller's goroutine. The lane goes on to others even
// after a panic, which the caller may survive.
func (g *groups) moveAlone(w *member) {
	members := []*member{w}
	defer func() {
		if next := g.end(members); len(next) > 0 {
			go g.lane(next)
		}
	}()
	g.moveGroup(members)
}

// join puts w at the end of the queue, if there is room. Where w can begin at
// once and alone, it is the caller's to move, which spares a change of
// goroutines each way.
func (g *groups) join(w *member) (alone bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) >= g.Queue {
		return false, ErrOverloaded
	}
	g.arrived++
	w.arrival = g.arrived
	g.queue = append(g.queue, w)
	if g.atWork.meets(w) {
		return false, nil
	}
	members := g.openLane()
	if alone = len(members) == 1 && members[0] == w; !alone && len(members) > 0 {
		go g.lane(members)
	}
	return alone, nil
}

// rejoin puts members back into the queue, where they stood. g.mu is held.
func (g *groups) rejoin(members ...*member) {
	g.queue = append(g.queue, members...)
	slices.SortFunc(g.queue, func(a, b *member) int { return cmp.Compare(a.arrival, b.arrival) })
	g.startLane()
}

// startLane sets a free lane to work, if there is work for it. g.mu is held.
func (g *groups) startLane() {
	if members := g.openLane(); len(members) > 0 {
		go g.lane(members)
	}
}

// openLane begins a group in a free lane, if there is one and no fewer wait than
// a group at work has on average: smaller ones cost more than they gain, and
// whoever waits is in the next group of a lane that is at work. g.mu is held.
func (g *groups) openLane() []*member {
	if g.lanes == g.Lanes || len(g.queue)*g.lanes < g.members {
		return nil
	}
	g.lanes++
	return g.begin()
}

// leave withdraws w and reports whether it could: in a group, it runs to the
// end.
func (g *groups) leave(w *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.queue, w); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
		return true
	}
	return g.leaveRoom(w)
}

// lane moves groups, one after the other, until nobody waits.
func (g *groups) lane(members []*member) {
	for len(members) > 0 {
		g.moveGroup(members)
		members = g.end(members)
	}
}

// end ends a group and begins the next one.
func (g *groups) end(members []*member) []*member {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range members {
		g.atWork.remove(w)
	}
	g.members -= len(members)
	g.lanes--
	return g.openLane()
}

// begin takes the next group: those who wait, in the order of their arrival.
// Whoever needs an account that another lane's group has waits on, and so does
// whoever came later and needs one of his: nobody is overtaken. Two of one key
// are never at work at once: the second will be answered by the first one's
// answer. Whoever has left is dropped, and whoever needs a lock that others
// wait for already joins them. It returns nobody, and closes the lane, when
// nobody can begin. g.mu is held.
func (g *groups) begin() []*member {
	var taken, later []*member
	ahead := newFootprint() // of those who wait on
	steps := 0              // of those taken
	full := false
	for i, w := range g.queue {
		if full = len(taken) == g.Size || steps+len(w.steps) > MaxBatch; full {
			later = append(later, g.queue[i:]...)
			break
		}
		switch l := g.awaited(w); {
		case w.left():
			w.answer <- fmt.Errorf("%w: the caller has left", retry.ErrUnavailable)
		case l != nil:
			g.park(w, l)
		case g.atWork.meetsAccount(w), ahead.meetsAccount(w):
			ahead.add(w)
			later = append(later, w)
		case g.atWork.meetsKey(w), ahead.meetsKey(w):
			later = append(later, w)
		default:
			g.atWork.addKey(w)
			taken = append(taken, w)
			steps += len(w.steps)
		}
	}
	g.queue = later
	for _, w := range taken {
		g.atWork.addAccounts(w)
	}
	g.members += len(taken)
	if len(taken) == 0 {
		g.lanes--
	}
	if full { // perhaps more can begin
		g.startLane()
	}
	return taken
}

// left reports whether nobody waits for w's answer any more.
func (w *member) left() bool {
	select {
	case <-w.Left:
		return true
	case <-w.ctx.Done():
		return true
	default:
		return false
	}
}

// moveGroup moves one group, and answers its members or sends them on.
func (g *groups) moveGroup(members []*member) {
	if g.OnGroup != nil {
		g.OnGroup(len(members))
	}
	ctx, cancel := lastDeadline(members)
	defer cancel()
	switch err := g.runGroup(ctx, moves(members)); {
	case err == nil, errors.Is(err, retry.ErrCommitUnknown): // which may be a timeout, too
		answerAll(members, err)
	case timedOut(err):
		g.detour(ctx, members, err)
	case len(members) > 1 && isUnexpected(err):
		g.apart(members)
	default:
		answerAll(members, err)
	}
}

// apart moves members one by one, so that the fault of one is no other's. That
// takes its time, so for another lane they are a group of one.
func (g *groups) apart(members []*member) {
	g.count(1 - len(members))
	defer g.count(len(members) - 1)
	for i := range members {
		g.moveGroup(members[i : i+1])
	}
}

// count changes how many members are at work.
func (g *groups) count(more int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members += more
	g.startLane()
}

// detour is the way of a group that waited too long, for cause. It was rolled
// back, claims included. It goes on without those who need what others keep.
func (g *groups) detour(ctx context.Context, members []*member, cause error) {
	var busy map[uuid.UUID]bool
	if !claimsTimedOut(members) {
		var err error
		if busy, err = g.findBusy(ctx, moves(members)); err != nil {
			answerAll(members, err)
			return
		}
	}
	if len(busy) == 0 && len(members) > 1 { // a key, or a lock that came and went
		g.apart(members)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var again []*member
	for _, w := range members {
		account, blocked := firstBusy(w, busy)
		switch {
		case blocked && g.noWait:
			w.answer <- cause
		case blocked:
			g.park(w, account)
		case len(busy) > 0:
			again = append(again, w)
		case w.claim != nil && !w.claim.Won: // alone with a key that somebody else is at work on
			g.park(w, w.claim.Key)
		case g.noWait || g.isLate(w):
			w.answer <- cause
		default:
			again = append(again, w)
		}
	}
	g.rejoin(again...)
}

// lastDeadline is a group's context: it ends with the last of its members', and
// not when a caller leaves.
func lastDeadline(members []*member) (context.Context, context.CancelFunc) {
	last := time.Time{}
	for _, w := range members {
		deadline, ok := w.ctx.Deadline()
		if !ok {
			deadline = time.Now().Add(unboundedWait)
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(context.WithoutCancel(members[0].ctx), last)
}

// unboundedWait bounds the work for callers without a deadline.
const unboundedWait = time.Minute

// runGroup moves ms in one transaction, which waits only briefly for a lock,
// since it holds others meanwhile. lock_timeout counts for each row, so the
// statement is bounded, too.
func (s *Service) runGroup(ctx context.Context, ms []*move) error {
	policy, locking := s.policy, s.locking
	policy.LockTimeout = s.groups.LockWait
	policy.StatementTimeout = lockStatementWaits * s.groups.LockWait
	locking.statementTimeout = s.policy.StatementTimeout
	return s.run(ctx, policy, locking, ms)
}

const lockStatementWaits = 5

func moves(members []*member) []*move {
	ms := make([]*move, len(members))
	for i, w := range members {
		ms[i] = w.move
	}
	return ms
}

func answerAll(members []*member, err error) {
	for _, w := range members {
		w.answer <- err
	}
}

// isUnexpected reports whether err may be one member's fault alone.
func isUnexpected(err error) bool {
	var exhausted *retry.ExhaustedError
	return !errors.Is(err, retry.ErrUnavailable) && !errors.As(err, &exhausted)
}

// timedOut reports whether a group ended because a lock, or a statement, took
// too long.
func timedOut(err error) bool {
	return errors.Is(err, retry.ErrLockUnavailable) || retry.SQLState(err) == "57014"
}

func claimsTimedOut(members []*member) bool {
	return slices.ContainsFunc(members, func(w *member) bool { return w.claim != nil && !w.claim.Known })
}

func firstBusy(w *member, busy map[uuid.UUID]bool) (uuid.UUID, bool) {
	for _, id := range w.accounts {
		if busy[id] {
			return id, true
		}
	}
	return uuid.Nil, false
}

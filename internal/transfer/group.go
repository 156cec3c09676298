package transfer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/retry"
)

// Grouping is how transfers that wait at the same time share a transaction.
type Grouping struct {
	Size     int           // transfers in one transaction at most
	Lanes    int           // transactions at work at once
	Queue    int           // transfers that wait at most; more are refused early
	LockWait time.Duration // how long a group waits for one lock
	Waiters  int           // connections that may wait for rows that others keep

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
	grouped.groups = &groups{Grouping: g, mover: s, waits: s.policy, locking: s.locking, room: newRoom(g.Waiters)}
	return &grouped
}

// A mover is what groups need of a service.
type mover interface {
	run(ctx context.Context, policy retry.Policy, locking Locking, ms []*move) error
	findBusy(ctx context.Context, ms []*move) (map[uuid.UUID]bool, error)
	waitForRow(id uuid.UUID, wait time.Duration) error
}

// groups puts callers together. A caller's member is in one of three places:
// the queue, a group at work, or the waiting room.
type groups struct {
	Grouping
	mover
	waits   retry.Policy // of a transfer alone
	locking Locking
	room    *room

	mu      sync.Mutex
	queue   []*member // in the order of arrival
	waiting int       // members in the queue and in the waiting room
	lanes   int       // at work
}

// A member is a caller's move on its way through a group.
type member struct {
	*move
	ctx    context.Context // the caller's
	answer chan error      // has room for the one answer
	until  time.Time       // the end of its wait for rows that others keep; zero before it
	misses int             // groups that met a lock which was gone when it was looked for

	// Guarded by groups.mu.
	begun bool // in a group: it runs to the end, whether or not the caller waits
	gone  bool // the caller left before
}

// move makes m in some group and returns when it is answered, or ctx ends. The
// error is as [Service.Create]'s, or [ErrOverloaded].
func (g *groups) move(ctx context.Context, m *move) error {
	w := &member{move: m, ctx: ctx, answer: make(chan error, 1)}
	if !g.join(w) {
		return ErrOverloaded
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

// join puts w at the end of the queue, and opens a lane where one is free.
func (g *groups) join(w *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting >= g.Queue {
		return false
	}
	g.waiting++
	g.queue = append(g.queue, w)
	g.openLane()
	return true
}

// rejoin puts members that met a locked row in front of those that came later.
func (g *groups) rejoin(members []*member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range members {
		g.wait(w)
	}
	g.queue = append(members, g.queue...)
	g.openLane()
}

// wait makes w one of those that have not begun. g.mu is held.
func (g *groups) wait(w *member) {
	if w.begun {
		w.begun = false
		g.waiting++
	}
}

// openLane starts a lane if there is work and a free one. g.mu is held.
func (g *groups) openLane() {
	if len(g.queue) > 0 && g.lanes < g.Lanes {
		g.lanes++
		go g.lane()
	}
}

// leave withdraws w and reports whether it could: once it has begun, it runs
// to the end.
func (g *groups) leave(w *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !w.begun {
		g.forget(w)
	}
	return !w.begun
}

// forget gives up the place of a member that has not begun. g.mu is held.
func (g *groups) forget(w *member) {
	if !w.gone {
		w.gone = true
		g.waiting--
	}
}

// lane moves groups, one after the other, until nobody waits.
func (g *groups) lane() {
	for {
		members := g.take()
		if len(members) == 0 {
			return
		}
		g.moveGroup(members)
	}
}

// take begins the next group: those who wait, in the order of their arrival.
// Two of one key are never in it: the second will be answered by the first
// one's answer. Whoever has left is dropped. It returns nobody, and closes the
// lane, when nobody waits.
func (g *groups) take() []*member {
	g.mu.Lock()
	defer g.mu.Unlock()
	var taken, later []*member
	keys := map[idempotency.Key]bool{}
	for _, w := range g.queue {
		switch {
		case w.gone:
		case w.left():
			g.forget(w)
			w.answer <- fmt.Errorf("%w: the caller has left", retry.ErrUnavailable)
		case len(taken) == g.Size, w.Key != nil && keys[*w.Key]:
			later = append(later, w)
		default:
			if w.Key != nil {
				keys[*w.Key] = true
			}
			w.begun = true
			taken = append(taken, w)
		}
	}
	g.queue = later
	g.waiting -= len(taken)
	if len(taken) == 0 {
		g.lanes--
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
	err := g.run(ctx, g.policy(), g.lockingOfGroup(), moves(members))
	switch {
	case timedOut(err):
		g.detour(ctx, members)
	case len(members) > 1 && isUnexpected(err):
		g.apart(members)
	default:
		answerAll(members, err)
	}
}

// detour is the way of a group that met a lock which somebody else keeps. What
// it had is rolled back, claims included.
func (g *groups) detour(ctx context.Context, members []*member) {
	if claimsTimedOut(members) {
		g.apart(members) // somebody is at work on one of the keys
		return
	}
	busy, err := g.findBusy(ctx, moves(members))
	if err != nil {
		answerAll(members, err)
		return
	}
	var free, missed []*member
	for _, w := range members {
		id, waits := firstBusy(w, busy)
		if len(busy) == 0 {
			w.misses++
		}
		switch {
		case waits:
			g.park(w, id)
		case w.misses > maxMisses:
			missed = append(missed, w)
		default:
			free = append(free, w)
		}
	}
	g.apart(missed)
	g.rejoin(free)
}

// maxMisses bounds how often a member meets locks that come and go.
const maxMisses = 3

// apart moves each member in a transaction of its own, with the waits of one,
// on the connections of those who may wait. The lane goes on.
func (g *groups) apart(members []*member) {
	for _, w := range members {
		go func() {
			ctx, cancel := lastDeadline([]*member{w})
			defer cancel()
			if !g.room.enter(ctx) {
				w.answer <- fmt.Errorf("%w: %w", retry.ErrUnavailable, ctx.Err())
				return
			}
			defer g.room.exit()
			w.answer <- g.run(ctx, g.waits, g.locking, moves([]*member{w}))
		}()
	}
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

// policy is a group's: it waits only briefly for a lock, since it holds others
// meanwhile. lock_timeout counts for each row, so the statement is bounded, too.
func (g *groups) policy() retry.Policy {
	policy := g.waits
	policy.GenericPlans = true
	policy.LockTimeout = g.LockWait
	policy.StatementTimeout = lockStatementWaits * g.LockWait
	return policy
}

const lockStatementWaits = 5

func (g *groups) lockingOfGroup() Locking {
	locking := g.locking
	locking.statementTimeout = g.waits.StatementTimeout
	return locking
}

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
	return err != nil && !errors.Is(err, retry.ErrCommitUnknown) && !errors.Is(err, retry.ErrUnavailable) && !errors.As(err, &exhausted)
}

// timedOut reports whether a group ended because a lock, or the statement that
// takes them, took too long.
func timedOut(err error) bool {
	return errors.Is(err, retry.ErrLockUnavailable) || retry.SQLState(err) == "57014"
}

func claimsTimedOut(members []*member) bool {
	for _, w := range members {
		if w.claim != nil && !w.claim.Known {
			return true
		}
	}
	return false
}

func firstBusy(w *member, busy map[uuid.UUID]bool) (uuid.UUID, bool) {
	for _, id := range accountIDs([]*move{w.move}) {
		if busy[id] {
			return id, true
		}
	}
	return uuid.Nil, false
}

package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/retry"
)

// The times of the fake database. All of them are virtual.
const (
	ms          = time.Millisecond
	groupTime   = 10 * ms // of one transaction
	lockWait    = 50 * ms
	lockTimeout = 2 * time.Second
)

// A fakeDB moves groups as a database does, in virtual time, with locks that
// the test keeps. Its moves are known by their descriptions.
type fakeDB struct {
	*groups
	t *testing.T

	callers sync.WaitGroup
	mu      sync.Mutex
	moved   []string      // each group's members, "!" behind those of one that was rolled back
	kept    map[lock]bool // by somebody else
	inUse   map[lock]bool // by groups at work
	fail    func(names string) error
	made    map[string]int
	answers map[string]error
	at      map[string]time.Duration // of the answer
	begun   time.Time
	waits   int // of waiters
	waiters int // at once, at most
	waiting int
}

func newFake(t *testing.T, g Grouping) *fakeDB {
	g.Lanes, g.Waiters = max(1, g.Lanes), max(4, g.Waiters)
	if g.Size == 0 {
		g.Size = 8
	}
	if g.Queue == 0 {
		g.Queue = 100
	}
	f := &fakeDB{
		t: t, kept: map[lock]bool{}, inUse: map[lock]bool{}, made: map[string]int{}, answers: map[string]error{},
		at: map[string]time.Duration{}, begun: time.Now(),
	}
	f.groups = newGroups(g, f, lockTimeout, false)
	return f
}

// moveOf is a move of one transfer.
func moveOf(c Command) *move {
	id := uuid.Must(uuid.NewV7())
	return newMove(c.Call, id, []step{&making{Command: c, id: id}}, c.route(), c.fields()...)
}

func (f *fakeDB) runGroup(ctx context.Context, ms []*move) error {
	var names []string
	for _, m := range ms {
		names = append(names, m.steps[0].(*making).Description)
	}
	err := f.work(ctx, ms, strings.Join(names, " "))
	f.mu.Lock()
	defer f.mu.Unlock()
	text := strings.Join(names, " ")
	if err != nil {
		text += "!"
	}
	f.moved = append(f.moved, text)
	if err == nil || errors.Is(err, retry.ErrCommitUnknown) {
		for _, name := range names {
			f.made[name]++
		}
	}
	return err
}

func (f *fakeDB) work(ctx context.Context, ms []*move, names string) error {
	if len(ms) > f.Size {
		f.t.Errorf("a group of %d, want %d at most", len(ms), f.Size)
	}
	var keys, all []lock
	for _, m := range ms {
		if m.claim != nil {
			if slices.Contains(keys, lock(m.claim.Key)) {
				f.t.Errorf("group %q has the key %s twice", names, m.claim.Key.Value)
			}
			keys = append(keys, m.claim.Key)
			m.claim.Known, m.claim.Won = false, false
		}
	}
	for _, id := range accountIDs(ms) {
		all = append(all, id)
	}
	defer f.use(names, slices.Concat(keys, all))()
	if f.keeps(keys) {
		time.Sleep(lockWait)
		return retry.ErrLockUnavailable
	}
	for _, m := range ms {
		if m.claim != nil {
			m.claim.Known, m.claim.Won = true, true
		}
	}
	if f.keeps(all) {
		if !f.noWait {
			time.Sleep(lockWait)
		}
		return retry.ErrLockUnavailable
	}
	select {
	case <-time.After(groupTime):
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", retry.ErrUnavailable, ctx.Err())
	}
	if f.fail != nil {
		return f.fail(names)
	}
	return nil
}

// use fails the test where two groups at work need one lock.
func (f *fakeDB) use(names string, locks []lock) (done func()) {
	set := func(used bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, l := range locks {
			if used && f.inUse[l] {
				f.t.Errorf("group %q needs the lock %v of a group that is at work", names, l)
			}
			f.inUse[l] = used
		}
	}
	set(true)
	return func() { set(false) }
}

func (f *fakeDB) findBusy(_ context.Context, ms []*move) (map[uuid.UUID]bool, error) {
	busy := map[uuid.UUID]bool{}
	for _, id := range accountIDs(ms) {
		if f.keeps([]lock{id}) {
			busy[id] = true
		}
	}
	return busy, nil
}

func (f *fakeDB) waitFor(l lock, wait time.Duration) error {
	f.mu.Lock()
	f.waits++
	f.waiting++
	f.waiters = max(f.waiters, f.waiting)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.waiting--
		f.mu.Unlock()
	}()
	for end := time.Now().Add(wait); f.keeps([]lock{l}); time.Sleep(ms) {
		if !time.Now().Before(end) {
			return retry.ErrLockUnavailable
		}
	}
	return nil
}

func (f *fakeDB) keep(l lock, keep bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept[l] = keep
}

func (f *fakeDB) keeps(ls []lock) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(ls, func(l lock) bool { return f.kept[l] })
}

// Accounts of the fake, in the order of their ids.
var account = func() (ids [10]uuid.UUID) {
	for i := range ids {
		ids[i][0] = byte(i + 1)
	}
	return ids
}()

func command(debit, credit int) Command {
	return Command{Kind: Between, DebitAccountID: account[debit], CreditAccountID: account[credit], Amount: decimal.New(1, 0), Currency: "USD"}
}

// send has a caller of that name ask for c, and returns when it waits.
func (f *fakeDB) send(ctx context.Context, name string, c Command) {
	c.Description = name
	f.callers.Go(func() {
		err := f.move(ctx, moveOf(c))
		f.mu.Lock()
		defer f.mu.Unlock()
		if _, twice := f.answers[name]; twice {
			f.t.Errorf("%s was sent twice", name)
		}
		f.answers[name], f.at[name] = err, time.Since(f.begun)
	})
	synctest.Wait()
}

// sendAll sends moves between other accounts than 0, one after the other.
func (f *fakeDB) sendAll(names ...string) {
	for _, name := range names {
		f.send(f.t.Context(), name, command(1, 2))
	}
}

// wantMoved waits for all callers, and compares what the groups were.
func (f *fakeDB) wantMoved(want ...string) {
	f.t.Helper()
	f.callers.Wait()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff(want, f.moved); diff != "" {
		f.t.Errorf("groups (-want +got):\n%s", diff)
	}
	f.wantWaiting(0, 0)
}

func (f *fakeDB) wantWaiting(queued, parked int) {
	f.t.Helper()
	if q, p := (&Service{groups: f.groups}).Waiting(); q != queued || p != parked {
		f.t.Errorf("%d are queued and %d parked, want %d and %d", q, p, queued, parked)
	}
}

func (f *fakeDB) wantAnswer(want error, names ...string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		if got, answered := f.answers[name]; !answered || !errors.Is(got, want) || (got == nil) != (want == nil) {
			f.t.Errorf("answer of %s = %v (answered: %v), want %v", name, got, answered, want)
		}
		made := map[bool]int{true: 1}[want == nil || errors.Is(want, retry.ErrCommitUnknown)]
		if f.made[name] != made {
			f.t.Errorf("%s was made %d times, want %d", name, f.made[name], made)
		}
	}
}

func (f *fakeDB) wantAnswerAt(name string, want time.Duration) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := f.at[name]; got != want {
		f.t.Errorf("%s was answered after %v, want %v", name, got, want)
	}
}

func (f *fakeDB) wantWaits(want int) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waits != want {
		f.t.Errorf("%d waits for locks, want %d", f.waits, want)
	}
}

// inBubble runs test in virtual time. It ends only when no goroutine is left.
func inBubble(t *testing.T, g Grouping, test func(*testing.T, *fakeDB)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newFake(t, g)) })
}

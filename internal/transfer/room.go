package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/retry"
)

// The waiting room is for members that need what somebody else keeps locked,
// while the groups go on without them. For each lock there is one waiter, and
// it holds no other lock meanwhile, so it holds up nobody.

// A lock is what a member may wait for: an account's, by its uuid.UUID, or that
// of an idempotency.Key.
type lock any

// awaited returns the first lock that w needs and others wait for already, or
// nil. g.mu is held.
func (g *groups) awaited(w *member) lock {
	if len(g.room) == 0 {
		return nil
	}
	if w.Key != nil {
		if _, ok := g.room[*w.Key]; ok {
			return *w.Key
		}
	}
	for _, id := range w.accounts {
		if _, ok := g.room[id]; ok {
			return id
		}
	}
	return nil
}

// park lets w wait for l. The room is for half as many as the queue: a lock
// that is wanted by all must leave some callers for the others. g.mu is held.
func (g *groups) park(w *member, l lock) {
	if g.isLate(w) || g.parked > g.Queue/2 {
		w.answer <- retry.ErrLockUnavailable
		return
	}
	members, awaited := g.room[l]
	g.room[l] = append(members, w)
	g.parked++
	w.lock = l
	if !awaited {
		go g.await(l)
	}
}

// isLate reports whether w has waited for locks for --lock-timeout. It begins
// when it is first asked. g.mu is held.
func (g *groups) isLate(w *member) bool {
	if w.until.IsZero() {
		w.until = time.Now().Add(g.lockTimeout)
	}
	return !time.Now().Before(w.until)
}

// leaveRoom withdraws w, if it is in the room. g.mu is held.
func (g *groups) leaveRoom(w *member) bool {
	i := slices.Index(g.room[w.lock], w)
	if i >= 0 {
		g.room[w.lock] = slices.Delete(g.room[w.lock], i, i+1)
		g.parked--
	}
	return i >= 0
}

// await waits for l until nobody else does.
func (g *groups) await(l lock) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.room[l]) > 0 {
		until := slices.MinFunc(g.room[l], func(a, b *member) int { return a.until.Compare(b.until) }).until
		g.mu.Unlock()
		err := g.waitUntil(l, until)
		g.mu.Lock()
		g.release(l, err)
	}
	delete(g.room, l)
}

// waitUntil waits for l in a waiter's place.
func (g *groups) waitUntil(l lock, until time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	select {
	case g.places <- struct{}{}:
		defer func() { <-g.places }()
		return g.waitFor(l, time.Until(until))
	case <-ctx.Done():
		return retry.ErrLockUnavailable
	}
}

// release sends on those who waited for l: all of them where it was free, those
// whose time is up where it was not, and all of them with any other error. Who
// rejoins must not find l awaited, or he would wait for it again. g.mu is held.
func (g *groups) release(l lock, err error) {
	var free, rest []*member
	for _, w := range g.room[l] {
		switch {
		case err == nil:
			free = append(free, w)
		case errors.Is(err, retry.ErrLockUnavailable) && !g.isLate(w):
			rest = append(rest, w)
		default:
			w.answer <- err
		}
	}
	g.parked -= len(g.room[l]) - len(rest)
	g.room[l] = rest
	if len(rest) == 0 {
		delete(g.room, l)
	}
	g.rejoin(free...)
}

// errWaited ends a transaction with a rollback: it wanted the turn and not the
// lock.
var errWaited = errors.New("waited")

const selectAccountIDSQL = `
	SELECT id
	  FROM accounts
	 WHERE id = $1`

// waitFor returns nil when nobody else holds l, and [retry.ErrLockUnavailable]
// when somebody did for as long as the wait.
func (s *Service) waitFor(l lock, wait time.Duration) error {
	policy := s.policy
	policy.LockTimeout = max(time.Millisecond, wait)
	policy.StatementTimeout = policy.LockTimeout + waitSlack
	ctx, cancel := context.WithTimeout(context.Background(), policy.StatementTimeout+waitSlack)
	defer cancel()
	return s.peek(ctx, policy, func(tx pgx.Tx) error {
		if key, ok := l.(idempotency.Key); ok {
			return idempotency.Await(ctx, tx, key)
		}
		_, err := tx.Exec(ctx, selectAccountIDSQL+s.locking.strength(), l)
		return err
	})
}

const waitSlack = time.Second

const selectAccountIDsSQL = `
	SELECT id
	  FROM accounts
	 WHERE id = ANY($1)
	 ORDER BY id`

// findBusy returns the accounts of ms that somebody else holds, and waits for
// none of them. One that is not there at all is not busy.
func (s *Service) findBusy(ctx context.Context, ms []*move) (map[uuid.UUID]bool, error) {
	busy := map[uuid.UUID]bool{}
	err := s.peek(ctx, s.policy, func(tx pgx.Tx) error {
		var id uuid.UUID
		each := func(f func()) func(pgx.Rows) error {
			return func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&id}, func() error { f(); return nil })
				return err
			}
		}
		b, ids := &pgx.Batch{}, accountIDs(ms)
		b.Queue(selectAccountIDsSQL, uuidArray(ids)).Query(each(func() { busy[id] = true }))
		free := s.locking.strength() + " SKIP LOCKED"
		if !s.locking.EachRow {
			b.Queue(selectAccountIDsSQL+free, uuidArray(ids)).Query(each(func() { delete(busy, id) }))
		} else {
			for _, one := range ids {
				b.Queue(selectAccountIDSQL+free, one).Query(each(func() { delete(busy, id) }))
			}
		}
		return tx.SendBatch(ctx, b).Close()
	})
	return busy, err
}

// peek runs fn in a transaction that leaves nothing behind, no lock either.
func (s *Service) peek(ctx context.Context, policy retry.Policy, fn func(pgx.Tx) error) error {
	_, err := retry.Tx(ctx, s.db, s.mode.TxOptions, policy, func(_ context.Context, tx pgx.Tx) (struct{}, error) {
		if err := fn(tx); err != nil {
			return struct{}{}, fmt.Errorf("look for locks: %w", err)
		}
		return struct{}{}, errWaited
	})
	if errors.Is(err, errWaited) {
		return nil
	}
	return err
}

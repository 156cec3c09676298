package transfer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

// A room is where members wait for rows that somebody else keeps locked, while
// the groups go on without them. One waiter waits for each row, alone: it holds
// no key and no other lock, so it holds up nobody.
type room struct {
	waiters chan struct{} // a place for each connection that may wait

	mu   sync.Mutex
	rows map[uuid.UUID][]*member
}

func newRoom(waiters int) *room {
	return &room{waiters: make(chan struct{}, waiters), rows: map[uuid.UUID][]*member{}}
}

// enter takes a waiter's place, or returns false when ctx ended first.
func (r *room) enter(ctx context.Context) bool {
	select {
	case r.waiters <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *room) exit() { <-r.waiters }

// park lets w wait for the account id, for --lock-timeout in all.
func (g *groups) park(w *member, id uuid.UUID) {
	if g.locking.NoWait {
		w.answer <- retry.ErrLockUnavailable
		return
	}
	if w.until.IsZero() {
		w.until = time.Now().Add(g.waits.LockTimeout)
	}
	g.mu.Lock()
	g.wait(w) // the caller may leave
	g.mu.Unlock()

	g.room.mu.Lock()
	defer g.room.mu.Unlock()
	members, waited := g.room.rows[id]
	g.room.rows[id] = append(members, w)
	if !waited {
		go g.await(id)
	}
}

// await waits for a row until it is free or nobody waits for it any more.
func (g *groups) await(id uuid.UUID) {
	for {
		until, ok := g.room.earliest(id)
		if !ok {
			return
		}
		ctx, cancel := context.WithDeadline(context.Background(), until)
		err := retry.ErrLockUnavailable
		if g.room.enter(ctx) {
			err = g.waitForRow(id, time.Until(until))
			g.room.exit()
		}
		cancel()
		if g.release(id, err) {
			return
		}
	}
}

// earliest returns when the first of the members that wait for id gives up. It
// closes the row when there is none.
func (r *room) earliest(id uuid.UUID) (until time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.rows[id] {
		if !ok || w.until.Before(until) {
			until, ok = w.until, true
		}
	}
	if !ok {
		delete(r.rows, id)
	}
	return until, ok
}

// release sends on those who waited for id: all of them where the row was free,
// those whose time is up where it was not, and all of them with any other
// error. It reports whether the row is closed.
func (g *groups) release(id uuid.UUID, err error) (closed bool) {
	g.room.mu.Lock()
	var done, rest []*member
	for _, w := range g.room.rows[id] {
		if errors.Is(err, retry.ErrLockUnavailable) && time.Now().Before(w.until) {
			rest = append(rest, w)
		} else {
			done = append(done, w)
		}
	}
	if len(rest) > 0 {
		g.room.rows[id] = rest
	} else {
		delete(g.room.rows, id)
	}
	g.room.mu.Unlock()

	if err == nil {
		g.rejoin(done)
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range done {
		g.forget(w)
		w.answer <- err
	}
	return len(rest) == 0
}

// errWaited ends a waiter's transaction with a rollback: it wanted the row's
// turn and not the row.
var errWaited = errors.New("waited")

const selectAccountForUpdateSQL = `
	SELECT id
	  FROM accounts
	 WHERE id = $1
	   FOR UPDATE`

// waitForRow returns nil when nobody else holds the account, and
// [retry.ErrLockUnavailable] when somebody did for as long as the wait.
func (s *Service) waitForRow(id uuid.UUID, wait time.Duration) error {
	policy := s.policy
	policy.LockTimeout = max(time.Millisecond, wait)
	policy.StatementTimeout = policy.LockTimeout + waitSlack
	ctx, cancel := context.WithTimeout(context.Background(), policy.StatementTimeout+waitSlack)
	defer cancel()
	_, err := retry.Tx(ctx, s.db, s.mode.TxOptions, policy, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if _, err := tx.Exec(ctx, selectAccountForUpdateSQL, id); err != nil {
			return struct{}{}, fmt.Errorf("wait for account %s: %w", id, err)
		}
		return struct{}{}, errWaited
	})
	if errors.Is(err, errWaited) {
		return nil
	}
	return err
}

const waitSlack = time.Second

// SKIP LOCKED waits for nobody, and what it skips is busy: a row that is not
// there at all is neither.
const selectBusySQL = `
	WITH free AS MATERIALIZED (
	  SELECT id
	    FROM accounts
	   WHERE id = ANY($1)
	   ORDER BY id
	     FOR UPDATE SKIP LOCKED
	)
	SELECT id
	  FROM accounts
	 WHERE id = ANY($1)
	   AND id NOT IN (SELECT id FROM free)`

// findBusy returns the accounts of ms that somebody else holds.
func (s *Service) findBusy(ctx context.Context, ms []*move) (map[uuid.UUID]bool, error) {
	busy := map[uuid.UUID]bool{}
	_, err := retry.Tx(ctx, s.db, s.mode.TxOptions, s.policy, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		rows, _ := tx.Query(ctx, selectBusySQL, uuidArray(accountIDs(ms)))
		ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return struct{}{}, fmt.Errorf("find busy accounts: %w", err)
		}
		for _, id := range ids {
			busy[id] = true
		}
		return struct{}{}, errWaited
	})
	if errors.Is(err, errWaited) {
		err = nil
	}
	return busy, err
}

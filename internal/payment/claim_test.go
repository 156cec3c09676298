package payment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
)

var patient = retry.Policy{
	Attempts: 1000, MinPause: time.Millisecond, MaxPause: 50 * time.Millisecond,
	StatementTimeout: time.Minute, LockTimeout: time.Minute,
}

func newDB(t *testing.T) *testdb.DB {
	t.Helper()
	db := testdb.New(t)
	db.AcquireTimeout = time.Minute
	return db
}

func exec(t *testing.T, db *testdb.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// fill puts n payments of a priority into the queue, age ago and a little later
// each, and gives them the number of their place as amount.
func fill(t *testing.T, db *testdb.DB, n, priority int, age time.Duration) {
	t.Helper()
	exec(t, db, `
		INSERT INTO payments (id, debit_account_id, credit_account_id, amount, currency, priority, max_attempts, run_at, status, queued_at)
		SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), n, 'USD', $2, 5, now(), 'queued',
		       clock_timestamp() - $3::interval + n * interval '1 microsecond'
		  FROM generate_series(1, $1) n`, n, priority, age)
}

// inTx runs fn in a transaction.
func inTx[T any](t *testing.T, db retry.Beginner, fn func(ctx context.Context, tx pgx.Tx) (T, error)) T {
	t.Helper()
	result, err := retry.Tx(t.Context(), db, readWrite, patient, fn)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func ids(payments []Payment) (ids []uuid.UUID) {
	for _, p := range payments {
		ids = append(ids, p.ID)
	}
	return ids
}

// overlap returns what two workers have claimed at the same time, by claim.
func overlap(t *testing.T, db *testdb.DB, claim func(ctx context.Context, tx pgx.Tx) ([]uuid.UUID, error)) (both []uuid.UUID) {
	t.Helper()
	inTx(t, db, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		first, err := claim(ctx, tx)
		if err != nil || len(first) == 0 {
			return struct{}{}, errors.Join(err, fmt.Errorf("claimed %d", len(first)))
		}
		second := inTx(t, db, claim) // while the first one is at work
		for _, id := range second {
			if slices.Contains(first, id) {
				both = append(both, id)
			}
		}
		return struct{}{}, nil
	})
	return both
}

// The control: what a claim without a lock does.
func TestTwoWorkersClaimTheSameOnlyWithoutLocks(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	fill(t, db, 10, 0, time.Minute)
	naive := func(ctx context.Context, tx pgx.Tx) ([]uuid.UUID, error) {
		rows, _ := tx.Query(ctx, `SELECT id FROM payments WHERE status = 'queued' ORDER BY queued_at LIMIT 5`)
		return pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	}
	if both := overlap(t, db, naive); len(both) != 5 {
		t.Errorf("without locks %d payments were claimed twice, want 5: this test cannot see what it is for", len(both))
	}
	locked := func(ctx context.Context, tx pgx.Tx) ([]uuid.UUID, error) {
		claimed, err := claimQueued(ctx, tx, &floors{}, 5, nil)
		return ids(claimed), err
	}
	if both := overlap(t, db, locked); len(both) != 0 {
		t.Errorf("%d payments were claimed twice, want none", len(both))
	}
}

// Row 45 of the lessons: a plan that runs the claim's subquery again claims more
// than was asked for. No statistics, and no plan but nested loops.
func TestAClaimNeverTakesMoreThanItAskedFor(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 5} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			exec(t, db, `ALTER TABLE payments SET (autovacuum_enabled = off)`)
			fill(t, db, 1000, 0, time.Minute)
			fill(t, db, 1000, 9, time.Minute)
			var claimed sync.Map
			var workers sync.WaitGroup
			for range 20 {
				workers.Go(func() {
					for {
						n, err := retry.Tx(t.Context(), db, readWrite, patient, func(ctx context.Context, tx pgx.Tx) (int, error) {
							if _, err := tx.Exec(ctx, `SELECT set_config(name, 'off', true) FROM unnest('{enable_hashjoin,enable_mergejoin}'::text[]) AS name`); err != nil {
								return 0, err
							}
							payments, err := claimQueued(ctx, tx, &floors{}, limit, nil) // fails if it has more
							if err != nil {
								return 0, err
							}
							for _, p := range payments {
								if _, twice := claimed.LoadOrStore(p.ID, true); twice {
									t.Errorf("payment %s was claimed twice", p.ID)
								}
							}
							tag, err := tx.Exec(ctx, `UPDATE payments SET status = 'canceled', queued_at = NULL, finished_at = now() WHERE id = ANY($1)`, ids(payments))
							return int(tag.RowsAffected()), err
						})
						if err != nil {
							t.Error(err)
							return
						}
						if n == 0 {
							return
						}
					}
				})
			}
			workers.Wait()
			n := 0
			claimed.Range(func(any, any) bool { n++; return true })
			if n != 2000 {
				t.Errorf("%d payments were claimed, want 2000", n)
			}
		})
	}
}

// Each step of priority is worth a minute, so nobody waits for ever.
func TestTheOldestAfterPriorityIsFirst(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	fill(t, db, 2, 0, 10*time.Minute)
	fill(t, db, 2, 9, 0)
	fill(t, db, 2, 5, time.Minute)
	fill(t, db, 2, 4, 10*time.Second)
	order := inTx(t, db, func(ctx context.Context, tx pgx.Tx) (order []string, err error) {
		claimed, err := claimQueued(ctx, tx, &floors{}, 7, nil)
		for _, p := range claimed {
			order = append(order, fmt.Sprintf("%d:%s", p.Priority, p.Amount))
		}
		return order, err
	})
	want := []string{"0:1", "0:2", "9:1", "9:2", "5:1", "5:2", "4:1"}
	if !slices.Equal(order, want) {
		t.Errorf("claimed %v, want %v", order, want)
	}
}

// What another worker holds is gone around, and the next queue is taken from
// where one does not have enough.
func TestAClaimGoesAroundWhatOthersHold(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	fill(t, db, 3, 9, time.Minute)
	fill(t, db, 10, 0, time.Minute)
	inTx(t, db, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		first, err := claimQueued(ctx, tx, &floors{}, 2, nil)
		if err != nil || len(first) != 2 {
			t.Fatalf("claimed %d, %v, want 2", len(first), err)
		}
		second := inTx(t, db, func(ctx context.Context, tx pgx.Tx) ([]Payment, error) {
			return claimQueued(ctx, tx, &floors{}, 4, nil)
		})
		if len(second) != 4 || second[0].Priority != 9 || second[1].Priority != 0 {
			t.Errorf("claimed %v, want one of priority 9 and three of 0", second)
		}
		return struct{}{}, nil
	})
}

// While a transaction holds vacuum back, what is finished stays in the index.
// A claim must not walk over it again and again.
func TestAClaimDoesNotWalkOverWhatIsFinished(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, `ALTER TABLE payments SET (autovacuum_enabled = off)`)
	fill(t, db, 20_000, 0, time.Hour)
	fill(t, db, 10, 0, 0)
	inTx(t, db, func(ctx context.Context, holder pgx.Tx) (struct{}, error) {
		if _, err := holder.Exec(ctx, `SELECT pg_current_xact_id()`); err != nil {
			return struct{}{}, err
		}
		exec(t, db, `UPDATE payments SET status = 'canceled', queued_at = NULL, finished_at = now() WHERE queued_at < now() - interval '1 minute'`)
		f := &floors{}
		walked := buffers(t, db, f)
		raise(t, db, f, false)
		flat := buffers(t, db, f)
		if walked < 10*flat {
			t.Errorf("a claim from the start touched %d pages and one from the floors %d: the test does not see what it is for", walked, flat)
		}
		if flat > 100 {
			t.Errorf("a claim touched %d pages, want no more than a few", flat)
		}
		return struct{}{}, nil
	})
}

// buffers counts the pages that a claim touches.
func buffers(t *testing.T, db *testdb.DB, f *floors) int {
	t.Helper()
	return inTx(t, db, func(ctx context.Context, tx pgx.Tx) (int, error) {
		priorities, times := f.read()
		rows, _ := tx.Query(ctx, `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+claimQueuedSQL, priorities, times, 5, []uuid.UUID{})
		plans, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[[]struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
				Rows int `json:"Actual Rows"`
			}
		}])
		if err != nil {
			return 0, err
		}
		if plans[0].Plan.Rows != 5 {
			t.Errorf("claimed %d, want 5", plans[0].Plan.Rows)
		}
		return plans[0].Plan.Hit + plans[0].Plan.Read, nil
	})
}

func raise(t *testing.T, db *testdb.DB, f *floors, fromStart bool) time.Duration {
	t.Helper()
	return inTx(t, db, func(ctx context.Context, tx pgx.Tx) (time.Duration, error) { return f.raise(ctx, tx, fromStart) })
}

// A slow commit can put a payment in below the floor. The look from the start
// finds it.
func TestAPaymentBelowTheFloorIsFound(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	f := &floors{}
	raise(t, db, f, false)
	fill(t, db, 1, 3, time.Hour)
	claim := func(ctx context.Context, tx pgx.Tx) ([]Payment, error) { return claimQueued(ctx, tx, f, 5, nil) }
	if n := len(inTx(t, db, claim)); n != 0 {
		t.Fatalf("claimed %d, want none: it is below the floor", n)
	}
	raise(t, db, f, true)
	if n := len(inTx(t, db, claim)); n != 1 {
		t.Errorf("claimed %d, want 1", n)
	}
}

func TestTheQueueTellsHowLongItsOldestHasWaited(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	f := &floors{}
	if oldest := raise(t, db, f, false); oldest != 0 {
		t.Errorf("the oldest of none has waited %v, want 0", oldest)
	}
	fill(t, db, 1, 0, time.Minute)
	fill(t, db, 1, 9, time.Hour)
	raise(t, db, f, true)
	if oldest := raise(t, db, f, false); oldest < time.Hour || oldest > 2*time.Hour {
		t.Errorf("the oldest has waited %v, want an hour", oldest)
	}
}

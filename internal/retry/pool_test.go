package retry_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
)

func TestAFullPoolIsAnEarlyAnswer(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	small := open(t, postgres.Config{URL: db.URL, PoolSize: 1, AcquireTimeout: time.Minute})
	p, conflicts := watched(quick)
	_, err := retry.Tx(t.Context(), small, pgx.TxOptions{}, quick, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		impatient := &retry.Pool{Pool: small.Pool, AcquireTimeout: time.Millisecond}
		if err := do(ctx, impatient, p, `SELECT 1`); !errors.Is(err, retry.ErrUnavailable) {
			t.Errorf("error = %v, want %v while the only connection is out", err, retry.ErrUnavailable)
		}
		return struct{}{}, runAll(ctx, tx, `UPDATE rows SET n = n + 1 WHERE id = 1`)
	})
	if err != nil {
		t.Errorf("error = %v, want none: a transaction needs one connection", err)
	}
	if len(*conflicts) != 0 {
		t.Errorf("conflicts = %v, want none", *conflicts)
	}
	if err := do(t.Context(), small, quick, `UPDATE rows SET n = n + 1 WHERE id = 1`); err != nil {
		t.Errorf("error = %v, want none: the connection is back", err)
	}
	wantNumber(t, db, `SELECT n FROM rows WHERE id = 1`, 12)
}

func TestADatabaseThatIsNotThereIsUnavailable(t *testing.T) {
	t.Parallel()
	db := open(t, postgres.Config{URL: "postgres://nobody@/nothing?host=/no/such/directory"})
	p, conflicts := watched(quick)
	if err := do(t.Context(), db, p, `SELECT 1`); !errors.Is(err, retry.ErrUnavailable) {
		t.Errorf("error = %v, want %v", err, retry.ErrUnavailable)
	}
	if len(*conflicts) != 0 {
		t.Errorf("conflicts = %v, want none: asking again adds to the load", *conflicts)
	}
}

// Callers go away at any moment. No slot of the pool, no lock and no open
// transaction may stay behind.
func TestCancelledCallersLeaveThePoolClean(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	var done sync.WaitGroup
	for i := range 80 {
		done.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(i)))
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(30_000))*time.Microsecond)
			defer cancel()
			_ = do(ctx, db, quick, `UPDATE rows SET n = n + 1 WHERE id = 1`, `SELECT pg_sleep(0.002)`) // whatever it ends in
		})
	}
	done.Wait()
	waitUntilIdle(t, db)
	if err := do(t.Context(), db, quick, `UPDATE rows SET n = 0`); err != nil {
		t.Errorf("error = %v, want none", err)
	}
}

// waitUntilIdle returns when nothing is checked out, and no session of the
// database is in a transaction.
func waitUntilIdle(t *testing.T, db *testdb.DB) {
	t.Helper()
	const busySQL = `
		SELECT count(*)
		  FROM pg_stat_activity
		 WHERE datname = current_database()
		   AND pid <> pg_backend_pid()
		   AND state <> 'idle'`
	busy := -1
	for range 3000 {
		if db.Stat().AcquiredConns() == 0 {
			if err := db.QueryRow(t.Context(), busySQL).Scan(&busy); err != nil {
				t.Fatal(err)
			}
			if busy == 0 {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d connections are checked out and %d sessions are busy, want none", db.Stat().AcquiredConns(), busy)
}

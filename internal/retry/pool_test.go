package retry_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

// A transaction of one batch takes two round trips: BEGIN, its limits and the
// batch, and then COMMIT.
func TestATransactionBeginsWithItsFirstStatements(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(newDB(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int32
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &countedConn{Conn: conn, writes: &sent}, err
	}
	config.MaxConns = 1
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	move := func() (statementTimeout string) {
		t.Helper()
		sent.Store(0)
		statementTimeout, err := retry.Tx(t.Context(), &retry.Pool{Pool: pool}, pgx.TxOptions{}, retry.Policy{Attempts: 1, StatementTimeout: time.Minute},
			func(ctx context.Context, tx pgx.Tx) (timeout string, err error) {
				b := &pgx.Batch{}
				b.Queue(`UPDATE rows SET n = n + 1 WHERE id = 1`)
				b.Queue(`SHOW statement_timeout`).QueryRow(func(row pgx.Row) error { return row.Scan(&timeout) })
				return timeout, tx.SendBatch(ctx, b).Close()
			})
		if err != nil {
			t.Fatal(err)
		}
		return statementTimeout
	}
	move() // prepares the statements
	if got := move(); got != "1min" {
		t.Errorf("statement_timeout = %s, want 1min", got)
	}
	if got := sent.Load(); got != 2 {
		t.Errorf("%d messages were sent, want 2", got)
	}
}

// A countedConn counts what is sent.
type countedConn struct {
	net.Conn
	writes *atomic.Int32
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

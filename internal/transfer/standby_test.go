package transfer_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/localpg"
	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
)

// A commit whose wait for its standby was cut short is visible here already. A
// replay that merely read it would be a promise that a failover breaks.
//
// No timeout of the server's ends that wait: statement_timeout does not cover
// COMMIT. It ends when somebody cancels it, or when the caller has gone.
func TestAReplayWaitsForTheStandbyThatTheFirstAnswerWaitedFor(t *testing.T) {
	t.Parallel()
	l := privateLedger(t)
	low, high := l.openPair(t, "USD", "100")
	stopCancelling := l.cancelWaitsForStandbys(t)
	l.exec(t, `ALTER SYSTEM SET synchronous_standby_names = '*'`)
	l.exec(t, `SELECT pg_reload_conf()`)
	l.waitUntilCommitsWait(t)

	s := transfer.New(l.db, transfer.Pessimistic, transfer.Locking{}, retry.Policy{Attempts: 2})
	withKey := keyed(between(low, high, "1", "USD"), "k")
	for _, c := range []transfer.Command{withKey, between(low, high, "2", "USD")} {
		if _, _, err := s.Create(t.Context(), c); !errors.Is(err, retry.ErrCommitUnknown) {
			t.Errorf("without its standby: error = %v, want %v", err, retry.ErrCommitUnknown)
		}
		if n := count(t, l, `SELECT count(*) FROM transfers WHERE debit_account_id = $1 AND amount = $2`, low, c.Amount); n != 1 {
			t.Errorf("%d transfers of %s are visible, want 1: this server has committed", n, c.Amount)
		}
	}
	// In some modes a replay locks accounts as well, and would wait for that
	// alone; in the others the lock of the key is all there is.
	for _, mode := range transfer.Modes() {
		s := transfer.New(l.db, mode, transfer.Locking{}, retry.Policy{Attempts: 2})
		if made, replayed, err := s.Create(t.Context(), withKey); !errors.Is(err, retry.ErrCommitUnknown) {
			t.Errorf("%s: replay without the standby, cancelled by somebody = %s, replayed %v, error %v, want %v", mode.Name, made.ID, replayed, err, retry.ErrCommitUnknown)
		}
	}
	stopCancelling()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		l.waitForStandbyWait(t)
		cancel()
	}()
	if made, replayed, err := s.Create(ctx, withKey); !errors.Is(err, retry.ErrCommitUnknown) {
		t.Errorf("replay without the standby, given up by the caller = %s, replayed %v, error %v, want %v", made.ID, replayed, err, retry.ErrCommitUnknown)
	}

	l.exec(t, `ALTER SYSTEM RESET synchronous_standby_names`)
	l.exec(t, `SELECT pg_reload_conf()`)
	made, replayed, err := l.service(transfer.Pessimistic).Create(t.Context(), withKey)
	if err != nil || !replayed {
		t.Fatalf("replay without need of a standby: replayed %v, error %v, want a replay", replayed, err)
	}
	if n := count(t, l, `SELECT count(*) FROM transfers WHERE id = $1 AND amount = 1`, made.ID); n != 1 {
		t.Errorf("%d transfers have the id that was answered, want 1", n)
	}
	l.wantBalance(t, low, "97")
	l.wantSound(t)
}

// privateLedger has a server of its own, whose settings a test may change.
func privateLedger(t *testing.T) *ledger {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server, err := localpg.Start(ctx, localpg.Options{Ephemeral: true, NoDownload: true})
	if errors.Is(err, localpg.ErrNoBinaries) && os.Getenv("CI") != "true" {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: this test needs a local PostgreSQL: %v", err)
	}
	if err != nil {
		t.Fatalf("start a server: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Errorf("stop the server: %v", err)
		}
	})
	if err := postgres.Migrate(ctx, server.DSN(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	pool, err := postgres.Open(ctx, postgres.Config{URL: server.DSN(), AcquireTimeout: time.Minute})
	if err != nil {
		t.Fatalf("open the pool: %v", err)
	}
	t.Cleanup(pool.Close)
	return &ledger{db: &testdb.DB{DB: pool, URL: server.DSN()}, accounts: accounts.New(pool, patient)}
}

// cancelWaitsForStandbys cancels each COMMIT that waits for a standby, once,
// until stop is called.
func (l *ledger) cancelWaitsForStandbys(t *testing.T) (stop func()) {
	t.Helper()
	const cancelSQL = `
		SELECT CASE WHEN pg_cancel_backend(pid) THEN backend_xid::text ELSE '' END
		  FROM pg_stat_activity
		 WHERE wait_event = 'SyncRep'
		   AND backend_xid::text <> ALL ($1)`
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		cancelled := []string{}
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			rows, _ := l.db.Query(t.Context(), cancelSQL, cancelled)
			xids, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Errorf("cancel: %v", err)
				return
			}
			cancelled = append(cancelled, xids...)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// waitUntilCommitsWait returns when the server has taken the setting to heart.
func (l *ledger) waitUntilCommitsWait(t *testing.T) {
	t.Helper()
	for range 600 {
		_, err := retry.Tx(t.Context(), l.db, pgx.TxOptions{}, retry.Policy{Attempts: 1}, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
			_, err := tx.Exec(ctx, `UPDATE accounts SET name = name`)
			return struct{}{}, err
		})
		if errors.Is(err, retry.ErrCommitUnknown) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("commits do not wait for a standby")
}

// waitForStandbyWait returns when a COMMIT waits for a standby.
func (l *ledger) waitForStandbyWait(t *testing.T) {
	for range 60_000 {
		if count(t, l, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`) > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("no COMMIT waits for a standby")
}

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
func TestAReplayWaitsForTheStandbyThatTheFirstAnswerWaitedFor(t *testing.T) {
	t.Parallel()
	l := privateLedger(t)
	low, high := l.openPair(t, "USD", "100")
	l.setStandbys(t, `ALTER SYSTEM SET synchronous_standby_names = '*'`)
	l.waitUntilCommitsWait(t)

	impatient := retry.Policy{Attempts: 2, StatementTimeout: time.Second}
	s := transfer.New(l.db, transfer.Pessimistic, transfer.Locking{}, impatient)
	for _, c := range []transfer.Command{keyed(between(low, high, "1", "USD"), "k"), between(low, high, "2", "USD")} {
		if _, _, err := s.Create(t.Context(), c); !errors.Is(err, retry.ErrCommitUnknown) {
			t.Errorf("without its standby: error = %v, want %v", err, retry.ErrCommitUnknown)
		}
		if n := count(t, l, `SELECT count(*) FROM transfers WHERE debit_account_id = $1 AND amount = $2`, low, c.Amount); n != 1 {
			t.Errorf("%d transfers of %s are visible, want 1: this server has committed", n, c.Amount)
		}
	}
	c := keyed(between(low, high, "1", "USD"), "k")
	if made, replayed, err := s.Create(t.Context(), c); !errors.Is(err, retry.ErrCommitUnknown) {
		t.Errorf("replay without the standby = %s, replayed %v, error %v, want %v", made.ID, replayed, err, retry.ErrCommitUnknown)
	}

	l.setStandbys(t, `ALTER SYSTEM RESET synchronous_standby_names`)
	made, replayed, err := l.service(transfer.Pessimistic).Create(t.Context(), c)
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

func (l *ledger) setStandbys(t *testing.T, alterSystemSQL string) {
	t.Helper()
	l.exec(t, alterSystemSQL)
	l.exec(t, `SELECT pg_reload_conf()`)
}

// waitUntilCommitsWait returns when the server has taken the setting to heart.
func (l *ledger) waitUntilCommitsWait(t *testing.T) {
	t.Helper()
	policy := retry.Policy{Attempts: 1, StatementTimeout: 100 * time.Millisecond}
	for range 600 {
		_, err := retry.Tx(t.Context(), l.db, pgx.TxOptions{}, policy, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
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

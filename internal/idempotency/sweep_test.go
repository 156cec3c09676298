package idempotency_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
)

type sweeper func(ctx context.Context, db retry.Beginner, policy retry.Policy, ttl time.Duration, limit int) (int64, error)

var sweepers = map[string]sweeper{"together": idempotency.Sweep, "apart": idempotency.SweepApart}

func TestSweepFreesTheOldestExpiredKeysByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	for name, sweeper := range sweepers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSweep(t, sweeper)
		})
	}
}

func testSweep(t *testing.T, sweeper sweeper) {
	db := newDB(t)
	for i, age := range []string{"3 hours", "2 hours", "61 minutes", "59 minutes", "0"} {
		exec(t, db, `
			INSERT INTO idempotency_keys (principal, key, fingerprint, resource_id, created_at)
			VALUES ('p', $1, sha256(''), gen_random_uuid(), clock_timestamp() - $2::interval)`, fmt.Sprint("key", i), age)
	}
	sweep := func(limit int, want int64) {
		t.Helper()
		if got, err := sweeper(t.Context(), db, policy, time.Hour, limit); err != nil || got != want {
			t.Errorf("Sweep of %d = %d, %v, want %d", limit, got, err, want)
		}
	}
	// A key that is being replayed is left, and holds nobody up.
	tx, err := db.BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM idempotency_keys WHERE key = 'key1' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	sweep(1, 1)
	wantCount(t, db, `SELECT count(*) FROM idempotency_keys WHERE key = 'key0'`, 0)
	sweep(10, 1)
	sweep(10, 0)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	sweep(10, 1)
	wantCount(t, db, `SELECT count(*) FROM idempotency_keys WHERE key IN ('key3', 'key4')`, 2)
	wantCount(t, db, `SELECT count(*) FROM idempotency_keys`, 2)
}

func TestTheSweepersScanEndsAtTheFirstKeyThatIsNotExpired(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, `
		INSERT INTO idempotency_keys (principal, key, fingerprint, resource_id, created_at)
		SELECT 'p', n::text, sha256(''), gen_random_uuid(), now() FROM generate_series(1, 5000) n`)
	exec(t, db, `ANALYZE idempotency_keys`)
	for name, sweeper := range sweepers {
		if got := scanned(t, db, sweeper); got != 0 {
			t.Errorf("%s: a sweep that finds nothing read %d keys, want none", name, got)
		}
	}
}

// scanned counts the rows that a sweep reads.
func scanned(t *testing.T, db *testdb.DB, sweeper sweeper) (n int64) {
	t.Helper()
	_, err := retry.Tx(t.Context(), db, pgx.TxOptions{}, policy, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		const readSQL = `SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint FROM pg_stat_xact_user_tables WHERE relname = 'idempotency_keys'`
		if _, err := sweeper(ctx, nested{tx}, policy, time.Hour, 100); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, tx.QueryRow(ctx, readSQL).Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// nested begins savepoints, so that what Sweep did is seen in its transaction.
type nested struct{ pgx.Tx }

func (n nested) BeginWith(ctx context.Context, _ *pgx.Batch) (pgx.Tx, error) { return n.Tx.Begin(ctx) }

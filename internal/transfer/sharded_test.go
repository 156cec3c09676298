package transfer_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// A shardedDB refuses what a sharded engine refuses: a statement that locks
// several rows, and one that changes several by a list.
type shardedDB struct{ retry.Beginner }

func (db shardedDB) BeginWith(ctx context.Context, begin *pgx.Batch) (pgx.Tx, error) {
	tx, err := db.Beginner.BeginWith(ctx, begin)
	if err != nil {
		return nil, err
	}
	return shardedTx{tx}, nil
}

type shardedTx struct{ pgx.Tx }

func (tx shardedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		q.SQL, q.Arguments = sharded(q.SQL, q.Arguments)
	}
	return tx.Tx.SendBatch(ctx, b)
}

func (tx shardedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	sql, args = sharded(sql, args)
	return tx.Tx.Query(ctx, sql, args...)
}

func (tx shardedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	sql, args = sharded(sql, args)
	return tx.Tx.Exec(ctx, sql, args...)
}

var (
	locks       = regexp.MustCompile(`FOR (NO KEY )?UPDATE`)
	locksOneRow = regexp.MustCompile(`WHERE (id = \$1|principal = \$1\s+AND key = \$2)\s+FOR (NO KEY )?UPDATE`)
	changesMany = regexp.MustCompile(`^\s*UPDATE[^;]*FROM unnest`)
)

// sharded is a statement as the engine takes it: where it refuses it, one that
// PostgreSQL refuses with the same SQLSTATE, 0A000.
func sharded(sql string, args []any) (string, []any) {
	manyKeys := false
	if strings.Contains(sql, "INSERT INTO idempotency_keys") {
		principals, ok := args[0].(pgtype.FlatArray[string])
		manyKeys = !ok || len(principals) > 1
	}
	if manyKeys || locks.MatchString(sql) && !locksOneRow.MatchString(sql) || changesMany.MatchString(sql) {
		return `SELECT count(*) FROM accounts FOR UPDATE`, nil
	}
	return sql, args
}

// Were this not so, the ways that lock each row alone would show nothing.
func TestALockOnSeveralRowsIsRefusedByAShardedEngine(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	low, high := l.openPair(t, "USD", "10")
	for _, w := range []way{grouped, {Mode: transfer.Pessimistic}} {
		_, _, err := w.service(shardedDB{l.db}, patient).Create(t.Context(), between(low, high, "1", "USD"))
		if retry.SQLState(err) != "0A000" {
			t.Errorf("%s: error = %v, want SQLSTATE 0A000", w, err)
		}
	}
	l.wantBalance(t, low, "10")
}

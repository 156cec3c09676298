package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

const selectMaxConnectionsSQL = `
	SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int`

// MaxConnections returns how many connections the server admits of everybody
// but superusers.
func MaxConnections(ctx context.Context, db retry.Beginner, policy retry.Policy) (int, error) {
	return retry.Tx(ctx, db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, policy, func(ctx context.Context, tx pgx.Tx) (n int, err error) {
		err = tx.QueryRow(ctx, selectMaxConnectionsSQL).Scan(&n)
		return n, err
	})
}

const selectEstimateSQL = `
	SELECT coalesce(max(reltuples), 0)::bigint
	  FROM pg_class
	 WHERE oid = to_regclass($1)`

// EstimatedRows returns about how many rows a table has, as the server last
// counted them; 0 or less where it has not.
func EstimatedRows(ctx context.Context, db retry.Beginner, policy retry.Policy, table string) (int64, error) {
	return retry.Tx(ctx, db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, policy, func(ctx context.Context, tx pgx.Tx) (n int64, err error) {
		err = tx.QueryRow(ctx, selectEstimateSQL, table).Scan(&n)
		return n, err
	})
}

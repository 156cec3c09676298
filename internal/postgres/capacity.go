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

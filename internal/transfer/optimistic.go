package transfer

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Optimistic locks nothing before it writes, and writes only where the version
// is the one it read.
var Optimistic = &Mode{
	Name:      "optimistic",
	Doc:       "UPDATE ... WHERE version = $n: no lock while it decides; whoever comes second starts again.",
	TxOptions: pgx.TxOptions{IsoLevel: pgx.ReadCommitted},
	move: func(ctx context.Context, tx pgx.Tx, b *pgx.Batch, _ Locking, ms []*move) (*pgx.Batch, error) {
		return readThenWrite(ctx, tx, b, ms)
	},
}

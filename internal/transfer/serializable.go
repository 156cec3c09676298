package transfer

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Serializable leaves it to the database to notice that two transactions could
// not have run one after the other.
var Serializable = &Mode{
	Name:      "serializable",
	Doc:       "ISOLATION LEVEL SERIALIZABLE: the database finds the conflicts (40001); the loser starts again.",
	TxOptions: pgx.TxOptions{IsoLevel: pgx.Serializable},
	move: func(ctx context.Context, tx pgx.Tx, b *pgx.Batch, _ Locking, ms []*move) (*pgx.Batch, error) {
		return readThenWrite(ctx, tx, b, ms)
	},
}

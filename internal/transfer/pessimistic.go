package transfer

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Pessimistic locks every row before it reads it. Two transfers between the
// same accounts in opposite directions lock in the same order, so neither can
// hold what the other waits for.
var Pessimistic = &Mode{
	Name:      "pessimistic",
	Doc:       "SELECT ... ORDER BY id FOR UPDATE: never a lost update, never a deadlock; waits in a queue.",
	TxOptions: pgx.TxOptions{IsoLevel: pgx.ReadCommitted},
	move: func(ctx context.Context, tx pgx.Tx, b *pgx.Batch, l Locking, ms []*move) error {
		return readThenWrite(ctx, tx, b, l.suffix(), ms)
	},
}

// readThenWrite reads the accounts, judges in memory, and writes what it
// judged if they are still the same: surely, where lock holds them.
func readThenWrite(ctx context.Context, tx pgx.Tx, b *pgx.Batch, lock string, ms []*move) error {
	read := queueRead(b, ms, lock)
	if err := send(ctx, tx, b, "read accounts"); err != nil {
		return err
	}
	ms = claimed(ms)
	for _, m := range ms {
		read.judge(m)
	}
	return read.writeUnchanged(ctx, tx, ms)
}

package transfer

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

// None reads a balance, computes the next one in Go and writes it, whatever
// happened in between. Two sessions that read the same balance lose one of the
// two updates. It is here to be measured against, and to show that the race
// suite can fail.
var None = &Mode{
	Name:       "none",
	Doc:        "Reads, computes, writes, and locks nothing: LOSES MONEY under concurrency; for comparison only.",
	TxOptions:  pgx.TxOptions{IsoLevel: pgx.ReadCommitted},
	LosesMoney: true,
	move: func(ctx context.Context, tx pgx.Tx, b *pgx.Batch, _ Locking, ms []*move) (*pgx.Batch, error) {
		read := queueRead(b, ms, "")
		if err := send(ctx, tx, b, "read accounts"); err != nil {
			return nil, err
		}
		ms = read.judgeAll(ms)
		b = &pgx.Batch{}
		read.queueWrite(b, overwriteBalanceSQL, func(a *balance, version int64, err error) error {
			if retry.SQLState(err) == "23514" { // the account was closed in between, which the table's CHECK sees
				return fmt.Errorf("%w: %w", retry.ErrConflict, err)
			}
			shift(ms, a, version)
			return err
		})
		if err := send(ctx, tx, b, "write balances"); err != nil {
			return nil, err
		}
		b = &pgx.Batch{}
		queueInserts(b, ms)
		return b, nil
	},
}

// The version is not compared: $5, what it was when it was read, is only named
// so that the statement takes the same parameters as the safe one.
const overwriteBalanceSQL = `
	UPDATE accounts
	   SET balance = $2,
	       version = version + $3,
	       last_entry_at = greatest(last_entry_at, $4)
	 WHERE id = $1
	   AND $5::bigint IS NOT NULL
	RETURNING version`

// shift moves the entries of a to where its version really was raised to: a
// balance may be lost in this mode, a place in the statement is not.
func shift(ms []*move, a *balance, version int64) {
	for _, m := range ms {
		switch a.id {
		case m.transfer.DebitAccountID:
			m.transfer.DebitVersion += version - a.version
		case m.transfer.CreditAccountID:
			m.transfer.CreditVersion += version - a.version
		}
	}
}

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
		read := queueRead(b, ms, nil)
		if err := send(ctx, tx, b, "read accounts"); err != nil {
			return nil, err
		}
		if err := read.judge(ctx, tx, ms); err != nil {
			return nil, err
		}
		b = &pgx.Batch{}
		read.queueChangedHolds(b)
		read.queueWrite(b, overwriteBalanceSQL, func(a *balance) []any {
			return []any{a.id, a.amount, a.held, a.entries, read.at}
		}, func(a *balance, version int64, err error) error {
			if retry.SQLState(err) == checkViolation { // the account was closed in between, which the table's CHECK sees
				return fmt.Errorf("%w: %w", retry.ErrConflict, err)
			}
			read.shift(a, version)
			return err
		})
		if err := send(ctx, tx, b, "write balances"); err != nil {
			return nil, err
		}
		b = &pgx.Batch{}
		read.queueInserts(b)
		return b, nil
	},
}

// Nothing is compared.
const overwriteBalanceSQL = `
	UPDATE accounts
	   SET balance = $2,
	       held = $3,
	       version = version + $4,
	       last_entry_at = greatest(last_entry_at, $5)
	 WHERE id = $1
	RETURNING version`

// shift moves the entries of a to where its version really was raised to: a
// balance may be lost in this mode, a place in the statement is not.
func (b *books) shift(a *balance, version int64) {
	for _, t := range b.transfers {
		switch a.id {
		case t.DebitAccountID:
			t.DebitVersion += version - a.version
		case t.CreditAccountID:
			t.CreditVersion += version - a.version
		}
	}
}

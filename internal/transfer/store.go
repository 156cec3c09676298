package transfer

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/rowlock/ledger/internal/retry"
)

const insertTransferSQL = `
	INSERT INTO transfers (id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	                       debit_balance_after, credit_balance_after, debit_version, credit_version, created_at,
	                       hold_id, reverses_transfer_id, batch_id, reference)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
	RETURNING tx_id`

// queueInserts queues the insertion of the transfers and holds that were made.
func (b *books) queueInserts(batch *pgx.Batch) {
	b.queueOpenedHolds(batch)
	for _, t := range b.transfers {
		batch.Queue(insertTransferSQL, t.ID, t.Kind, t.DebitAccountID, t.CreditAccountID, t.Amount, t.Currency,
			t.Description, t.Metadata, t.DebitBalanceAfter, t.CreditBalanceAfter, t.DebitVersion, t.CreditVersion, t.CreatedAt,
			zeronull.UUID(t.HoldID), zeronull.UUID(t.ReversesTransferID), zeronull.UUID(t.BatchID), zeronull.Text(t.Reference)).
			QueryRow(func(row pgx.Row) error {
				err := row.Scan(&t.TxID)
				if t.Reference != "" && retry.SQLState(err) == uniqueViolation { // somebody used it in between
					return fmt.Errorf("%w: %w", retry.ErrConflict, err)
				}
				return err
			})
	}
}

const uniqueViolation = "23505"

func scanTransfer(row pgx.CollectableRow) (t Transfer, err error) {
	err = row.Scan(&t.ID, &t.Kind, &t.DebitAccountID, &t.CreditAccountID, &t.Amount, &t.Currency, &t.Description, &t.Metadata,
		&t.DebitBalanceAfter, &t.CreditBalanceAfter, &t.DebitVersion, &t.CreditVersion, &t.CreatedAt, &t.TxID,
		(*zeronull.UUID)(&t.HoldID), (*zeronull.UUID)(&t.ReversesTransferID), (*zeronull.UUID)(&t.BatchID), (*zeronull.Text)(&t.Reference))
	t.CreatedAt = t.CreatedAt.UTC()
	return t, err
}

const selectTransferSQL = `
	SELECT id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	       debit_balance_after, credit_balance_after, debit_version, credit_version, created_at, tx_id,
	       hold_id, reverses_transfer_id, batch_id, reference
	  FROM transfers
	 WHERE id = $1`

func selectTransfer(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Transfer, error) {
	rows, _ := tx.Query(ctx, selectTransferSQL, id)
	t, err := pgx.CollectExactlyOneRow(rows, scanTransfer)
	if errors.Is(err, pgx.ErrNoRows) {
		return Transfer{}, ErrNotFound
	}
	if err != nil {
		return Transfer{}, fmt.Errorf("select transfer: %w", err)
	}
	return t, nil
}

package transfer

import (
	"context"
	"errors"
	"fmt"
	"math"

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

// Ascending, the list stops where a transaction is still under way: one that
// commits later may have a lower tx_id, and a reader that had gone past it
// would never see it.
const selectTransfersSQL = `
	SELECT id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	       debit_balance_after, credit_balance_after, debit_version, credit_version, created_at, tx_id,
	       hold_id, reverses_transfer_id, batch_id, reference
	  FROM transfers
	 WHERE (tx_id, id) > ($1, $2)
	   AND tx_id < pg_snapshot_xmin(pg_current_snapshot())
	 ORDER BY tx_id, id
	 LIMIT $3`

const selectTransfersDescendingSQL = `
	SELECT id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	       debit_balance_after, credit_balance_after, debit_version, credit_version, created_at, tx_id,
	       hold_id, reverses_transfer_id, batch_id, reference
	  FROM transfers
	 WHERE (tx_id, id) < ($1, $2)
	 ORDER BY tx_id DESC, id DESC
	 LIMIT $3`

const selectAccountTransfersSQL = `
	SELECT t.id, t.kind, t.debit_account_id, t.credit_account_id, t.amount, t.currency, t.description, t.metadata,
	       t.debit_balance_after, t.credit_balance_after, t.debit_version, t.credit_version, t.created_at, t.tx_id,
	       t.hold_id, t.reverses_transfer_id, t.batch_id, t.reference
	  FROM (SELECT transfer_id, version
	          FROM entries
	         WHERE account_id = $1
	           AND version > $2
	         ORDER BY version
	         LIMIT $3) e
	  JOIN transfers t ON t.id = e.transfer_id
	 ORDER BY e.version`

const selectAccountTransfersDescendingSQL = `
	SELECT t.id, t.kind, t.debit_account_id, t.credit_account_id, t.amount, t.currency, t.description, t.metadata,
	       t.debit_balance_after, t.credit_balance_after, t.debit_version, t.credit_version, t.created_at, t.tx_id,
	       t.hold_id, t.reverses_transfer_id, t.batch_id, t.reference
	  FROM (SELECT transfer_id, version
	          FROM entries
	         WHERE account_id = $1
	           AND version < $2
	         ORDER BY version DESC
	         LIMIT $3) e
	  JOIN transfers t ON t.id = e.transfer_id
	 ORDER BY e.version DESC`

func selectTransfers(ctx context.Context, tx pgx.Tx, f Filter) ([]Transfer, error) {
	sql, args := listSQL(f)
	rows, _ := tx.Query(ctx, sql, args...)
	transfers, err := pgx.CollectRows(rows, scanTransfer)
	if err != nil {
		return nil, fmt.Errorf("select transfers: %w", err)
	}
	return transfers, nil
}

// listSQL returns f's query. A list from the start has a position, too, the
// one before or behind all others: with an OR in its place, a generic plan
// would walk to every page from the start.
func listSQL(f Filter) (string, []any) {
	all, one := selectTransfersSQL, selectAccountTransfersSQL
	var after Position
	if f.Descending {
		all, one = selectTransfersDescendingSQL, selectAccountTransfersDescendingSQL
		after = Position{Version: math.MaxInt64, TxID: math.MaxUint64, ID: uuid.Max}
	}
	if f.After != nil {
		after = *f.After
	}
	if f.AccountID != uuid.Nil {
		return one, []any{f.AccountID, after.Version, f.Limit}
	}
	return all, []any{after.TxID, after.ID, f.Limit}
}

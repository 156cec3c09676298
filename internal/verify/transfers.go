package verify

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"
)

const countTransfersSQL = `
	SELECT count(*)
	  FROM transfers`

const selectStrayEntriesSQL = `
	SELECT e.transfer_id, e.account_id, e.amount, e.currency, coalesce(a.currency, '')
	  FROM entries e
	  LEFT JOIN accounts a ON a.id = e.account_id
	 WHERE a.id IS NULL
	    OR a.currency <> e.currency
	 ORDER BY e.transfer_id`

// checkTransfers stands in for the foreign keys that the hot table does
// without.
func checkTransfers(ctx context.Context, tx pgx.Tx, r *Report) error {
	if err := tx.QueryRow(ctx, countTransfersSQL).Scan(&r.Transfers); err != nil {
		return err
	}
	var transfer, account uuid.UUID
	var amount decimal.Decimal
	var currency, accountCurrency string
	return each(ctx, tx, selectStrayEntriesSQL, []any{&transfer, &account, &amount, &currency, &accountCurrency}, func() {
		f := Finding{AccountID: account, TransferID: transfer, Currency: currency, Amount: amount}
		if accountCurrency == "" {
			f.Kind = MissingAccount
			f.Detail = fmt.Sprintf("transfer %s of %s names account %s, which does not exist", transfer, signed(amount, currency), account)
		} else {
			f.Kind = CurrencyMismatch
			f.Detail = fmt.Sprintf("transfer %s of %s names account %s, which is in %s", transfer, signed(amount, currency), account, accountCurrency)
		}
		r.add(f)
	})
}

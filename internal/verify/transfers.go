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

const countKeysSQL = `
	SELECT count(*)
	  FROM idempotency_keys`

// A key with an answer is an account's. The second of two keys that name one
// transfer names it wrongly.
const selectKeysOffSQL = `
	SELECT principal, key, resource_id, refused
	  FROM (SELECT k.principal, k.key, k.resource_id, k.refusal IS NOT NULL AS refused, t.id IS NOT NULL AS made,
	               row_number() OVER (PARTITION BY k.resource_id ORDER BY k.created_at, k.principal, k.key) AS nth
	          FROM idempotency_keys k
	          LEFT JOIN transfers t ON t.id = k.resource_id
	         WHERE k.answer IS NULL) named
	 WHERE made = refused
	    OR nth > 1
	 ORDER BY principal, key`

// checkKeys looks for the effect that each key names, and for an effect where
// the answer was a refusal.
func checkKeys(ctx context.Context, tx pgx.Tx, r *Report) error {
	if err := tx.QueryRow(ctx, countKeysSQL).Scan(&r.Keys); err != nil {
		return err
	}
	var principal, key string
	var resource uuid.UUID
	var refused bool
	return each(ctx, tx, selectKeysOffSQL, []any{&principal, &key, &resource, &refused}, func() {
		f := Finding{Kind: KeyWithoutTransfer, TransferID: resource,
			Detail: fmt.Sprintf("idempotency key %q of principal %q names transfer %s, which does not exist or is another key's", key, principal, resource)}
		if refused {
			f.Kind = RefusedTransfer
			f.Detail = fmt.Sprintf("idempotency key %q of principal %q was refused, and its transfer %s exists", key, principal, resource)
		}
		r.add(f)
	})
}

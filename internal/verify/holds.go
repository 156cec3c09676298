package verify

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/money"
)

const countHoldsSQL = `
	SELECT count(*)
	  FROM holds`

// A hold that was captured has taken something; of one that was voided or has
// expired, something was released.
const selectHoldsOffSQL = `
	WITH captures AS (
	  SELECT hold_id, sum(amount) AS total
	    FROM transfers
	   WHERE hold_id IS NOT NULL
	   GROUP BY hold_id
	)
	SELECT id, debit_account_id, currency, status, amount, captured, total, ended_at IS NOT NULL, fits
	  FROM (SELECT h.id, h.debit_account_id, h.currency, h.status, h.amount, h.captured, coalesce(c.total, 0) AS total, h.ended_at,
	               coalesce(CASE h.status
	                        WHEN 'open' THEN h.ended_at IS NULL AND h.captured < h.amount
	                        WHEN 'captured' THEN h.ended_at IS NOT NULL AND h.captured > 0
	                        WHEN 'voided' THEN h.ended_at IS NOT NULL AND h.captured < h.amount
	                        WHEN 'expired' THEN h.ended_at >= h.expires_at AND h.captured < h.amount
	                        END, false) AS fits
	          FROM holds h
	          LEFT JOIN captures c ON c.hold_id = h.id) compared
	 WHERE captured <> total
	    OR NOT fits
	 ORDER BY id`

const selectStrayHoldsSQL = `
	SELECT h.id, s.account_id, h.amount, h.currency, coalesce(a.currency, '')
	  FROM holds h
	 CROSS JOIN LATERAL (VALUES (h.debit_account_id), (h.credit_account_id)) AS s (account_id)
	  LEFT JOIN accounts a ON a.id = s.account_id
	 WHERE a.id IS NULL
	    OR a.currency <> h.currency
	 ORDER BY h.id`

// checkHolds compares each hold with the transfers that captured it and with its
// own status, and looks up its accounts.
func checkHolds(ctx context.Context, tx pgx.Tx, r *Report) error {
	if err := tx.QueryRow(ctx, countHoldsSQL).Scan(&r.Holds); err != nil {
		return err
	}
	var id, account uuid.UUID
	var amount, captured, total decimal.Decimal
	var currency, status, accountCurrency string
	var ended, fits bool
	into := []any{&id, &account, &currency, &status, &amount, &captured, &total, &ended, &fits}
	err := each(ctx, tx, selectHoldsOffSQL, into, func() {
		f := Finding{AccountID: account, HoldID: id, Currency: currency}
		if !fits {
			f.Kind = HoldStatus
			f.Detail = fmt.Sprintf("hold %s is %s (ended: %v) with %s of %s captured", id, status, ended, money.Format(captured, currency), money.Format(amount, currency))
			r.add(f)
		}
		if off := captured.Sub(total); !off.IsZero() {
			f.Kind, f.Amount = HoldCaptured, off
			f.Detail = fmt.Sprintf("hold %s has %s captured where its captures add up to %s: off by %s", id,
				money.Format(captured, currency), money.Format(total, currency), signed(off, currency))
			r.add(f)
		}
	})
	if err != nil {
		return err
	}
	return each(ctx, tx, selectStrayHoldsSQL, []any{&id, &account, &amount, &currency, &accountCurrency}, func() {
		f := Finding{AccountID: account, HoldID: id, Currency: currency, Amount: amount}
		if accountCurrency == "" {
			f.Kind = MissingAccount
			f.Detail = fmt.Sprintf("hold %s of %s names account %s, which does not exist", id, signed(amount, currency), account)
		} else {
			f.Kind = CurrencyMismatch
			f.Detail = fmt.Sprintf("hold %s of %s names account %s, which is in %s", id, signed(amount, currency), account, accountCurrency)
		}
		r.add(f)
	})
}

const selectWrongCapturesSQL = `
	SELECT t.id, t.hold_id, t.debit_account_id, t.amount, t.currency, h.id IS NOT NULL
	  FROM transfers t
	  LEFT JOIN holds h ON h.id = t.hold_id
	 WHERE t.hold_id IS NOT NULL
	   AND (h.id IS NULL
	        OR (t.debit_account_id, t.credit_account_id, t.currency, t.kind)
	           <> (h.debit_account_id, h.credit_account_id, h.currency, h.kind))
	 ORDER BY t.id`

// checkCaptures compares each transfer that captures a hold with that hold.
func checkCaptures(ctx context.Context, tx pgx.Tx, r *Report) error {
	var id, hold, account uuid.UUID
	var amount decimal.Decimal
	var currency string
	var exists bool
	return each(ctx, tx, selectWrongCapturesSQL, []any{&id, &hold, &account, &amount, &currency, &exists}, func() {
		f := Finding{Kind: WrongCapture, AccountID: account, TransferID: id, HoldID: hold, Currency: currency, Amount: amount}
		f.Detail = fmt.Sprintf("transfer %s of %s captures hold %s, which does not exist", id, signed(amount, currency), hold)
		if exists {
			f.Detail = fmt.Sprintf("transfer %s of %s captures hold %s, which is for other accounts, of another kind or in another currency", id, signed(amount, currency), hold)
		}
		r.add(f)
	})
}

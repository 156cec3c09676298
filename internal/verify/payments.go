package verify

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const countPaymentsSQL = `
	SELECT count(*)
	  FROM payments`

const selectPaymentsOffSQL = `
	SELECT p.id, p.status, t.id IS NOT NULL
	  FROM payments p
	  LEFT JOIN transfers t ON t.id = p.id
	 WHERE (p.status = 'done') <> (t.id IS NOT NULL)
	    OR (t.debit_account_id, t.credit_account_id, t.amount, t.currency)
	       <> (p.debit_account_id, p.credit_account_id, p.amount, p.currency)
	 ORDER BY p.id`

// checkPayments compares each payment with the transfer that has its id.
func checkPayments(ctx context.Context, tx pgx.Tx, r *Report) error {
	if err := tx.QueryRow(ctx, countPaymentsSQL).Scan(&r.Payments); err != nil {
		return err
	}
	var id uuid.UUID
	var status string
	var made bool
	return each(ctx, tx, selectPaymentsOffSQL, []any{&id, &status, &made}, func() {
		f := Finding{Kind: PaymentNotMade, TransferID: id, Detail: fmt.Sprintf("payment %s is done, and there is no such transfer", id)}
		switch {
		case made && status != "done":
			f.Kind = PaymentNotDone
			f.Detail = fmt.Sprintf("payment %s is %s, and its transfer exists", id, status)
		case made:
			f.Detail = fmt.Sprintf("payment %s is done, and its transfer has other accounts or another amount", id)
		}
		r.add(f)
	})
}

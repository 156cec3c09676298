package verify

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/money"
	"github.com/rowlock/ledger/internal/transfer"
)

// What ties transfers to each other: reversals, batches and references. None of
// it is a foreign key.

const selectWrongReversalsSQL = `
	SELECT r.id, r.reverses_transfer_id, r.amount, r.currency,
	       CASE WHEN t.id IS NULL THEN 'does not exist'
	            WHEN t.reverses_transfer_id IS NOT NULL THEN 'is a reversal itself'
	            ELSE 'is not the opposite of it' END
	  FROM transfers r
	  LEFT JOIN transfers t ON t.id = r.reverses_transfer_id
	 WHERE r.reverses_transfer_id IS NOT NULL
	   AND (t.id IS NULL
	        OR t.reverses_transfer_id IS NOT NULL
	        OR (r.debit_account_id, r.credit_account_id, r.currency, r.kind)
	           <> (t.credit_account_id, t.debit_account_id, t.currency,
	               CASE t.kind WHEN 'debit' THEN 'credit' WHEN 'credit' THEN 'debit' ELSE t.kind END))
	 ORDER BY r.id`

const selectOverReversedSQL = `
	SELECT t.id, t.amount, t.currency, r.total
	  FROM (SELECT reverses_transfer_id, sum(amount) AS total
	          FROM transfers
	         WHERE reverses_transfer_id IS NOT NULL
	         GROUP BY reverses_transfer_id) r
	  JOIN transfers t ON t.id = r.reverses_transfer_id
	 WHERE r.total > t.amount
	 ORDER BY t.id`

// checkReversals compares each reversal with what it takes back, and all of one
// transfer with it.
func checkReversals(ctx context.Context, tx pgx.Tx, r *Report) error {
	var id, original uuid.UUID
	var amount, total decimal.Decimal
	var currency, why string
	err := each(ctx, tx, selectWrongReversalsSQL, []any{&id, &original, &amount, &currency, &why}, func() {
		r.add(Finding{Kind: WrongReversal, TransferID: id, Currency: currency, Amount: amount,
			Detail: fmt.Sprintf("transfer %s of %s reverses transfer %s, which %s", id, signed(amount, currency), original, why)})
	})
	if err != nil {
		return err
	}
	return each(ctx, tx, selectOverReversedSQL, []any{&id, &amount, &currency, &total}, func() {
		above := total.Sub(amount)
		r.add(Finding{Kind: OverReversed, TransferID: id, Currency: currency, Amount: above,
			Detail: fmt.Sprintf("transfer %s of %s has reversals of %s: off by %s", id,
				money.Format(amount, currency), money.Format(total, currency), signed(above, currency))})
	})
}

// The members of a batch follow its id and were made in one transaction. Only
// the lower half of an id counts; as numeric, since the difference of what is
// damaged may be out of any range.
const selectWrongMembersSQL = `
	SELECT id, batch_id, tx_id <> first_tx_id
	  FROM (SELECT id, batch_id, tx_id,
	               first_value(tx_id) OVER (PARTITION BY batch_id ORDER BY id) AS first_tx_id,
	               left(id::text, 18) = left(batch_id::text, 18) AS near,
	               ('x' || translate(right(id::text, 17), '-', ''))::bit(64)::bigint::numeric
	               - ('x' || translate(right(batch_id::text, 17), '-', ''))::bit(64)::bigint AS place
	          FROM transfers
	         WHERE batch_id IS NOT NULL) members
	 WHERE tx_id <> first_tx_id
	    OR NOT near
	    OR place NOT BETWEEN 1 AND $1
	 ORDER BY batch_id, id`

// checkBatches looks whether the members of each batch are where the key of the
// batch looks for them.
func checkBatches(ctx context.Context, tx pgx.Tx, r *Report) error {
	var id, batch uuid.UUID
	var apart bool
	return each(ctx, tx, selectWrongMembersSQL, []any{&id, &batch, &apart}, func() {
		f := Finding{Kind: WrongMember, TransferID: id, Detail: fmt.Sprintf("transfer %s has no id of a member of batch %s", id, batch)}
		if apart {
			f.Detail = fmt.Sprintf("transfer %s was not made in one transaction with the first member of batch %s", id, batch)
		}
		r.add(f)
	}, transfer.MaxBatch)
}

const selectDuplicateReferencesSQL = `
	SELECT account_id, reference, count(*)
	  FROM (SELECT CASE kind WHEN 'credit' THEN credit_account_id ELSE debit_account_id END AS account_id, reference
	          FROM transfers
	         WHERE reference IS NOT NULL) used
	 GROUP BY account_id, reference
	HAVING count(*) > 1
	 ORDER BY account_id, reference`

// An index that is built beside writers may end up there and not in force.
const isReferenceGuardedSQL = `
	SELECT count(*) = 1
	  FROM pg_index
	 WHERE indexrelid = to_regclass('transfers_reference')
	   AND indrelid = to_regclass('transfers')
	   AND indisunique
	   AND indisvalid`

// checkReferences looks whether each is used once, and whether that is guarded.
func checkReferences(ctx context.Context, tx pgx.Tx, r *Report) error {
	var account uuid.UUID
	var reference string
	var n int64
	err := each(ctx, tx, selectDuplicateReferencesSQL, []any{&account, &reference, &n}, func() {
		r.add(Finding{Kind: DuplicateReference, AccountID: account,
			Detail: fmt.Sprintf("account %s has %d transfers with the reference %q", account, n, reference)})
	})
	if err != nil {
		return err
	}
	var guarded bool
	if err := tx.QueryRow(ctx, isReferenceGuardedSQL).Scan(&guarded); err != nil {
		return err
	}
	if !guarded {
		r.add(Finding{Kind: ReferencesUnguarded, Detail: "the index transfers_reference is not there, not valid or not unique: references may be used twice"})
	}
	return nil
}

package payment

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const selectPaymentColumnsSQL = `
	SELECT id, status, debit_account_id, credit_account_id, amount, currency, description, metadata, priority, run_at,
	       attempts, max_attempts, failures, last_code, needs_approval, coalesce(approved_by, ''), approved_at, created_at, finished_at,
	       leased_until, lease_number
	  FROM payments`

const returningPaymentSQL = `
	RETURNING id, status, debit_account_id, credit_account_id, amount, currency, description, metadata, priority, run_at,
	          attempts, max_attempts, failures, last_code, needs_approval, coalesce(approved_by, ''), approved_at, created_at, finished_at,
	          leased_until, lease_number`

func scanPayment(row pgx.CollectableRow) (p Payment, err error) {
	err = row.Scan(&p.ID, &p.Status, &p.DebitAccountID, &p.CreditAccountID, &p.Amount, &p.Currency, &p.Description, &p.Metadata,
		&p.Priority, &p.RunAt, &p.Attempts, &p.MaxAttempts, &p.Failures, &p.LastCode, &p.NeedsApproval, &p.ApprovedBy, &p.ApprovedAt,
		&p.CreatedAt, &p.FinishedAt, &p.LeasedUntil, &p.leaseNumber)
	p.RunAt, p.CreatedAt = p.RunAt.UTC(), p.CreatedAt.UTC()
	return p, err
}

func exactlyOne(rows pgx.Rows, doing string) (Payment, error) {
	p, err := pgx.CollectExactlyOneRow(rows, scanPayment)
	if errors.Is(err, pgx.ErrNoRows) {
		return Payment{}, ErrNotFound
	}
	if err != nil {
		return Payment{}, fmt.Errorf("%s: %w", doing, err)
	}
	return p, nil
}

// What is due now is in the queue at once; the rest is put there by
// [Workers.Run] when its time has come.
const insertPaymentSQL = `
	INSERT INTO payments (id, debit_account_id, credit_account_id, amount, currency, description, metadata,
	                      priority, max_attempts, needs_approval, run_at, status, queued_at)
	SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $11, run_at, status, CASE status WHEN 'queued' THEN now END
	  FROM (SELECT clock_timestamp()) AS clock (now)
	 CROSS JOIN LATERAL (SELECT coalesce($10, now)) AS due (run_at)
	 CROSS JOIN LATERAL (SELECT CASE WHEN $11 THEN 'awaiting_approval' WHEN run_at > now THEN 'scheduled' ELSE 'queued' END) AS begins (status)` + returningPaymentSQL

func insertPayment(ctx context.Context, tx pgx.Tx, id uuid.UUID, c Command) (Payment, error) {
	var runAt any
	if !c.RunAt.IsZero() {
		runAt = c.RunAt
	}
	rows, _ := tx.Query(ctx, insertPaymentSQL, id, c.DebitAccountID, c.CreditAccountID, c.Amount, c.Currency, c.Description, c.Metadata,
		c.Priority, c.MaxAttempts, runAt, c.NeedsApproval)
	return exactlyOne(rows, "insert payment")
}

const selectPaymentSQL = selectPaymentColumnsSQL + `
	 WHERE id = $1`

func selectPayment(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Payment, error) {
	rows, _ := tx.Query(ctx, selectPaymentSQL, id)
	return exactlyOne(rows, "select payment")
}

// The lock waits for a worker that is just making the payment, so that what is
// judged is what became of it.
func lockPayment(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Payment, error) {
	rows, _ := tx.Query(ctx, selectPaymentSQL+" FOR UPDATE", id)
	return exactlyOne(rows, "lock payment")
}

const updateApprovedSQL = `
	UPDATE payments
	   SET status = CASE WHEN run_at > now() THEN 'scheduled' ELSE 'queued' END,
	       queued_at = CASE WHEN run_at > now() THEN NULL ELSE clock_timestamp() END,
	       approved_by = $2,
	       approved_at = clock_timestamp()
	 WHERE id = $1` + returningPaymentSQL

func updateApproved(ctx context.Context, tx pgx.Tx, id uuid.UUID, principal string) (Payment, error) {
	rows, _ := tx.Query(ctx, updateApprovedSQL, id, principal)
	return exactlyOne(rows, "approve payment")
}

const updateCanceledSQL = `
	UPDATE payments
	   SET status = 'canceled',
	       queued_at = NULL,
	       finished_at = clock_timestamp()
	 WHERE id = $1` + returningPaymentSQL

func updateCanceled(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Payment, error) {
	rows, _ := tx.Query(ctx, updateCanceledSQL, id)
	return exactlyOne(rows, "cancel payment")
}

const updateRetriedSQL = `
	UPDATE payments
	   SET status = 'queued',
	       queued_at = clock_timestamp(),
	       run_at = clock_timestamp(),
	       finished_at = NULL,
	       attempts = 0,
	       failures = '[]',
	       last_code = ''
	 WHERE id = $1` + returningPaymentSQL

func updateRetried(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Payment, error) {
	rows, _ := tx.Query(ctx, updateRetriedSQL, id)
	return exactlyOne(rows, "retry payment")
}

const selectPaymentsSQL = selectPaymentColumnsSQL + `
	 WHERE id < $1
	 ORDER BY id DESC
	 LIMIT $2`

const selectPaymentsByStatusSQL = selectPaymentColumnsSQL + `
	 WHERE id < $1
	   AND status = $3
	 ORDER BY id DESC
	 LIMIT $2`

// Both sides are pages of their own, so that each walks its index; an OR of
// both would sort all of an account's payments.
const selectAccountPaymentsSQL = selectPaymentColumnsSQL + `
	 WHERE id IN ((SELECT id FROM payments WHERE debit_account_id = $4 AND id < $1 AND ($3 = '' OR status = $3) ORDER BY id DESC LIMIT $2)
	               UNION ALL
	              (SELECT id FROM payments WHERE credit_account_id = $4 AND id < $1 AND ($3 = '' OR status = $3) ORDER BY id DESC LIMIT $2))
	 ORDER BY id DESC
	 LIMIT $2`

func selectPayments(ctx context.Context, tx pgx.Tx, f Filter) ([]Payment, error) {
	before := f.Before
	if before == uuid.Nil {
		before = uuid.Max
	}
	sql, args := selectPaymentsSQL, []any{before, f.Limit}
	switch {
	case f.AccountID != uuid.Nil:
		sql, args = selectAccountPaymentsSQL, append(args, f.Status, f.AccountID)
	case f.Status != "":
		sql, args = selectPaymentsByStatusSQL, append(args, f.Status)
	}
	rows, _ := tx.Query(ctx, sql, args...)
	payments, err := pgx.CollectRows(rows, scanPayment)
	if err != nil {
		return nil, fmt.Errorf("select payments: %w", err)
	}
	return payments, nil
}

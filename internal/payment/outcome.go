package payment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// An outcome is what becomes of a payment with the end of an attempt.
type outcome struct {
	id       uuid.UUID
	status   string
	attempts int
	code     string // of the problem; "" for none
	detail   string
	counts   bool          // as a failure
	pause    time.Duration // before the next attempt, where status is Scheduled
}

// A Pause bounds the time between two attempts of one payment. It doubles with
// each failure.
type Pause struct{ Min, Max time.Duration }

// after is the pause after that many failures, between half of the bound and
// all of it.
func (p Pause) after(failures int) time.Duration {
	bound := p.Min
	for range failures - 1 {
		if bound > p.Max/2 {
			bound = p.Max
			break
		}
		bound *= 2
	}
	return jitter(min(bound, p.Max))
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// failed ends an attempt that counts: another one follows, unless it was the
// last one.
func (p Payment) failed(code, detail string, pause Pause) outcome {
	o := outcome{id: p.ID, status: Scheduled, attempts: p.Attempts, code: code, detail: detail, counts: true, pause: pause.after(p.Attempts)}
	if p.Attempts >= p.MaxAttempts {
		o.status = Failed
	}
	return o
}

// abandoned is [Payment.failed] where no attempt can do better.
func (p Payment) abandoned(code, detail string) outcome {
	return outcome{id: p.ID, status: Failed, attempts: p.Attempts, code: code, detail: detail, counts: true}
}

// postponed ends an attempt that does not count.
func (p Payment) postponed(code string, pause time.Duration) outcome {
	return outcome{id: p.ID, status: Scheduled, attempts: p.Attempts - 1, code: code, pause: pause}
}

// released gives p back as if its attempt had not begun.
func (p Payment) released() outcome {
	return outcome{id: p.ID, status: Queued, attempts: p.Attempts - 1, code: p.LastCode}
}

// moved is what became of p's transfer.
func (p Payment) moved(o transfer.Outcome, pause Pause) outcome {
	var refusal *transfer.Refusal
	switch {
	case o.Refusal == nil:
		return outcome{id: p.ID, status: Done, attempts: p.Attempts}
	case !errors.As(o.Refusal, &refusal):
		return p.failed(CodeInternal, o.Refusal.Error(), pause)
	case errors.Is(refusal, transfer.ErrAccountClosed), errors.Is(refusal, transfer.ErrCurrencyMismatch):
		return p.abandoned(refusal.Code, refusal.Error()) // accounts stay closed, and in their currency
	}
	return p.failed(refusal.Code, refusal.Error(), pause)
}

// makeAll makes payments that tx has locked, and stores what became of them.
func makeAll(ctx context.Context, tx pgx.Tx, payments []Payment, pause Pause) (outcomes []outcome, err error) {
	if len(payments) == 0 {
		return nil, nil
	}
	defer func() {
		if r := recover(); r != nil { // it must not end the process: one payment may be the cause
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	moved, err := transfer.Move(ctx, tx, orders(payments))
	if err != nil {
		return nil, err
	}
	for i, p := range payments {
		outcomes = append(outcomes, p.moved(moved[i], pause))
	}
	return outcomes, updateOutcomes(ctx, tx, outcomes)
}

func orders(payments []Payment) []transfer.Order {
	orders := make([]transfer.Order, len(payments))
	for i, p := range payments {
		orders[i] = p.order()
	}
	return orders
}

// All rows are locked by this transaction, so their order does not matter.
const updateOutcomesSQL = `
	UPDATE payments p
	   SET status = o.status,
	       attempts = o.attempts,
	       last_code = o.code,
	       run_at = CASE o.status WHEN 'scheduled' THEN clock_timestamp() + o.pause * interval '1 microsecond' ELSE p.run_at END,
	       queued_at = CASE o.status WHEN 'queued' THEN clock_timestamp() END,
	       finished_at = CASE WHEN o.status IN ('done', 'failed') THEN clock_timestamp() END,
	       leased_by = NULL,
	       leased_until = NULL,
	       failures = CASE WHEN o.counts
	                       THEN p.failures || jsonb_build_object('attempt', o.attempts, 'code', o.code, 'detail', o.detail, 'at', clock_timestamp())
	                       ELSE p.failures END
	  FROM unnest($1::uuid[], $2::text[], $3::smallint[], $4::text[], $5::text[], $6::boolean[], $7::bigint[])
	    AS o (id, status, attempts, code, detail, counts, pause)
	 WHERE p.id = o.id`

// updateOutcomes stores outcomes of payments that tx has locked.
func updateOutcomes(ctx context.Context, tx pgx.Tx, outcomes []outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	n := len(outcomes)
	ids, statuses, attempts, codes := make([]uuid.UUID, n), make([]string, n), make([]int16, n), make([]string, n)
	details, counts, pauses := make([]string, n), make([]bool, n), make([]int64, n)
	for i, o := range outcomes {
		ids[i], statuses[i], attempts[i], codes[i] = o.id, o.status, int16(o.attempts), o.code
		details[i], counts[i], pauses[i] = o.detail, o.counts, o.pause.Microseconds()
	}
	tag, err := tx.Exec(ctx, updateOutcomesSQL, ids, statuses, attempts, codes, details, counts, pauses)
	if err != nil {
		return fmt.Errorf("store what became of payments: %w", err)
	}
	if got := tag.RowsAffected(); got != int64(n) {
		return fmt.Errorf("%d of %d payments were written, though all were held", got, n)
	}
	return nil
}

// uncountedCode returns the code of an attempt that err has ended for a reason
// that is no fault of the payment's.
func uncountedCode(err error) (code string, ok bool) {
	var exhausted *retry.ExhaustedError
	switch {
	case errors.Is(err, retry.ErrLockUnavailable):
		return CodeLockUnavailable, true
	case errors.Is(err, retry.ErrUnavailable):
		return CodeUnavailable, true
	case errors.As(err, &exhausted):
		return CodeContention, true
	}
	return "", false
}

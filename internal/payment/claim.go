package payment

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// The queue is ten queues, one a priority, each in the order of queued_at. Which
// is first is decided by the age of their heads, where each step of priority is
// worth a minute: old payments of low priority are served under any stream of
// urgent ones. A lateral join runs the queues one after the other and stops when
// it has enough, so the claim locks no more than it takes, and what other
// workers hold it goes around. MATERIALIZED: the plan must not be able to run the
// claim twice, and so take more than the limit.
//
// A floor is a time before which a queue has nothing: see [floors]. $4 are
// accounts that this worker leaves alone for a while: see [worker.avoid].
const claimPaymentsSQL = `
	WITH heads AS MATERIALIZED (
	  SELECT queue.priority, head.queued_at
	    FROM unnest($1::smallint[], $2::timestamptz[]) AS queue (priority, floor)
	   CROSS JOIN LATERAL (SELECT queued_at
	                         FROM payments
	                        WHERE status = 'queued'
	                          AND priority = queue.priority
	                          AND queued_at >= queue.floor
	                        ORDER BY queued_at
	                        LIMIT 1) AS head
	   ORDER BY head.queued_at - queue.priority * interval '1 minute'
	), claimed AS MATERIALIZED (
	  SELECT p.id, p.status, p.debit_account_id, p.credit_account_id, p.amount, p.currency, p.description, p.metadata, p.priority, p.run_at,
	         p.attempts, p.max_attempts, p.failures, p.last_code, p.needs_approval, p.approved_by, p.approved_at, p.created_at, p.finished_at,
	         p.leased_until, p.lease_number
	    FROM heads
	   CROSS JOIN LATERAL (SELECT id, status, debit_account_id, credit_account_id, amount, currency, description, metadata, priority, run_at,
	                              attempts, max_attempts, failures, last_code, needs_approval, approved_by, approved_at, created_at, finished_at,
	                              leased_until, lease_number
	                         FROM payments
	                        WHERE status = 'queued'
	                          AND priority = heads.priority
	                          AND queued_at >= heads.queued_at
	                          AND debit_account_id <> ALL ($4::uuid[])
	                          AND credit_account_id <> ALL ($4::uuid[])
	                        ORDER BY queued_at, id
	                        LIMIT $3
	                          FOR UPDATE SKIP LOCKED) AS p
	   LIMIT $3
	)`

const claimQueuedSQL = claimPaymentsSQL + `
	SELECT id, status, debit_account_id, credit_account_id, amount, currency, description, metadata, priority, run_at,
	       attempts, max_attempts, failures, last_code, needs_approval, coalesce(approved_by, ''), approved_at, created_at, finished_at,
	       leased_until, lease_number
	  FROM claimed`

// claimQueued locks up to limit payments of the queue for tx, the most urgent
// first, and none of the accounts in without. Fewer is normal.
func claimQueued(ctx context.Context, tx pgx.Tx, f *floors, limit int, without []uuid.UUID) (claimed []Payment, err error) {
	priorities, times := f.read()
	b := &pgx.Batch{} // in which BEGIN travels, too
	b.Queue(claimQueuedSQL, priorities, times, limit, array(without)).Query(func(rows pgx.Rows) (err error) {
		claimed, err = begun(rows, limit)
		return err
	})
	return claimed, tx.SendBatch(ctx, b).Close()
}

// array is ids as a parameter; nil would be NULL, which nothing is unlike.
func array(ids []uuid.UUID) []uuid.UUID { return append([]uuid.UUID{}, ids...) }

const lockQueuedSQL = selectPaymentColumnsSQL + `
	 WHERE id = $1
	   AND status = 'queued'
	   FOR UPDATE SKIP LOCKED`

// lockQueued locks one payment, if it is still in the queue and no other worker
// has it.
func lockQueued(ctx context.Context, tx pgx.Tx, id uuid.UUID) ([]Payment, error) {
	rows, _ := tx.Query(ctx, lockQueuedSQL, id)
	return begun(rows, 1)
}

// begun collects payments whose next attempt has begun.
func begun(rows pgx.Rows, limit int) ([]Payment, error) {
	payments, err := pgx.CollectRows(rows, scanPayment)
	if err != nil {
		return nil, fmt.Errorf("claim payments: %w", err)
	}
	if len(payments) > limit {
		return nil, fmt.Errorf("%d payments were claimed, where %d at most were asked for", len(payments), limit)
	}
	for i := range payments {
		payments[i].Attempts++
	}
	return payments, nil
}

// floors are, for each priority, a time before which nothing is queued. A claim
// begins its walk through the index there: what is finished remains in the index
// until it is vacuumed, and while a long transaction somewhere holds vacuum
// back, every claim would walk over all of it.
//
// What is queued has the time at which it was queued, so nothing is put in far
// below now; and what a slow commit puts in there none the less is found by a
// look from the start every now and then.
type floors struct {
	raising sync.Mutex // or an older look could undo a newer one
	mu      sync.Mutex
	times   [MaxPriority + 1]time.Time
}

// floorMargin is how long a commit may take without delaying its payments until
// the next look from the start.
const floorMargin = 500 * time.Millisecond

func (f *floors) read() (priorities []int16, times []time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, t := range f.times {
		priorities, times = append(priorities, int16(p)), append(times, t)
	}
	return priorities, times
}

const selectHeadsSQL = `
	SELECT queue.priority, clock.now, head.queued_at
	  FROM (SELECT clock_timestamp()) AS clock (now)
	 CROSS JOIN unnest($1::smallint[], $2::timestamptz[]) AS queue (priority, floor)
	  LEFT JOIN LATERAL (SELECT queued_at
	                       FROM payments
	                      WHERE status = 'queued'
	                        AND priority = queue.priority
	                        AND queued_at >= queue.floor
	                      ORDER BY queued_at
	                      LIMIT 1) AS head ON true`

// raise looks where each queue begins, from the start or from the floors, and
// returns for how long the payment that has waited longest is due.
func (f *floors) raise(ctx context.Context, tx pgx.Tx, fromStart bool) (oldest time.Duration, err error) {
	f.raising.Lock()
	defer f.raising.Unlock()
	priorities, times := f.read()
	if fromStart {
		clear(times)
	}
	rows, _ := tx.Query(ctx, selectHeadsSQL, priorities, times)
	var priority int16
	var now time.Time
	var head *time.Time
	var found [MaxPriority + 1]time.Time
	_, err = pgx.ForEachRow(rows, []any{&priority, &now, &head}, func() error {
		begins := now
		if head != nil {
			begins = *head
			oldest = max(oldest, now.Sub(begins))
		}
		found[priority] = begins.Add(-floorMargin)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("look at the queue: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.times = found
	return oldest, nil
}

package payment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

// Long work: a payment is leased in one short transaction, worked on outside of
// any, and made in another one where the lease is still the same. The number of
// the lease is the fence: whoever was given the payment later has a higher one.
// All times are the database's; here there are only durations.

// errLeaseLost ends the work on a payment that may be another worker's by now.
var errLeaseLost = errors.New("the lease was lost")

// A lease is this process's hold on a payment.
type lease struct {
	Payment
	holder string
	end    context.CancelCauseFunc // of the work
	watch  *time.Timer             // ends the work before the lease ends
}

const leaseQueuedSQL = claimPaymentsSQL + `
	UPDATE payments p
	   SET status = 'processing',
	       queued_at = NULL,
	       attempts = p.attempts + 1,
	       lease_number = p.lease_number + 1,
	       leased_by = $5,
	       leased_until = clock_timestamp() + $6 * interval '1 microsecond'
	  FROM claimed c
	 WHERE p.id = c.id
	RETURNING p.id, p.status, p.debit_account_id, p.credit_account_id, p.amount, p.currency, p.description, p.metadata, p.priority, p.run_at,
	          p.attempts, p.max_attempts, p.failures, p.last_code, p.needs_approval, coalesce(p.approved_by, ''), p.approved_at, p.created_at, p.finished_at,
	          p.leased_until, p.lease_number`

// A worker has one lease at a time, so what is leased by it is what a commit
// without an answer has leased. (Or what it could not give back, which will end.)
const adoptLeaseSQL = `
	UPDATE payments
	   SET leased_until = clock_timestamp() + $2 * interval '1 microsecond'
	 WHERE status = 'processing'
	   AND leased_by = $1` + returningPaymentSQL

// leaseOne leases the payment that is most urgent, and returns none where there
// is none. Its attempt is counted with the lease, so that a payment
// which kills its worker runs out of attempts.
func (w *worker) leaseOne(ctx context.Context) ([]Payment, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	return retry.UntilKnown(ctx, w.policy, func(again bool) ([]Payment, error) {
		return retry.Tx(ctx, w.db, readWrite, w.policy, func(ctx context.Context, tx pgx.Tx) ([]Payment, error) {
			if again {
				rows, _ := tx.Query(ctx, adoptLeaseSQL, w.holder, w.Lease.Microseconds())
				adopted, err := pgx.CollectRows(rows, scanPayment)
				if err != nil || len(adopted) > 0 {
					return adopted, err
				}
			}
			defer w.timeClaim()()
			priorities, times := w.floors.read()
			rows, _ := tx.Query(ctx, leaseQueuedSQL, priorities, times, 1, array(nil), w.holder, w.Lease.Microseconds())
			leased, err := pgx.CollectRows(rows, scanPayment)
			if err != nil {
				return nil, fmt.Errorf("lease a payment: %w", err)
			}
			return leased, nil
		})
	})
}

// makeLeased leases one payment, asks whether it may be made, and does what the
// answer says. stop ends the work early and gives the payment back; ctx is for
// what the database is told in any case.
func (w *worker) makeLeased(ctx, stop context.Context) (n int, err error) {
	began := time.Now() // the database's lease begins later, and so ends later
	leased, err := w.leaseOne(ctx)
	if err != nil || len(leased) == 0 {
		return 0, err
	}
	work, end := context.WithCancelCause(stop)
	defer end(nil)
	l := &lease{Payment: leased[0], holder: w.holder, end: end}
	w.leases.add(l, w.patience()-time.Since(began))
	defer w.leases.remove(l)

	decision, err := w.Decide(work, l.Payment)
	switch {
	case errors.Is(context.Cause(work), errLeaseLost):
		return 1, w.finish(ctx, l, l.postponed(CodeUnavailable, w.patiently(l)))
	case stop.Err() != nil:
		return 1, w.finish(ctx, l, l.released())
	case err != nil:
		w.OnError(fmt.Errorf("ask about payment %s: %w", l.ID, err))
		return 1, w.finish(ctx, l, l.postponed(CodeHookUnavailable, w.patiently(l)))
	}
	switch decision.Verdict {
	case Allow:
		return 1, w.makeAllowed(ctx, l)
	case Deny:
		return 1, w.finish(ctx, l, l.abandoned(CodeDenied, decision.Reason))
	case Later:
		return 1, w.finish(ctx, l, l.postponed(CodeLater, max(decision.After, jitter(w.Pause.Min))))
	}
	panic(fmt.Sprintf("Decide returned the verdict %d", decision.Verdict))
}

// patience is how long the work may go on after the lease was last prolonged.
func (w *Workers) patience() time.Duration { return w.Lease * 3 / 4 }

// patiently is the pause after an attempt that does not count. It grows with the
// leases that the payment had, though not for long, so that what is never
// answered does not keep the workers from the rest.
func (w *worker) patiently(l *lease) time.Duration {
	return w.Pause.after(int(min(l.leaseNumber, steadyLeases)))
}

// steadyLeases is after how many leases that pause stays as it is: at 32 times
// the least one.
const steadyLeases = 6

// makeAllowed makes a leased payment. An attempt that ended in a conflict, or
// for want of the database, is given back.
func (w *worker) makeAllowed(ctx context.Context, l *lease) error {
	err := w.whileHeld(ctx, l, func(ctx context.Context, tx pgx.Tx, p Payment) ([]outcome, error) {
		return makeAll(ctx, tx, []Payment{p}, w.Pause)
	})
	if err == nil || errors.Is(err, retry.ErrCommitUnknown) {
		return err
	}
	w.OnError(fmt.Errorf("make payment %s: %w", l.ID, err))
	if code, ok := uncountedCode(err); ok {
		return w.finish(ctx, l, l.postponed(code, w.patiently(l)))
	}
	return w.finish(ctx, l, l.failed(CodeInternal, internalDetail, w.Pause))
}

// finish stores what became of a payment that was not made. While the database
// is away it insists: left alone, the lease would end and count as an attempt.
// The fence makes that safe, however late it comes.
func (w *worker) finish(ctx context.Context, l *lease, o outcome) error {
	until := time.Now().Add(w.Lease)
	for {
		err := w.whileHeld(ctx, l, func(ctx context.Context, tx pgx.Tx, _ Payment) ([]outcome, error) {
			return []outcome{o}, updateOutcomes(ctx, tx, []outcome{o})
		})
		if err == nil || time.Now().After(until) {
			return err
		}
		w.report(fmt.Errorf("give payment %s back: %w", l.ID, err))
		sleep(ctx, jitter(w.Poll))
	}
}

const lockLeasedSQL = selectPaymentColumnsSQL + `
	 WHERE id = $1
	   AND status = 'processing'
	   AND leased_by = $2
	   AND lease_number = $3
	   FOR UPDATE`

// whileHeld runs fn in a transaction that holds the payment's row, if its lease
// is still l. An attempt whose commit went unanswered is made again: what it
// has done it finds done, for the lease is then over.
func (w *worker) whileHeld(ctx context.Context, l *lease, fn func(context.Context, pgx.Tx, Payment) ([]outcome, error)) error {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	lost := false
	outcomes, err := retry.UntilKnown(ctx, w.policy, func(again bool) ([]outcome, error) {
		return retry.Tx(ctx, w.db, readWrite, w.policy, func(ctx context.Context, tx pgx.Tx) ([]outcome, error) {
			rows, _ := tx.Query(ctx, lockLeasedSQL, l.ID, l.holder, l.leaseNumber)
			p, err := exactlyOne(rows, "lock leased payment")
			if lost = errors.Is(err, ErrNotFound) && !again; errors.Is(err, ErrNotFound) {
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
			return fn(ctx, tx, p)
		})
	})
	w.tell(outcomes)
	if err == nil && lost {
		w.OnLeaseLost()
	}
	return err
}

// leases are those of one process. One heartbeat prolongs all of them.
type leases struct {
	mu   sync.Mutex
	held map[uuid.UUID]*lease
}

// add keeps l, and ends its work after patience unless it is prolonged.
func (ls *leases) add(l *lease, patience time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.watch = time.AfterFunc(patience, func() { l.end(errLeaseLost) })
	ls.held[l.ID] = l
}

func (ls *leases) remove(l *lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.watch.Stop()
	if ls.held[l.ID] == l { // else a later lease of the same payment has taken its place
		delete(ls.held, l.ID)
	}
}

func (ls *leases) all() (all []*lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.held {
		all = append(all, l)
	}
	return all
}

// judge gives the work on the leases that were prolonged their patience again,
// and ends that on those of asked that are no longer ours.
func (ls *leases) judge(asked []*lease, prolonged, ours map[uuid.UUID]bool, patience time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range asked {
		switch {
		case prolonged[l.ID]:
			if l.watch.Stop() { // else its time was up already
				l.watch.Reset(patience)
			}
		case !ours[l.ID] && ls.held[l.ID] == l: // else it has finished meanwhile
			l.end(errLeaseLost)
		}
	}
}

// SKIP LOCKED: the row of a payment that is just being made is locked, maybe for
// as long as its accounts are, and the other leases must not wait for it.
const prolongLeasesSQL = `
	WITH ours AS MATERIALIZED (
	  SELECT p.id
	    FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS lease (id, holder, number)
	    JOIN payments p
	      ON p.id = lease.id
	     AND p.status = 'processing'
	     AND p.leased_by = lease.holder
	     AND p.lease_number = lease.number
	   ORDER BY p.id
	     FOR UPDATE OF p SKIP LOCKED
	)
	UPDATE payments p
	   SET leased_until = clock_timestamp() + $4 * interval '1 microsecond'
	  FROM ours
	 WHERE p.id = ours.id
	RETURNING p.id`

const selectOursSQL = `
	SELECT p.id
	  FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS lease (id, holder, number)
	  JOIN payments p
	    ON p.id = lease.id
	   AND p.status = 'processing'
	   AND p.leased_by = lease.holder
	   AND p.lease_number = lease.number`

// beat prolongs all leases of this process. It takes no longer than a quarter of
// a lease, so that another one can come in time.
func (w *Workers) beat(ctx context.Context) error {
	asked := w.leases.all()
	if len(asked) == 0 {
		return nil
	}
	var ids []uuid.UUID
	var holders []string
	var numbers []int64
	for _, l := range asked {
		ids, holders, numbers = append(ids, l.ID), append(holders, l.holder), append(numbers, l.leaseNumber)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, w.Lease/4)
	defer cancel()
	type answer struct{ prolonged, ours map[uuid.UUID]bool }
	a, err := retry.Tx(ctx, w.beats, readWrite, w.policy, func(ctx context.Context, tx pgx.Tx) (a answer, err error) {
		rows, _ := tx.Query(ctx, prolongLeasesSQL, ids, holders, numbers, w.Lease.Microseconds())
		if a.prolonged, err = collectSet(rows); err != nil {
			return a, err
		}
		rows, _ = tx.Query(ctx, selectOursSQL, ids, holders, numbers)
		a.ours, err = collectSet(rows)
		return a, err
	})
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err) // the next one may still come in time
	}
	w.leases.judge(asked, a.prolonged, a.ours, w.patience()-time.Since(began))
	return nil
}

func collectSet(rows pgx.Rows) (map[uuid.UUID]bool, error) {
	set := map[uuid.UUID]bool{}
	var id uuid.UUID
	_, err := pgx.ForEachRow(rows, []any{&id}, func() error { set[id] = true; return nil })
	return set, err
}

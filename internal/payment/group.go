package payment

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// Short work: claim, make and mark in one transaction. Whatever ends it early
// rolls all of it back, so there is nothing to clean up after a crash.

// makeGroup makes the payments that are most urgent, and returns for how many
// something was done.
func (w *Workers) makeGroup(ctx context.Context) (n int, err error) {
	var claimed []Payment
	outcomes, err := retry.Tx(ctx, w.db, readWrite, w.groupPolicy(), func(ctx context.Context, tx pgx.Tx) (_ []outcome, err error) {
		if claimed, err = w.claim(ctx, tx); err != nil {
			return nil, err
		}
		return makeAll(ctx, tx, claimed, w.Pause)
	})
	if err == nil {
		w.tell(outcomes)
		return len(outcomes), nil
	}
	return w.afterFailure(ctx, claimed, err)
}

func (w *Workers) claim(ctx context.Context, tx pgx.Tx) ([]Payment, error) {
	defer w.timeClaim()()
	return claimQueued(ctx, tx, &w.floors, w.Group)
}

// groupPolicy waits only briefly for a lock, since a group holds others
// meanwhile.
func (w *Workers) groupPolicy() retry.Policy {
	policy := w.policy
	policy.LockTimeout = w.LockWait
	policy.GenericPlans = true
	return policy
}

// afterFailure goes on with payments whose transaction err has ended: it was
// rolled back, so they are in the queue. A fault that may be one payment's
// becomes that one's alone.
func (w *Workers) afterFailure(ctx context.Context, claimed []Payment, err error) (n int, _ error) {
	_, uncounted := uncountedCode(err)
	switch {
	case len(claimed) == 0, errors.Is(err, retry.ErrCommitUnknown): // either way, no payment can be made twice
		return 0, err
	case errors.Is(err, retry.ErrLockUnavailable), retry.SQLState(err) == queryCanceled: // one long wait, or many short ones
		return w.postponeBusy(ctx, claimed)
	case uncounted:
		return 0, err
	case len(claimed) == 1:
		w.OnError(err)
		return 1, w.countFailure(ctx, claimed[0])
	}
	for _, p := range claimed {
		if err := w.makeApart(ctx, p); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// queryCanceled is the SQLSTATE of a statement that took too long.
const queryCanceled = "57014"

// makeApart makes one payment of a group that failed, if it is still there.
func (w *Workers) makeApart(ctx context.Context, p Payment) error {
	outcomes, err := w.withQueued(ctx, w.groupPolicy(), []Payment{p}, func(ctx context.Context, tx pgx.Tx, ps []Payment) ([]outcome, error) {
		return makeAll(ctx, tx, ps, w.Pause)
	})
	if err != nil {
		_, err = w.afterFailure(ctx, []Payment{p}, err)
		return err
	}
	w.tell(outcomes)
	return nil
}

// countFailure counts a failed attempt in a transaction of its own, since the
// attempt's was rolled back. What went wrong is logged, and not for callers.
func (w *Workers) countFailure(ctx context.Context, p Payment) error {
	outcomes, err := w.withQueued(ctx, w.policy, []Payment{p}, func(ctx context.Context, tx pgx.Tx, ps []Payment) (outcomes []outcome, err error) {
		for _, p := range ps {
			outcomes = append(outcomes, p.failed(CodeInternal, internalDetail, w.Pause))
		}
		return outcomes, updateOutcomes(ctx, tx, outcomes)
	})
	w.tell(outcomes)
	return err
}

// busyPause is for how long a payment makes way for others when an account of
// its is locked.
const busyPause = 2 * time.Second

// postponeBusy takes those payments out of the queue for a while whose accounts
// somebody else keeps locked, so that they hold up no others.
func (w *Workers) postponeBusy(ctx context.Context, claimed []Payment) (n int, err error) {
	outcomes, err := w.withQueued(ctx, w.policy, claimed, func(ctx context.Context, tx pgx.Tx, ps []Payment) (outcomes []outcome, err error) {
		busy, err := transfer.LockFree(ctx, tx, orders(ps))
		if err != nil {
			return nil, err
		}
		for _, p := range ps {
			if busy[p.DebitAccountID] || busy[p.CreditAccountID] {
				outcomes = append(outcomes, p.postponed(CodeLockUnavailable, jitter(busyPause)))
			}
		}
		return outcomes, updateOutcomes(ctx, tx, outcomes)
	})
	w.tell(outcomes)
	return len(outcomes), err
}

// withQueued runs fn on those of payments that are still in the queue, and
// stores nothing by itself.
func (w *Workers) withQueued(ctx context.Context, policy retry.Policy, payments []Payment, fn func(context.Context, pgx.Tx, []Payment) ([]outcome, error)) ([]outcome, error) {
	ids := make([]uuid.UUID, len(payments))
	for i, p := range payments {
		ids[i] = p.ID
	}
	return retry.Tx(ctx, w.db, readWrite, policy, func(ctx context.Context, tx pgx.Tx) ([]outcome, error) {
		locked, err := lockQueued(ctx, tx, ids)
		if err != nil {
			return nil, err
		}
		return fn(ctx, tx, locked)
	})
}

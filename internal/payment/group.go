package payment

import (
	"context"
	"errors"
	"fmt"
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
func (w *worker) makeGroup(ctx context.Context) (n int, err error) {
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

func (w *worker) claim(ctx context.Context, tx pgx.Tx) ([]Payment, error) {
	defer w.timeClaim()()
	return claimQueued(ctx, tx, &w.floors, w.Group, w.avoided())
}

// groupPolicy waits only briefly for a lock, since a group holds others
// meanwhile.
func (w *worker) groupPolicy() retry.Policy {
	policy := w.policy
	policy.LockTimeout = w.LockWait
	policy.GenericPlans = true
	return policy
}

// afterFailure goes on with payments whose transaction err has ended: it was
// rolled back, so they are in the queue. A fault that may be one payment's
// becomes that one's alone.
func (w *worker) afterFailure(ctx context.Context, claimed []Payment, err error) (n int, _ error) {
	waited := errors.Is(err, retry.ErrLockUnavailable) || retry.SQLState(err) == queryCanceled // one long wait, or many short ones
	code, uncounted := uncountedCode(err)
	switch {
	case len(claimed) == 0, errors.Is(err, retry.ErrCommitUnknown): // either way, no payment can be made twice
		return 0, err
	case waited:
		busy, err := w.findBusy(ctx, claimed)
		if err != nil || busy {
			return len(claimed), err // the next claim goes around them
		}
	case uncounted: // nobody's fault, and the database's to mend
		return 0, err
	}
	if len(claimed) > 1 {
		return w.makeApart(ctx, claimed)
	}
	w.OnError(fmt.Errorf("make payment %s: %w", claimed[0].ID, err))
	return 1, w.setAside(ctx, claimed[0], func(p Payment) outcome {
		if uncounted {
			return p.postponed(code, jitter(w.Pause.Min))
		}
		return p.failed(CodeInternal, internalDetail, w.Pause)
	})
}

// queryCanceled is the SQLSTATE of a statement that took too long.
const queryCanceled = "57014"

// findBusy finds the accounts of payments that somebody else keeps locked, and
// reports whether there are any. This worker leaves them alone for a while: their
// payments keep their places in the queue, and hold up no others.
func (w *worker) findBusy(ctx context.Context, payments []Payment) (bool, error) {
	busy, err := transfer.FindBusy(ctx, w.db, w.policy, orders(payments))
	if err != nil {
		return false, err
	}
	for id := range busy {
		w.avoid[id] = time.Now().Add(jitter(avoidance))
	}
	return len(busy) > 0, nil
}

// avoidance is for how long a worker leaves alone an account that is locked.
const avoidance = 2 * time.Second

// avoided are the accounts that this worker leaves alone now.
func (w *worker) avoided() (ids []uuid.UUID) {
	for id, until := range w.avoid {
		if time.Now().After(until) {
			delete(w.avoid, id)
			continue
		}
		ids = append(ids, id)
	}
	return ids
}

// makeApart makes the payments of a group that failed, each in a transaction of
// its own, if they are still there.
func (w *worker) makeApart(ctx context.Context, payments []Payment) (n int, err error) {
	for _, p := range payments {
		outcomes, err := w.withQueued(ctx, w.groupPolicy(), p, func(ctx context.Context, tx pgx.Tx, ps []Payment) ([]outcome, error) {
			return makeAll(ctx, tx, ps, w.Pause)
		})
		if err != nil {
			_, err = w.afterFailure(ctx, []Payment{p}, err)
		}
		if err != nil {
			return n, err
		}
		w.tell(outcomes)
		n++
	}
	return n, nil
}

// setAside stores what became of a payment in a transaction of its own, since
// the attempt's was rolled back.
func (w *worker) setAside(ctx context.Context, p Payment, judge func(Payment) outcome) error {
	outcomes, err := w.withQueued(ctx, w.policy, p, func(ctx context.Context, tx pgx.Tx, ps []Payment) (outcomes []outcome, err error) {
		for _, p := range ps {
			outcomes = append(outcomes, judge(p))
		}
		return outcomes, updateOutcomes(ctx, tx, outcomes)
	})
	w.tell(outcomes)
	return err
}

// withQueued runs fn on p, or on nothing if p is no longer in the queue or
// another worker has it.
func (w *worker) withQueued(ctx context.Context, policy retry.Policy, p Payment, fn func(context.Context, pgx.Tx, []Payment) ([]outcome, error)) ([]outcome, error) {
	return retry.Tx(ctx, w.db, readWrite, policy, func(ctx context.Context, tx pgx.Tx) ([]outcome, error) {
		locked, err := lockQueued(ctx, tx, p.ID)
		if err != nil {
			return nil, err
		}
		return fn(ctx, tx, locked)
	})
}

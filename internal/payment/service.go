package payment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/retry"
)

// A Service takes payments in, shows them, and changes them on demand.
type Service struct {
	db     retry.Beginner
	policy retry.Policy
	queued func() // called when there may be more for workers to do
}

// New makes a service on db. queued, where not nil, is called after each change
// that may have put a payment into the queue: see [Bell.Ring].
func New(db retry.Beginner, policy retry.Policy, queued func()) *Service {
	if queued == nil {
		queued = func() {}
	}
	return &Service{db: db, policy: policy, queued: queued}
}

var (
	readWrite = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	readOnly  = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}
)

// An enqueued is what an attempt to enqueue found.
type enqueued struct {
	payment  Payment
	replayed bool
	refusal  error // idempotency.ErrKeyReused
}

// Enqueue stores the payment that c asks for, and returns it. replayed is true
// when the same command, under the same key, was answered before; the payment is
// then as it was at that time. Whether it can be made is judged when it is made.
//
// The error matches [*invalid.Error], [transfer.ErrSameAccount],
// [idempotency.ErrKeyReused] or one of package retry's.
func (s *Service) Enqueue(ctx context.Context, c Command) (p Payment, replayed bool, err error) {
	if err := c.Validate(); err != nil {
		return Payment{}, false, err
	}
	c = c.withDefaults()
	id := uuid.Must(uuid.NewV7()) // so that every attempt is the same payment
	result, err := retry.UntilKnown(ctx, s.policy, func(again bool) (enqueued, error) {
		return retry.Tx(ctx, s.db, readWrite, s.policy, func(ctx context.Context, tx pgx.Tx) (enqueued, error) {
			return enqueue(ctx, tx, id, c, again)
		})
	})
	if err == nil {
		err = result.refusal
	}
	if err != nil {
		return Payment{}, false, err
	}
	if result.payment.Status == Queued && !result.replayed {
		s.queued()
	}
	return result.payment, result.replayed, nil
}

// enqueue is one attempt of Enqueue.
func enqueue(ctx context.Context, tx pgx.Tx, id uuid.UUID, c Command, again bool) (enqueued, error) {
	if c.Key == nil {
		if again { // an attempt before this one may have stored it
			p, err := lockPayment(ctx, tx, id)
			if !errors.Is(err, ErrNotFound) {
				return enqueued{payment: p}, err
			}
		}
		p, err := insertPayment(ctx, tx, id, c)
		return enqueued{payment: p}, err
	}
	claim := &idempotency.Claim{Key: *c.Key, Fingerprint: c.fingerprint(), ResourceID: id}
	b := &pgx.Batch{}
	idempotency.QueueClaims(b, []*idempotency.Claim{claim})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return enqueued{}, fmt.Errorf("claim key: %w", err)
	}
	if !claim.Won {
		return recall(ctx, tx, claim)
	}
	p, err := insertPayment(ctx, tx, id, c)
	if err != nil {
		return enqueued{}, err
	}
	return enqueued{payment: p}, storeAnswer(ctx, tx, *c.Key, p)
}

// storeAnswer keeps p as it is now: what a replay returns, whatever becomes of
// the payment.
func storeAnswer(ctx context.Context, tx pgx.Tx, key idempotency.Key, p Payment) error {
	answer, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	b := &pgx.Batch{}
	idempotency.QueueAnswer(b, key, answer)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("store the answer: %w", err)
	}
	return nil
}

// recall returns what the key of a claim was answered with before.
func recall(ctx context.Context, tx pgx.Tx, claim *idempotency.Claim) (enqueued, error) {
	outcome, err := idempotency.Recall(ctx, tx, claim)
	if errors.Is(err, idempotency.ErrKeyReused) {
		return enqueued{refusal: err}, nil
	}
	if err != nil {
		return enqueued{}, err
	}
	// The answer of an attempt of this call, whose commit went unanswered, is
	// no replay.
	result := enqueued{replayed: outcome.ResourceID != claim.ResourceID}
	if err := json.Unmarshal(outcome.Answer, &result.payment); err != nil {
		return enqueued{}, fmt.Errorf("read the stored answer: %w", err)
	}
	return result, nil
}

// Get returns a payment. The error matches [ErrNotFound] or is one of package
// retry's.
func (s *Service) Get(ctx context.Context, id uuid.UUID) (Payment, error) {
	return retry.Tx(ctx, s.db, readOnly, s.policy, func(ctx context.Context, tx pgx.Tx) (Payment, error) {
		return selectPayment(ctx, tx, id)
	})
}

// List returns the payments that f selects, the latest first.
func (s *Service) List(ctx context.Context, f Filter) ([]Payment, error) {
	return retry.Tx(ctx, s.db, readOnly, s.policy, func(ctx context.Context, tx pgx.Tx) ([]Payment, error) {
		return selectPayments(ctx, tx, f)
	})
}

// Approve lets a payment that awaits approval be made. It does nothing to one
// that is approved. The error matches [ErrNotFound] or [*StatusError], or is one
// of package retry's.
func (s *Service) Approve(ctx context.Context, id uuid.UUID, principal string) (Payment, error) {
	return s.change(ctx, id, func(ctx context.Context, tx pgx.Tx, p Payment) (Payment, error) {
		switch {
		case p.ApprovedAt != nil && p.Status != Canceled:
			return p, nil
		case p.Status != AwaitingApproval:
			return Payment{}, &StatusError{p.Status, "approve"}
		}
		return updateApproved(ctx, tx, id, principal)
	})
}

// Cancel calls off a payment that nobody has begun to make. It does nothing to a
// canceled one. Its errors are those of [Service.Approve].
func (s *Service) Cancel(ctx context.Context, id uuid.UUID) (Payment, error) {
	return s.change(ctx, id, func(ctx context.Context, tx pgx.Tx, p Payment) (Payment, error) {
		switch p.Status {
		case Canceled:
			return p, nil
		case Scheduled, AwaitingApproval, Queued:
			return updateCanceled(ctx, tx, id)
		}
		return Payment{}, &StatusError{p.Status, "cancel"}
	})
}

// Retry puts a failed payment back into the queue, with all its attempts. It
// does nothing to one that waits to be made. Its errors are those of
// [Service.Approve].
func (s *Service) Retry(ctx context.Context, id uuid.UUID) (Payment, error) {
	return s.change(ctx, id, func(ctx context.Context, tx pgx.Tx, p Payment) (Payment, error) {
		switch p.Status {
		case Scheduled, Queued, Processing:
			return p, nil
		case Failed:
			return updateRetried(ctx, tx, id)
		}
		return Payment{}, &StatusError{p.Status, "retry"}
	})
}

// A changed is what an attempt to change a payment found.
type changed struct {
	payment Payment
	refusal error
}

// change judges a payment when it holds its row. It is idempotent by nature: an
// attempt whose commit went unanswered is simply made again, and judges what has
// become of the payment by then.
func (s *Service) change(ctx context.Context, id uuid.UUID, judge func(context.Context, pgx.Tx, Payment) (Payment, error)) (Payment, error) {
	result, err := retry.UntilKnown(ctx, s.policy, func(bool) (changed, error) {
		return retry.Tx(ctx, s.db, readWrite, s.policy, func(ctx context.Context, tx pgx.Tx) (changed, error) {
			p, err := lockPayment(ctx, tx, id)
			if err == nil {
				p, err = judge(ctx, tx, p)
			}
			var status *StatusError
			if errors.Is(err, ErrNotFound) || errors.As(err, &status) {
				return changed{refusal: err}, nil
			}
			return changed{payment: p}, err
		})
	})
	if err != nil {
		return Payment{}, err
	}
	if result.payment.Status == Queued {
		s.queued()
	}
	return result.payment, result.refusal
}

package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/retry"
)

// A Service moves money in one ledger, in one mode.
type Service struct {
	db      retry.Beginner
	mode    *Mode
	locking Locking
	policy  retry.Policy
	groups  *groups // nil: every transfer has a transaction of its own
}

// New makes a service on db. locking matters to the pessimistic mode only.
func New(db retry.Beginner, mode *Mode, locking Locking, policy retry.Policy) *Service {
	return &Service{db: db, mode: mode, locking: locking, policy: policy}
}

// Create makes the transfer c asks for and returns it. replayed is true when
// the same command, under the same key, was answered before: by this transfer,
// or by this refusal.
//
// The error matches, with errors.Is or errors.As: [*invalid.Error],
// [ErrSameAccount], [*Refusal] with one of [ErrAccountNotFound],
// [ErrCurrencyMismatch], [ErrAccountFrozen], [ErrAccountClosed],
// [ErrDebitsBlocked], [ErrCreditsBlocked], [ErrReferenceUsed],
// [ErrVersionMismatch], [ErrInsufficientFunds], [ErrMaxBalanceExceeded] and
// [ErrLimitExceeded]; [idempotency.ErrKeyReused],
// [*retry.ExhaustedError], [ErrOverloaded], [retry.ErrLockUnavailable],
// [retry.ErrUnavailable] or [retry.ErrCommitUnknown]. After any of them but the
// last, nothing has moved.
func (s *Service) Create(ctx context.Context, c Command) (t Transfer, replayed bool, err error) {
	if err := c.Validate(); err != nil {
		return Transfer{}, false, err
	}
	return s.make(ctx, &making{Command: c}, c.route(), c.fields()...)
}

// make makes one transfer, which gets its id here.
func (s *Service) make(ctx context.Context, t *making, route string, fields ...string) (Transfer, bool, error) {
	t.id = uuid.Must(uuid.NewV7())
	t.Metadata = stored(t.Metadata)
	m := newMove(t.Call, t.id, []step{t}, route, fields...)
	if err := s.do(ctx, m); err != nil {
		return Transfer{}, false, err
	}
	return t.transfer, m.replayed, m.refusal
}

// stored is metadata as it is read back.
func stored(metadata map[string]string) map[string]string {
	if metadata == nil {
		return map[string]string{}
	}
	return metadata
}

// do moves m, in some group where there are groups.
func (s *Service) do(ctx context.Context, m *move) error {
	switch {
	case m.DryRun:
		return s.rehearse(ctx, m)
	case s.groups != nil:
		return s.groups.move(ctx, m)
	}
	return s.run(ctx, s.policy, s.locking, []*move{m})
}

// rehearse moves m in a transaction that is rolled back. It waits for a lock no
// longer than a group does: a connection waits with it.
func (s *Service) rehearse(ctx context.Context, m *move) error {
	policy := s.policy
	policy.GenericPlans = true
	if s.groups != nil {
		policy.LockTimeout = s.groups.LockWait
	}
	_, err := retry.Tx(ctx, s.db, s.mode.TxOptions, policy, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if err := s.attempt(ctx, tx, s.locking, []*move{m}, false); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, errRehearsed
	})
	if errors.Is(err, errRehearsed) {
		return nil
	}
	return err
}

// errRehearsed ends a dry run with a rollback.
var errRehearsed = errors.New("rehearsed")

// run moves ms in one transaction.
func (s *Service) run(ctx context.Context, policy retry.Policy, locking Locking, ms []*move) error {
	policy.GenericPlans = true
	_, err := retry.UntilKnown(ctx, policy, func(again bool) (struct{}, error) {
		return retry.Tx(ctx, s.db, s.mode.TxOptions, policy, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
			return struct{}{}, s.attempt(ctx, tx, locking, ms, again)
		})
	})
	return err
}

// attempt moves ms in tx: it claims the keys, makes the transfers that can be
// made, and answers the rest. A refusal is a result: the transaction commits
// with it. again says that an attempt before this one may have been committed.
func (s *Service) attempt(ctx context.Context, tx pgx.Tx, locking Locking, ms []*move, again bool) (err error) {
	defer func() {
		if p := recover(); p != nil { // it must not end a lane, and with it the process
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	for _, m := range ms {
		m.reset()
	}
	b := &pgx.Batch{}
	if locking.EachRow {
		idempotency.QueueClaimsApart(b, claims(ms))
	} else {
		idempotency.QueueClaims(b, claims(ms))
	}
	if again && slices.ContainsFunc(ms, hasNoKey) {
		if err := findMade(ctx, tx, b, locking, ms); err != nil {
			return err
		}
		b, ms = &pgx.Batch{}, slices.DeleteFunc(slices.Clone(ms), (*move).made)
	}
	b, err = s.mode.move(ctx, tx, b, locking, ms)
	if err != nil {
		return err
	}
	return answer(ctx, tx, b, ms)
}

func hasNoKey(m *move) bool { return m.claim == nil }

func claims(ms []*move) []*idempotency.Claim {
	var all []*idempotency.Claim
	for _, m := range ms {
		if m.claim != nil {
			all = append(all, m.claim)
		}
	}
	return all
}

// answer sends b, and with it stores the refusals under their keys and recalls
// what the keys that were taken before were answered with.
func answer(ctx context.Context, tx pgx.Tx, b *pgx.Batch, ms []*move) error {
	var taken []*idempotency.Claim
	byClaim := map[*idempotency.Claim]*move{}
	for _, m := range ms {
		if !m.mine() {
			taken = append(taken, m.claim)
			byClaim[m.claim] = m
		} else if err := m.queueRefusals(b); err != nil {
			return err
		}
	}
	var before []*move // what they made is still to be found
	find := &pgx.Batch{}
	idempotency.QueueRecalls(b, taken, func(c *idempotency.Claim, o idempotency.Outcome, err error) error {
		m := byClaim[c]
		if err == nil && o.Refusal == nil {
			before = append(before, m)
			m.queueFind(find, o.ResourceID)
		}
		return m.recall(o, err)
	})
	if err := send(ctx, tx, b, "write"); err != nil {
		return err
	}
	if err := send(ctx, tx, find, "find what was made before"); err != nil {
		return err
	}
	for _, m := range before {
		if err := m.complete(); err != nil {
			return err
		}
	}
	return nil
}

// queueRefusals queues the storing of what m was refused for, under its key.
func (m *move) queueRefusals(b *pgx.Batch) error {
	if m.claim == nil {
		return nil
	}
	if m.refusal != nil {
		refusal, err := json.Marshal(m.refusal)
		if err != nil {
			return fmt.Errorf("write the refusal: %w", err)
		}
		idempotency.QueueRefusal(b, m.claim.Key, refusal)
	}
	if m.batch != nil && m.batch.refused() {
		refusals, err := json.Marshal(m.batch.refusals)
		if err != nil {
			return fmt.Errorf("write the refusals: %w", err)
		}
		idempotency.QueueAnswer(b, m.claim.Key, refusals)
	}
	return nil
}

// recall answers m with what its key was used for before.
func (m *move) recall(outcome idempotency.Outcome, err error) error {
	if err != nil {
		m.refusal = err // idempotency.ErrKeyReused
		return nil
	}
	// The claim of an attempt of this call, whose commit went unanswered, is
	// no replay.
	m.replayed = outcome.ResourceID != m.id
	switch {
	case outcome.Refusal != nil:
		refusal := &Refusal{TransferID: outcome.ResourceID}
		if err := json.Unmarshal(outcome.Refusal, refusal); err != nil {
			return fmt.Errorf("read the stored refusal: %w", err)
		}
		m.refusal = refusal
	case m.batch != nil:
		return m.batch.recall(outcome)
	}
	return nil
}

// complete checks that all was found that was made before.
func (m *move) complete() error {
	for i, s := range m.steps {
		if !s.found() && !(m.batch != nil && m.batch.refusalOf(i) != nil) {
			return fmt.Errorf("the key of %s is there, and what it names is not", m.id)
		}
	}
	return nil
}

// findMade finds what a commit without an answer has made of ms. A key does that
// by itself, so this is for moves without one. It sends b ahead and locks the
// accounts, which waits until that commit has ended: only then does the absence
// of a transfer mean that it was not made. It locks what all moves need, since
// those that follow must not go back in the order.
func findMade(ctx context.Context, tx pgx.Tx, b *pgx.Batch, l Locking, ms []*move) error {
	queueRead(b, ms, &Locking{EachRow: l.EachRow})
	for _, m := range ms {
		if hasNoKey(m) {
			m.queueFind(b, m.id)
		}
	}
	return send(ctx, tx, b, "find what was made")
}

var readOnly = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}

// GetReversed is Get, together with the sum of what reversals have taken back.
func (s *Service) GetReversed(ctx context.Context, id uuid.UUID) (t Transfer, reversed decimal.Decimal, err error) {
	t, err = retry.Tx(ctx, s.db, readOnly, s.policy, func(ctx context.Context, tx pgx.Tx) (Transfer, error) {
		t, err := selectTransfer(ctx, tx, id)
		if err != nil {
			return Transfer{}, err
		}
		b := &books{}
		batch := &pgx.Batch{}
		b.queueReversed(batch, []uuid.UUID{id})
		if err := send(ctx, tx, batch, "sum reversals"); err != nil {
			return Transfer{}, err
		}
		reversed = b.reversed[id]
		return t, nil
	})
	return t, reversed, err
}

// Get returns a transfer. The error matches [ErrNotFound] or is one of package
// retry's.
func (s *Service) Get(ctx context.Context, id uuid.UUID) (Transfer, error) {
	return retry.Tx(ctx, s.db, readOnly, s.policy, func(ctx context.Context, tx pgx.Tx) (Transfer, error) {
		return selectTransfer(ctx, tx, id)
	})
}

package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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

// A move is one command on its way through an attempt, and what the attempt
// found. The command's id is chosen before the first attempt, so that every
// attempt is the same transfer.
type move struct {
	Command
	id    uuid.UUID
	claim *idempotency.Claim // nil without a key

	made     bool
	transfer Transfer
	refusal  error // a *Refusal, or idempotency.ErrKeyReused: an answer, not a failure
	replayed bool
}

func newMove(c Command) *move {
	if c.Metadata == nil {
		c.Metadata = map[string]string{} // as it is read back
	}
	m := &move{Command: c, id: uuid.Must(uuid.NewV7())}
	if c.Key != nil {
		m.claim = &idempotency.Claim{Key: *c.Key, Fingerprint: c.fingerprint(), ResourceID: m.id}
	}
	return m
}

// reset forgets what an attempt before this one found.
func (m *move) reset() {
	m.made, m.transfer, m.refusal, m.replayed = false, Transfer{}, nil, false
}

// mine reports whether m is this attempt's to make: it has no key, or its key
// was free.
func (m *move) mine() bool { return m.claim == nil || m.claim.Won }

// sides returns both accounts, the customer's first, in the order in which
// they are judged.
func (m *move) sides() [2]uuid.UUID {
	if m.Kind == Credit {
		return [2]uuid.UUID{m.CreditAccountID, m.DebitAccountID}
	}
	return [2]uuid.UUID{m.DebitAccountID, m.CreditAccountID}
}

// Create makes the transfer c asks for and returns it. replayed is true when
// the same command, under the same key, was answered before: by this transfer,
// or by this refusal.
//
// The error matches, with errors.Is or errors.As: [*invalid.Error],
// [ErrSameAccount], [*Refusal] with one of [ErrAccountNotFound],
// [ErrCurrencyMismatch], [ErrAccountFrozen], [ErrAccountClosed],
// [ErrInsufficientFunds] and [ErrLimitExceeded]; [idempotency.ErrKeyReused],
// [*retry.ExhaustedError], [ErrOverloaded], [retry.ErrLockUnavailable],
// [retry.ErrUnavailable] or [retry.ErrCommitUnknown]. After any of them but the
// last, nothing has moved.
func (s *Service) Create(ctx context.Context, c Command) (t Transfer, replayed bool, err error) {
	if err := c.Validate(); err != nil {
		return Transfer{}, false, err
	}
	m := newMove(c)
	if s.groups != nil {
		err = s.groups.move(ctx, m)
	} else {
		err = s.run(ctx, s.policy, s.locking, []*move{m})
	}
	if err != nil {
		return Transfer{}, false, err
	}
	return m.transfer, m.replayed, m.refusal
}

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
	idempotency.QueueClaims(b, claims(ms))
	if again && slices.ContainsFunc(ms, hasNoKey) {
		if err := findMade(ctx, tx, b, ms); err != nil {
			return err
		}
		b, ms = &pgx.Batch{}, slices.DeleteFunc(slices.Clone(ms), func(m *move) bool { return m.made })
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
		switch {
		case !m.mine():
			taken = append(taken, m.claim)
			byClaim[m.claim] = m
		case m.claim != nil && m.refusal != nil:
			refusal, err := json.Marshal(m.refusal)
			if err != nil {
				return fmt.Errorf("write the refusal: %w", err)
			}
			idempotency.QueueRefusal(b, m.claim.Key, refusal)
		}
	}
	var before []*move // whose transfers were made before
	idempotency.QueueRecalls(b, taken, func(c *idempotency.Claim, o idempotency.Outcome, err error) error {
		m := byClaim[c]
		if err == nil && o.Refusal == nil {
			m.transfer.ID = o.ResourceID
			before = append(before, m)
		}
		return m.recall(o, err)
	})
	if err := send(ctx, tx, b, "write"); err != nil {
		return err
	}
	return selectAnswers(ctx, tx, before)
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
	if outcome.Refusal == nil {
		return nil
	}
	refusal := &Refusal{TransferID: outcome.ResourceID}
	if err := json.Unmarshal(outcome.Refusal, refusal); err != nil {
		return fmt.Errorf("read the stored refusal: %w", err)
	}
	m.refusal = refusal
	return nil
}

// selectAnswers reads the transfers of ms, of which the ids are known.
func selectAnswers(ctx context.Context, tx pgx.Tx, ms []*move) error {
	if len(ms) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(ms))
	for i, m := range ms {
		ids[i] = m.transfer.ID
	}
	transfers, err := selectTransfersByID(ctx, tx, ids)
	if err != nil {
		return err
	}
	for _, m := range ms {
		t, ok := transfers[m.transfer.ID]
		if !ok {
			return fmt.Errorf("the key of transfer %s is there, and the transfer is not", m.transfer.ID)
		}
		m.transfer = t
	}
	return nil
}

// findMade finds the transfers of ms that a commit without an answer has made.
// A key does that by itself, so this is for moves without one. It sends b ahead
// and locks the accounts, which waits until that commit has ended: only then
// does the absence of a transfer mean that it was not made. It locks the
// accounts of all moves, since those that follow must not go back in the order.
func findMade(ctx context.Context, tx pgx.Tx, b *pgx.Batch, ms []*move) error {
	queueRead(b, ms, Locking{}.suffix())
	if err := send(ctx, tx, b, "lock accounts"); err != nil {
		return err
	}
	var ids []uuid.UUID
	for _, m := range ms {
		if hasNoKey(m) {
			ids = append(ids, m.id)
		}
	}
	transfers, err := selectTransfersByID(ctx, tx, ids)
	if err != nil {
		return err
	}
	for _, m := range ms {
		if t, ok := transfers[m.id]; ok {
			m.transfer, m.made = t, true
		}
	}
	return nil
}

var readOnly = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}

// Get returns a transfer. The error matches [ErrNotFound] or is one of package
// retry's.
func (s *Service) Get(ctx context.Context, id uuid.UUID) (Transfer, error) {
	return retry.Tx(ctx, s.db, readOnly, s.policy, func(ctx context.Context, tx pgx.Tx) (Transfer, error) {
		return selectTransfer(ctx, tx, id)
	})
}

// List returns the transfers that f selects, in f's order. Ascending, and of
// all accounts, it returns what no later commit can get in front of: the rest
// follows when the transactions that are under way have ended.
func (s *Service) List(ctx context.Context, f Filter) ([]Transfer, error) {
	return retry.Tx(ctx, s.db, readOnly, s.policy, func(ctx context.Context, tx pgx.Tx) ([]Transfer, error) {
		return selectTransfers(ctx, tx, f)
	})
}

package accounts

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

// A Service keeps the accounts of one ledger.
type Service struct {
	db     retry.Beginner
	policy retry.Policy
}

// New makes a service on db.
func New(db retry.Beginner, policy retry.Policy) *Service {
	return &Service{db: db, policy: policy}
}

var (
	readWrite = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	readOnly  = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}
)

// An opened is what an attempt to open an account found: an account, or why
// not. Both are answers that a key keeps.
type opened struct {
	Account  Account
	Exists   bool      // the id is in use
	Call     uuid.UUID // names the call of Open that found it
	replayed bool
	err      error // idempotency.ErrKeyReused
}

// Open opens the account that o asks for, and returns it. With the first
// account of a currency, the currency's external account is made too. replayed
// is true when the same opening, under the same key, was answered before; the
// account is then as it was at that time.
//
// The error matches [*invalid.Error], [ErrExists] (final under its key),
// [idempotency.ErrKeyReused], or one of package retry's; after any of them but
// [retry.ErrCommitUnknown] there is no new account.
func (s *Service) Open(ctx context.Context, o Opening) (account Account, replayed bool, err error) {
	if err := o.Validate(); err != nil {
		return Account{}, false, err
	}
	// Chosen here, so that every attempt opens the same account.
	call := uuid.Must(uuid.NewV7())
	id := o.ID
	if id == uuid.Nil {
		id = call
	}
	result, err := retry.UntilKnown(ctx, s.policy, func(again bool) (opened, error) {
		return retry.Tx(ctx, s.db, readWrite, s.policy, func(ctx context.Context, tx pgx.Tx) (opened, error) {
			return open(ctx, tx, id, call, o, again)
		})
	})
	switch {
	case err != nil:
		return Account{}, false, err
	case result.err != nil:
		return Account{}, false, result.err
	case result.Exists:
		return Account{}, result.replayed, ErrExists
	}
	return result.Account, result.replayed, nil
}

// open is one attempt of Open. Nothing is inserted before the key is known to
// be this attempt's: the transaction of a replay commits as well.
func open(ctx context.Context, tx pgx.Tx, id, call uuid.UUID, o Opening, again bool) (opened, error) {
	if o.Key != nil {
		claim := &idempotency.Claim{Key: *o.Key, Fingerprint: o.fingerprint(), ResourceID: id}
		b := &pgx.Batch{}
		idempotency.QueueClaims(b, []*idempotency.Claim{claim})
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return opened{}, fmt.Errorf("claim key: %w", err)
		}
		if !claim.Won {
			return recall(ctx, tx, claim, call)
		}
	}
	account, exists, err := insertAccount(ctx, tx, id, o)
	if err != nil {
		return opened{}, err
	}
	result := opened{Account: account, Exists: exists, Call: call}
	switch {
	case o.Key != nil:
		return result, storeAnswer(ctx, tx, *o.Key, result)
	case exists && again && o.ID == uuid.Nil:
		// Nobody else can have our id: an attempt before this one, whose
		// commit went unanswered, has opened the account. The lock makes this
		// commit wait for what that one waited for.
		account, err := selectAccount(ctx, tx, id, " FOR UPDATE")
		return opened{Account: account}, err
	case exists && again:
		// It may be ours or somebody else's; without a key nothing tells.
		return opened{}, retry.ErrCommitUnknown
	}
	return result, nil
}

func storeAnswer(ctx context.Context, tx pgx.Tx, key idempotency.Key, result opened) error {
	answer, err := json.Marshal(result)
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
func recall(ctx context.Context, tx pgx.Tx, claim *idempotency.Claim, call uuid.UUID) (opened, error) {
	outcome, err := idempotency.Recall(ctx, tx, claim)
	if errors.Is(err, idempotency.ErrKeyReused) {
		return opened{err: err}, nil
	}
	if err != nil {
		return opened{}, err
	}
	var result opened
	if err := json.Unmarshal(outcome.Answer, &result); err != nil {
		return opened{}, fmt.Errorf("read the stored answer: %w", err)
	}
	// The answer of an attempt of this call, whose commit went unanswered, is
	// no replay.
	result.replayed = result.Call != call
	return result, nil
}

// Get returns an account. The error matches [ErrNotFound] or is one of package
// retry's.
func (s *Service) Get(ctx context.Context, id uuid.UUID) (Account, error) {
	return retry.Tx(ctx, s.db, readOnly, s.policy, func(ctx context.Context, tx pgx.Tx) (Account, error) {
		return selectAccount(ctx, tx, id, "")
	})
}

// List returns the accounts that f selects, in the order of their ids.
func (s *Service) List(ctx context.Context, f Filter) ([]Account, error) {
	return retry.Tx(ctx, s.db, readOnly, s.policy, func(ctx context.Context, tx pgx.Tx) ([]Account, error) {
		return selectAccounts(ctx, tx, f)
	})
}

// Entries returns a page of an account's statement, in the account's own
// order. The error matches [ErrNotFound] or is one of package retry's.
func (s *Service) Entries(ctx context.Context, id uuid.UUID, p Page) ([]Entry, error) {
	return retry.Tx(ctx, s.db, readOnly, s.policy, func(ctx context.Context, tx pgx.Tx) ([]Entry, error) {
		entries, err := selectEntries(ctx, tx, id, p)
		if err != nil || len(entries) > 0 {
			return entries, err
		}
		_, err = selectAccount(ctx, tx, id, "")
		return nil, err
	})
}

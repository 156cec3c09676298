package accounts

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/retry"
)

// Freeze stops an account's debits and credits. It does nothing to a frozen
// account. The error matches [ErrNotFound], [ErrExternal], [ErrClosed], or is
// one of package retry's.
func (s *Service) Freeze(ctx context.Context, id uuid.UUID) (Account, error) {
	return s.setStatus(ctx, id, Frozen)
}

// Unfreeze opens a frozen account again. It does nothing to an open one. Its
// errors are those of [Service.Freeze].
func (s *Service) Unfreeze(ctx context.Context, id uuid.UUID) (Account, error) {
	return s.setStatus(ctx, id, Open)
}

// Close closes an account for good. It does nothing to a closed one. Its
// errors are those of [Service.Freeze] but ErrClosed, and [ErrNotEmpty].
func (s *Service) Close(ctx context.Context, id uuid.UUID) (Account, error) {
	return s.setStatus(ctx, id, Closed)
}

func (s *Service) setStatus(ctx context.Context, id uuid.UUID, status string) (Account, error) {
	return s.change(ctx, id, func(a *Account) error {
		switch {
		case a.Status == status:
			return nil
		case a.Status == Closed:
			return ErrClosed
		case status == Closed && !(a.Balance.IsZero() && a.Held.IsZero()):
			return ErrNotEmpty
		}
		a.Status = status
		return nil
	})
}

// An Update is what a caller may say of an account at any time.
type Update struct {
	Name     *string           // nil: as it is
	Metadata map[string]string // nil: as it is; otherwise replaces all of it
}

// Validate returns an [*invalid.Error] with all that is wrong with u, or nil.
func (u Update) Validate() error {
	var c invalid.Check
	if u.Name == nil && u.Metadata == nil {
		c.Add("body", "must have name or metadata")
	}
	if u.Name != nil {
		c.Text("name", *u.Name, invalid.MaxName)
	}
	c.Metadata("metadata", u.Metadata)
	return c.Err()
}

// Update changes an account's name or metadata, whatever its status. The error
// matches [*invalid.Error], [ErrNotFound], [ErrExternal], or is one of package
// retry's.
func (s *Service) Update(ctx context.Context, id uuid.UUID, u Update) (Account, error) {
	if err := u.Validate(); err != nil {
		return Account{}, err
	}
	return s.change(ctx, id, func(a *Account) error {
		if u.Name != nil {
			a.Name = *u.Name
		}
		if u.Metadata != nil {
			a.Metadata = u.Metadata
		}
		return nil
	})
}

// Directions say in which directions an account may not be used.
type Directions struct {
	DebitsBlocked  *bool // nil: as it is
	CreditsBlocked *bool // nil: as it is
}

// Validate returns an [*invalid.Error] where d asks for nothing, or nil.
func (d Directions) Validate() error {
	var c invalid.Check
	if d.DebitsBlocked == nil && d.CreditsBlocked == nil {
		c.Add("body", "must have debits or credits")
	}
	return c.Err()
}

// SetDirections blocks an account's debits or credits, or allows them. The
// error matches [*invalid.Error], [ErrNotFound], [ErrExternal], [ErrClosed], or
// is one of package retry's.
func (s *Service) SetDirections(ctx context.Context, id uuid.UUID, d Directions) (Account, error) {
	if err := d.Validate(); err != nil {
		return Account{}, err
	}
	return s.change(ctx, id, func(a *Account) error {
		if a.Status == Closed {
			return ErrClosed
		}
		if d.DebitsBlocked != nil {
			a.DebitsBlocked = *d.DebitsBlocked
		}
		if d.CreditsBlocked != nil {
			a.CreditsBlocked = *d.CreditsBlocked
		}
		return nil
	})
}

// A judged is what an attempt to change an account found: the account, or why
// it stays as it is.
type judged struct {
	account Account
	refusal error
}

// change alters an account, or returns why alter refuses to. Every change is
// idempotent by nature: an attempt whose commit went unanswered is simply made
// again.
func (s *Service) change(ctx context.Context, id uuid.UUID, alter func(*Account) error) (Account, error) {
	result, err := retry.UntilKnown(ctx, s.policy, func(bool) (judged, error) {
		return retry.Tx(ctx, s.db, readWrite, s.policy, func(ctx context.Context, tx pgx.Tx) (judged, error) {
			return change(ctx, tx, id, alter)
		})
	})
	if err != nil {
		return Account{}, err
	}
	return result.account, result.refusal
}

// change judges after it holds the row: a transfer that is under way has then
// ended, and a later one will see what was changed.
func change(ctx context.Context, tx pgx.Tx, id uuid.UUID, alter func(*Account) error) (judged, error) {
	account, err := selectAccount(ctx, tx, id, " FOR UPDATE")
	switch {
	case errors.Is(err, ErrNotFound):
		return judged{refusal: err}, nil
	case err != nil:
		return judged{}, err
	case account.Kind == External:
		return judged{refusal: ErrExternal}, nil
	}
	if refusal := alter(&account); refusal != nil {
		return judged{refusal: refusal}, nil
	}
	return judged{account: account}, updateAccount(ctx, tx, account)
}

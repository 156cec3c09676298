package transfer

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// What can go wrong with a transfer, besides [*invalid.Error],
// [idempotency.ErrKeyReused] and package retry's errors. After any of these
// nothing has moved.
var (
	// ErrSameAccount: both sides are one account. Seen before any transaction.
	ErrSameAccount = errors.New("the debit and the credit account are the same")

	// ErrOverloaded: too many transfers wait already. Seen before any transaction.
	ErrOverloaded = errors.New("too many transfers are waiting")

	// ErrNotFound: there is no transfer with this id.
	ErrNotFound = errors.New("transfer not found")
)

// The refusals: judgements made inside the transaction, about accounts that it
// held. They come as a [*Refusal] that says which account, and are final under
// their idempotency key.
var (
	ErrAccountNotFound   = errors.New("account not found")
	ErrCurrencyMismatch  = errors.New("the account is in another currency")
	ErrAccountFrozen     = errors.New("the account is frozen")
	ErrAccountClosed     = errors.New("the account is closed")
	ErrInsufficientFunds = errors.New("insufficient funds")
	ErrLimitExceeded     = errors.New("the balance would leave its range")
)

// refusals names each refusal as it is stored, which is also its problem code.
var refusals = map[string]error{
	"account-not-found":  ErrAccountNotFound,
	"currency-mismatch":  ErrCurrencyMismatch,
	"account-frozen":     ErrAccountFrozen,
	"account-closed":     ErrAccountClosed,
	"insufficient-funds": ErrInsufficientFunds,
	"limit-exceeded":     ErrLimitExceeded,
}

// A Refusal is the positive finding that a transfer cannot be made. It matches,
// with errors.Is, the one of the Err variables above that its code names.
type Refusal struct {
	TransferID uuid.UUID `json:"-"` // the id that the transfer would have had
	Code       string    `json:"code"`
	AccountID  uuid.UUID `json:"account_id"` // the account that is the reason

	// For insufficient funds: what the account could have paid and what was
	// asked of it, written with the currency's digits.
	Available string `json:"available,omitempty"`
	Required  string `json:"required,omitempty"`
	Currency  string `json:"currency,omitempty"` // of the account
}

func (r *Refusal) Error() string {
	switch r.Code {
	case "insufficient-funds":
		return fmt.Sprintf("insufficient funds: account %s has %s %s available and %s is required", r.AccountID, r.Available, r.Currency, r.Required)
	case "currency-mismatch":
		return fmt.Sprintf("account %s is not in %s", r.AccountID, r.Currency)
	}
	return fmt.Sprintf("account %s: %v", r.AccountID, refusals[r.Code])
}

// Is reports whether r is the refusal that target names.
func (r *Refusal) Is(target error) bool { return refusals[r.Code] == target }

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

	// ErrHoldNotFound: there is no hold with this id.
	ErrHoldNotFound = errors.New("hold not found")

	// ErrReversalOfReversal: what takes a transfer back is not taken back itself.
	ErrReversalOfReversal = errors.New("the transfer is a reversal")

	// ErrPositionExpired: the position is of another database cluster than the
	// list is read from. The list must be read from its start.
	ErrPositionExpired = errors.New("the position is of another database cluster")
)

// The refusals: judgements made inside the transaction, about accounts that it
// held. They come as a [*Refusal] that says which account, and are final under
// their idempotency key.
var (
	ErrAccountNotFound         = errors.New("account not found")
	ErrCurrencyMismatch        = errors.New("the account is in another currency")
	ErrAccountFrozen           = errors.New("the account is frozen")
	ErrAccountClosed           = errors.New("the account is closed")
	ErrDebitsBlocked           = errors.New("the account's debits are blocked")
	ErrCreditsBlocked          = errors.New("the account's credits are blocked")
	ErrReferenceUsed           = errors.New("the reference is used")
	ErrVersionMismatch         = errors.New("the account has another version")
	ErrInsufficientFunds       = errors.New("insufficient funds")
	ErrMaxBalanceExceeded      = errors.New("the balance would exceed the account's maximum")
	ErrLimitExceeded           = errors.New("the balance would leave its range")
	ErrHoldStatus              = errors.New("the hold's status does not allow this")
	ErrCaptureExceedsHold      = errors.New("more than what is left of the hold")
	ErrReversalExceedsTransfer = errors.New("more than what is left of the transfer")
)

// refusals names each refusal as it is stored, which is also its problem code.
var refusals = map[string]error{
	"account-not-found":         ErrAccountNotFound,
	"currency-mismatch":         ErrCurrencyMismatch,
	"account-frozen":            ErrAccountFrozen,
	"account-closed":            ErrAccountClosed,
	"debits-blocked":            ErrDebitsBlocked,
	"credits-blocked":           ErrCreditsBlocked,
	"reference-used":            ErrReferenceUsed,
	"version-mismatch":          ErrVersionMismatch,
	"insufficient-funds":        ErrInsufficientFunds,
	"max-balance-exceeded":      ErrMaxBalanceExceeded,
	"limit-exceeded":            ErrLimitExceeded,
	"hold-status":               ErrHoldStatus,
	"capture-exceeds-hold":      ErrCaptureExceedsHold,
	"reversal-exceeds-transfer": ErrReversalExceedsTransfer,
}

// A Refusal is the positive finding that something cannot be done. It matches,
// with errors.Is, the one of the Err variables above that its code names.
type Refusal struct {
	TransferID uuid.UUID `json:"-"` // the id that the transfer, hold or batch would have had
	Code       string    `json:"code"`
	AccountID  uuid.UUID `json:"account_id"` // the account that is the reason

	// Where amounts are why: what there was and what was asked for, written with
	// the currency's digits.
	Available string `json:"available,omitempty"`
	Required  string `json:"required,omitempty"`
	Currency  string `json:"currency,omitempty"` // of the account

	// OtherID is the transfer that has the reference, the hold, or the transfer
	// that was to be reversed.
	OtherID *uuid.UUID `json:"other_id,omitempty"`
	Status  string     `json:"status,omitempty"`  // of the hold
	Version string     `json:"version,omitempty"` // of the account
	Index   *int       `json:"index,omitempty"`   // of the member of an atomic batch, from 0
}

func (r *Refusal) Error() string {
	text := r.sentence()
	if r.Index != nil {
		return fmt.Sprintf("transfer %d of the batch: %s", *r.Index, text)
	}
	return text
}

func (r *Refusal) sentence() string {
	switch r.Code {
	case "insufficient-funds":
		return fmt.Sprintf("insufficient funds: account %s has %s %s available and %s is required", r.AccountID, r.Available, r.Currency, r.Required)
	case "max-balance-exceeded":
		return fmt.Sprintf("account %s has room for %s %s below its maximum and %s would come in", r.AccountID, r.Available, r.Currency, r.Required)
	case "currency-mismatch":
		return fmt.Sprintf("account %s is not in %s", r.AccountID, r.Currency)
	case "reference-used":
		return fmt.Sprintf("account %s has a transfer with this reference: %s", r.AccountID, r.OtherID)
	case "version-mismatch":
		return fmt.Sprintf("account %s has version %s", r.AccountID, r.Version)
	case "hold-status":
		return fmt.Sprintf("hold %s is %s", r.OtherID, r.Status)
	case "capture-exceeds-hold":
		return fmt.Sprintf("%s %s is left of hold %s and %s is required", r.Available, r.Currency, r.OtherID, r.Required)
	case "reversal-exceeds-transfer":
		return fmt.Sprintf("%s %s is left of transfer %s and %s is required", r.Available, r.Currency, r.OtherID, r.Required)
	}
	return fmt.Sprintf("account %s: %v", r.AccountID, refusals[r.Code])
}

// Is reports whether r is the refusal that target names.
func (r *Refusal) Is(target error) bool { return refusals[r.Code] == target }

package accounts

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/money"
)

// What can go wrong with an account, besides [*OutOfLimitsError],
// [*invalid.Error], [idempotency.ErrKeyReused] and package retry's errors.
// After any of these nothing has changed.
var (
	// ErrNotFound: there is no account with this id.
	ErrNotFound = errors.New("account not found")

	// ErrExists: an account with the id that was asked for is there already.
	ErrExists = errors.New("an account with this id exists")

	// ErrClosed: the account is closed, for good.
	ErrClosed = errors.New("the account is closed")

	// ErrNotEmpty: an account is closed with a zero balance only, of which no
	// hold reserves anything.
	ErrNotEmpty = errors.New("the account's balance is not zero, or held in part")

	// ErrExternal: external accounts are not changed but by transfers.
	ErrExternal = errors.New("the account is an external account")
)

// An OutOfLimitsError says that a limit was asked for which the balance breaks
// already: what is available is below the new MinBalance, or the balance is
// above the new MaxBalance. One of the two is set.
type OutOfLimitsError struct {
	AccountID              uuid.UUID
	Currency               string
	Balance, Held          decimal.Decimal
	MinBalance, MaxBalance *decimal.Decimal
}

func (e *OutOfLimitsError) Error() string {
	has := fmt.Sprintf("account %s has %s %s, of which %s is held", e.AccountID,
		money.Format(e.Balance, e.Currency), e.Currency, money.Format(e.Held, e.Currency))
	if e.MinBalance != nil {
		return fmt.Sprintf("%s: what is available is below a min_balance of %s", has, money.Format(*e.MinBalance, e.Currency))
	}
	return fmt.Sprintf("%s: the balance is above a max_balance of %s", has, money.Format(*e.MaxBalance, e.Currency))
}

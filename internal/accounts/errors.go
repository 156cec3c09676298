package accounts

import "errors"

// What can go wrong with an account, besides [*invalid.Error],
// [idempotency.ErrKeyReused] and package retry's errors. After any of these
// nothing has changed.
var (
	// ErrNotFound: there is no account with this id.
	ErrNotFound = errors.New("account not found")

	// ErrExists: an account with the id that was asked for is there already.
	ErrExists = errors.New("an account with this id exists")

	// ErrClosed: the account is closed, for good.
	ErrClosed = errors.New("the account is closed")

	// ErrNotEmpty: an account is closed with a zero balance only.
	ErrNotEmpty = errors.New("the account's balance is not zero")

	// ErrExternal: external accounts are neither frozen nor closed.
	ErrExternal = errors.New("the account is an external account")
)

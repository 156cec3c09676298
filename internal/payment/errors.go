package payment

import (
	"errors"
	"fmt"
)

// ErrNotFound says that there is no payment with this id. What else can go
// wrong when a payment is asked for or changed: [*invalid.Error],
// [transfer.ErrSameAccount], [*StatusError], [idempotency.ErrKeyReused] and
// package retry's errors. After any of them but [retry.ErrCommitUnknown],
// nothing has changed.
var ErrNotFound = errors.New("payment not found")

// A StatusError says that a payment's status does not allow what was asked for.
// While it is being made, that may change at any moment.
type StatusError struct {
	Status string // that it has
	Change string // that was asked for: approve, cancel or retry
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("a payment that is %s cannot be changed by %q", e.Status, e.Change)
}

// Codes of attempts that ended without a transfer, besides those of
// [transfer.Refusal]. They are problem codes: docs/problems.md explains them.
const (
	CodeDenied          = "payment-denied"    // the hook said no
	CodeLeaseExpired    = "lease-expired"     // the worker went away
	CodeHookUnavailable = "hook-unavailable"  // the hook did not answer; does not count
	CodeLater           = "payment-postponed" // the hook said later; does not count
	CodeLockUnavailable = "lock-unavailable"  // an account is locked; does not count
	CodeUnavailable     = "unavailable"       // the database is not; does not count
	CodeContention      = "contention"        // conflicts; does not count
	CodeInternal        = "internal"          // anything else
)

// internalDetail is the detail of [CodeInternal]: the cause is not for callers.
const internalDetail = "something is wrong with the service, and has been logged"

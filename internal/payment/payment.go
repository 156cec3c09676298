// Package payment keeps transfers that are asked for now and made later, by
// workers. Its one idea: a payment is a row that exactly one worker holds while
// it makes the transfer, by a row lock where the work is one transaction, and by
// a lease where it takes longer; its transfer has its id, so no two can be made.
// Start reading at [Service.Enqueue], and for the workers at [Workers.Run].
package payment

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/money"
	"github.com/rowlock/ledger/internal/transfer"
)

// Statuses of a payment. docs/payments.md has their arrows.
const (
	Scheduled        = "scheduled"         // waits for its run_at
	AwaitingApproval = "awaiting_approval" // waits for [Service.Approve]
	Queued           = "queued"            // due: waits for a worker
	Processing       = "processing"        // leased by a worker
	Done             = "done"              // made, for good
	Failed           = "failed"            // given up, until [Service.Retry]
	Canceled         = "canceled"          // called off, for good
)

// Statuses returns all of them.
func Statuses() []string {
	return []string{Scheduled, AwaitingApproval, Queued, Processing, Done, Failed, Canceled}
}

// Bounds of what callers may ask for.
const (
	MaxPriority        = 9
	DefaultMaxAttempts = 5
	MaxMaxAttempts     = 100
)

// A Payment is a transfer that was asked for and is made later. The transfer,
// once it is made, has the payment's id.
type Payment struct {
	ID              uuid.UUID
	Status          string
	DebitAccountID  uuid.UUID // pays
	CreditAccountID uuid.UUID // is paid
	Amount          decimal.Decimal
	Currency        string
	Description     string
	Metadata        map[string]string
	Priority        int       // 0 to 9, which is the most urgent
	RunAt           time.Time // not before; moved on by an attempt that did not make it

	// Attempts counts those that ended in a failure or in the transfer. One
	// that lost a conflict, or found the database or the hook not available,
	// does not count, and is seen in LastCode alone.
	Attempts, MaxAttempts int
	Failures              []Failure // one for each failed attempt since the last retry
	LastCode              string    // problem code of the latest attempt; "" for none and for success

	NeedsApproval bool
	ApprovedBy    string     // principal
	ApprovedAt    *time.Time // nil: not approved
	CreatedAt     time.Time
	FinishedAt    *time.Time // nil before done, failed and canceled
	LeasedUntil   *time.Time // nil where it is not leased

	leaseNumber int64
}

// A Failure is how one attempt ended.
type Failure struct {
	Attempt int       `json:"attempt"`
	Code    string    `json:"code"`   // the problem's
	Detail  string    `json:"detail"` // a sentence
	At      time.Time `json:"at"`
}

// A Command asks for a payment.
type Command struct {
	DebitAccountID  uuid.UUID
	CreditAccountID uuid.UUID
	Amount          decimal.Decimal // major units
	Currency        string
	Description     string
	Metadata        map[string]string
	RunAt           time.Time // zero: as soon as possible
	Priority        int
	NeedsApproval   bool
	MaxAttempts     int              // 0 means DefaultMaxAttempts
	Key             *idempotency.Key // nil: every call is another payment
}

// Validate returns an [*invalid.Error] with all that is wrong with c, or
// [transfer.ErrSameAccount], or nil. The accounts are looked at when the
// payment is made.
func (c Command) Validate() error {
	var check invalid.Check
	if c.Priority < 0 || c.Priority > MaxPriority {
		check.Add("priority", "must be a number from 0 to %d", MaxPriority)
	}
	if c.MaxAttempts < 0 || c.MaxAttempts > MaxMaxAttempts {
		check.Add("max_attempts", "must be a number from 1 to %d", MaxMaxAttempts)
	}
	if year := c.RunAt.UTC().Year(); !c.RunAt.IsZero() && (year < minYear || year > maxYear) {
		check.Add("run_at", "must be in the years %d to %d", minYear, maxYear)
	}
	if c.Key != nil {
		c.Key.Check(&check)
	}
	other := check.Join(c.transfer().Validate())
	if err := check.Err(); err != nil {
		return err
	}
	return other
}

// The years of a run_at that is no mistake.
const (
	minYear = 2000
	maxYear = 9999
)

// transfer is the transfer that c asks for.
func (c Command) transfer() transfer.Command {
	return transfer.Command{
		Kind: transfer.Between, DebitAccountID: c.DebitAccountID, CreditAccountID: c.CreditAccountID,
		Amount: c.Amount, Currency: c.Currency, Description: c.Description, Metadata: c.Metadata,
	}
}

// withDefaults is c as it is stored: without a choice left, in PostgreSQL's
// microseconds.
func (c Command) withDefaults() Command {
	if c.MaxAttempts == 0 {
		c.MaxAttempts = DefaultMaxAttempts
	}
	if c.Metadata == nil {
		c.Metadata = map[string]string{} // as it is read back
	}
	c.RunAt = c.RunAt.UTC().Truncate(time.Microsecond)
	return c
}

func (c Command) fingerprint() idempotency.Fingerprint {
	runAt := ""
	if !c.RunAt.IsZero() {
		runAt = c.RunAt.Format(time.RFC3339Nano)
	}
	return idempotency.Sum("POST /v1/payments",
		c.DebitAccountID.String(), c.CreditAccountID.String(), money.Format(c.Amount, c.Currency), c.Currency,
		c.Description, idempotency.SumMap(c.Metadata), runAt,
		strconv.Itoa(c.Priority), strconv.FormatBool(c.NeedsApproval), strconv.Itoa(c.MaxAttempts))
}

// order is p as an order for its transfer.
func (p Payment) order() transfer.Order {
	return transfer.Order{ID: p.ID, Command: transfer.Command{
		Kind: transfer.Between, DebitAccountID: p.DebitAccountID, CreditAccountID: p.CreditAccountID,
		Amount: p.Amount, Currency: p.Currency, Description: p.Description, Metadata: p.Metadata,
	}}
}

// A Filter selects payments, the latest first.
type Filter struct {
	Status    string    // "": any
	AccountID uuid.UUID // either side; uuid.Nil: any
	Before    uuid.UUID // the id that was seen last; uuid.Nil: from the latest
	Limit     int       // how many at most
}

// CheckStatus notes a fault unless status is one.
func CheckStatus(c *invalid.Check, status string) {
	if !slices.Contains(Statuses(), status) {
		c.Add("status", "must be one of %s", strings.Join(Statuses(), ", "))
	}
}

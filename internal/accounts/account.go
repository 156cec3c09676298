// Package accounts opens, reads, lists, changes and closes the holders of
// balances, and reads their statements. It never writes a balance: that is
// package transfer's. Start reading at [Service].
package accounts

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/money"
)

// External is the kind of account that is the outside of the ledger, one a
// currency. All others are of kind "customer".
const External = "external"

// Statuses of an account.
const (
	Open   = "open"
	Frozen = "frozen" // no debits, no credits
	Closed = "closed" // for good, with a zero balance
)

// An Account holds a balance in one currency; a credit raises it.
//
// Answers that idempotency keys keep have it as JSON, by these names: a field
// may be added, and is zero in what was stored before.
type Account struct {
	ID             uuid.UUID
	Kind           string
	Currency       string
	Name           string
	Status         string
	Balance        decimal.Decimal  // major units
	Held           decimal.Decimal  // what open holds reserve
	MinBalance     *decimal.Decimal // nil: no limit, as the external accounts have
	MaxBalance     *decimal.Decimal // nil: no limit
	DebitsBlocked  bool
	CreditsBlocked bool
	Version        int64 // counts the entries
	Metadata       map[string]string
	CreatedAt      time.Time
}

// Available is the part of the balance that no hold reserves.
func (a Account) Available() decimal.Decimal { return a.Balance.Sub(a.Held) }

// An Entry is one side of a transfer, as the statement of its account shows it.
type Entry struct {
	AccountID      uuid.UUID
	Version        int64 // its place in the statement: 1, 2, 3, without gaps
	Direction      string
	Amount         decimal.Decimal
	BalanceAfter   decimal.Decimal
	TransferID     uuid.UUID
	OtherAccountID uuid.UUID
	Currency       string
	CreatedAt      time.Time
}

// ExternalID is the id of the external account of a currency. It is fixed, so
// that nobody has to look it up, and sorts after every other id, so that the
// hottest rows are locked last. Version 8, by RFC 9562.
func ExternalID(currency string) uuid.UUID {
	id := uuid.UUID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x8f, 0xff, 0xbf, 0xff}
	copy(id[10:13], currency) // which nobody may have validated yet
	return id
}

// IsExternal reports whether id is in the range that is kept for the external
// accounts: no other account may have an id there.
func IsExternal(id uuid.UUID) bool {
	return id[0] == 0xff && id[1] == 0xff && id[2] == 0xff && id[3] == 0xff
}

// An Opening asks for a new account.
type Opening struct {
	ID         uuid.UUID // uuid.Nil: the ledger chooses one
	Currency   string
	Name       string
	MinBalance decimal.Decimal  // zero or negative, which is an overdraft
	MaxBalance *decimal.Decimal // zero or positive; nil: no limit
	Metadata   map[string]string
	Key        *idempotency.Key // nil: every call opens another account
}

// Validate returns an [*invalid.Error] with all that is wrong with o, or nil.
func (o Opening) Validate() error {
	var c invalid.Check
	if IsExternal(o.ID) {
		c.Add("id", "must not begin with ffffffff: these ids are the external accounts'")
	}
	if !money.IsCurrency(o.Currency) {
		c.Add("currency", "must be an ISO 4217 code in capitals, like USD")
	} else {
		checkScale(&c, o.Currency, &o.MinBalance, o.MaxBalance)
	}
	checkSigns(&c, &o.MinBalance, o.MaxBalance)
	c.Text("name", o.Name, invalid.MaxName)
	c.Metadata("metadata", o.Metadata)
	if o.Key != nil {
		o.Key.Check(&c)
	}
	return c.Err()
}

func (o Opening) fingerprint() idempotency.Fingerprint {
	id := "" // an id of our choice is not part of what was asked for
	if o.ID != uuid.Nil {
		id = o.ID.String()
	}
	fields := []string{id, o.Currency, o.Name, money.Format(o.MinBalance, o.Currency), idempotency.SumMap(o.Metadata)}
	if o.MaxBalance != nil { // without one, the sum is what it was before there were any
		fields = append(fields, money.Format(*o.MaxBalance, o.Currency))
	}
	return idempotency.Sum("POST /v1/accounts", fields...)
}

// A Filter selects accounts, in the order of their ids.
type Filter struct {
	Currency string    // "": any
	Status   string    // "": any
	After    uuid.UUID // uuid.Nil: from the first
	Limit    int       // how many at most
}

// A Page selects entries of a statement.
type Page struct {
	Descending bool
	After      int64 // the version that was seen last; 0: from the start
	Limit      int
}

// CheckStatus notes a fault unless status is one.
func CheckStatus(c *invalid.Check, status string) {
	if all := []string{Open, Frozen, Closed}; !slices.Contains(all, status) {
		c.Add("status", "must be one of %s", strings.Join(all, ", "))
	}
}

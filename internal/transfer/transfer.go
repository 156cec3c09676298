// Package transfer moves money between accounts. Its one idea: every way of
// moving money under concurrency is a value, a [Mode], and all of them move a
// slice of transfers through the same path; one transfer is a slice of one.
// Start reading at [Service.Create]; the locks of a mode are in its own file.
package transfer

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/money"
)

// Kinds of transfer.
const (
	Between = "transfer" // between two accounts of the ledger's customers
	Debit   = "debit"    // money that leaves the ledger: the credit side is external
	Credit  = "credit"   // money that enters it: the debit side is external
)

// A Transfer is a debit and a credit of the same amount. It never changes once
// it is stored.
type Transfer struct {
	ID              uuid.UUID
	Kind            string
	DebitAccountID  uuid.UUID // pays
	CreditAccountID uuid.UUID // is paid
	Amount          decimal.Decimal
	Currency        string
	Description     string
	Metadata        map[string]string

	// What the transfer belongs to; uuid.Nil or "": nothing.
	HoldID             uuid.UUID // it captures that hold
	ReversesTransferID uuid.UUID // it takes back that transfer, or a part of it
	BatchID            uuid.UUID // it was made together with the others of that batch
	Reference          string    // the caller's own name for it

	// The accounts after the transfer. A version is the transfer's place in
	// that account's statement.
	DebitBalanceAfter, CreditBalanceAfter decimal.Decimal
	DebitVersion, CreditVersion           int64

	// CreatedAt is the database's clock, read when both rows were held: for
	// one account it never falls as the version rises.
	CreatedAt time.Time

	// TxID is the database transaction; (TxID, ID) is the order of [Service.List].
	TxID uint64
}

// A Command asks for a transfer. [NewDebit] and [NewCredit] make those of the
// other two kinds.
type Command struct {
	Call
	Kind            string
	DebitAccountID  uuid.UUID
	CreditAccountID uuid.UUID
	Amount          decimal.Decimal // major units
	Currency        string
	Reference       string // the caller's own name for it, used once for an account; "": none
	IfVersion       *int64 // nil: any; the version that the debit account must have
	Description     string
	Metadata        map[string]string
}

// NewDebit takes money from an account out of the ledger.
func NewDebit(account uuid.UUID, amount decimal.Decimal, currency string) Command {
	return Command{Kind: Debit, DebitAccountID: account, CreditAccountID: accounts.ExternalID(currency), Amount: amount, Currency: currency}
}

// NewCredit brings money from outside into an account.
func NewCredit(account uuid.UUID, amount decimal.Decimal, currency string) Command {
	return Command{Kind: Credit, DebitAccountID: accounts.ExternalID(currency), CreditAccountID: account, Amount: amount, Currency: currency}
}

// Validate returns an [*invalid.Error] with all that is wrong with c, or
// [ErrSameAccount], or nil. It knows nothing of the accounts.
func (c Command) Validate() error {
	var check invalid.Check
	checkMoney(&check, c.Amount, c.Currency)
	if all := []string{Between, Debit, Credit}; !slices.Contains(all, c.Kind) {
		check.Add("kind", "must be one of %s", strings.Join(all, ", "))
	}
	for _, side := range c.named() {
		checkAccount(&check, side.field, side.id)
	}
	if c.IfVersion != nil && *c.IfVersion < 0 {
		check.Add("if_version", "must not be negative")
	}
	checkText(&check, c.Call, c.Reference, c.Description, c.Metadata)
	if err := check.Err(); err != nil {
		return err
	}
	if c.DebitAccountID == c.CreditAccountID {
		return ErrSameAccount
	}
	return nil
}

func checkMoney(check *invalid.Check, amount decimal.Decimal, currency string) {
	if !money.IsCurrency(currency) {
		check.Add("currency", "must be an ISO 4217 code in capitals, like USD")
	} else if err := money.CheckAmount(amount, currency); err != nil {
		check.Add("amount", "%v", err)
	}
}

func checkAccount(check *invalid.Check, field string, id uuid.UUID) {
	if id == uuid.Nil {
		check.Add(field, "is required")
	} else if accounts.IsExternal(id) {
		check.Add(field, "must not be an external account: debits and credits have it as their other side")
	}
}

// MaxReference is how long a reference may be, in characters.
const MaxReference = 200

// checkText notes the faults of what all kinds of transfers have.
func checkText(check *invalid.Check, call Call, reference, description string, metadata map[string]string) {
	check.Text("reference", reference, MaxReference)
	check.Text("description", description, invalid.MaxDescription)
	check.Metadata("metadata", metadata)
	if call.Key != nil {
		call.Key.Check(check)
	}
}

// A named account is one that the caller named, and the field that named it.
type named struct {
	field string
	id    uuid.UUID
}

func (c Command) named() []named {
	switch c.Kind {
	case Debit:
		return []named{{"account_id", c.DebitAccountID}}
	case Credit:
		return []named{{"account_id", c.CreditAccountID}}
	}
	return []named{{"debit_account_id", c.DebitAccountID}, {"credit_account_id", c.CreditAccountID}}
}

func (c Command) route() string { return "POST /v1/" + c.Kind + "s" }

// fields are what c asks for, as a key's fingerprint has it. What was added to
// the API later is there only where it is used: the keys of before are still good.
func (c Command) fields() []string {
	fields := []string{
		c.DebitAccountID.String(), c.CreditAccountID.String(),
		money.Format(c.Amount, c.Currency), c.Currency, c.Description, idempotency.SumMap(c.Metadata),
	}
	if c.Reference != "" {
		fields = append(fields, "reference", c.Reference)
	}
	if c.IfVersion != nil {
		fields = append(fields, "if_version", strconv.FormatInt(*c.IfVersion, 10))
	}
	return fields
}

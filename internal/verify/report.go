package verify

import (
	"fmt"
	"io"
	"slices"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/money"
)

// A Kind says which invariant does not hold.
type Kind string

// The kinds, in the order in which they are reported.
const (
	CurrencySum         Kind = "currency-sum"         // the balances of a currency do not add up to zero
	Balance             Kind = "balance"              // a balance is not the sum of its entries
	Held                Kind = "held"                 // a held amount is not what is left of the open holds
	Overdrawn           Kind = "overdrawn"            // what is available is below nothing
	AboveMaximum        Kind = "above-maximum"        // a balance is above its maximum
	Version             Kind = "version"              // a version is not the count of the entries
	VersionGap          Kind = "version-gap"          // a statement lacks a version, or has it twice
	RunningBalance      Kind = "running-balance"      // an entry does not follow from the one before
	TimeFalls           Kind = "time-falls"           // an entry is older than the one before
	MissingAccount      Kind = "missing-account"      // a transfer or a hold names an account that is not there
	CurrencyMismatch    Kind = "currency-mismatch"    // a transfer or a hold is not in its account's currency
	HoldCaptured        Kind = "hold-captured"        // what was captured of a hold is not the sum of its captures
	HoldStatus          Kind = "hold-status"          // a hold has ended and something is open, or the reverse
	WrongCapture        Kind = "wrong-capture"        // a transfer captures no such hold
	WrongReversal       Kind = "wrong-reversal"       // a transfer takes back no such transfer
	OverReversed        Kind = "over-reversed"        // more of a transfer was taken back than there was
	WrongMember         Kind = "wrong-member"         // a transfer is not where its batch has its members
	DuplicateReference  Kind = "duplicate-reference"  // an account has a reference twice
	ReferencesUnguarded Kind = "references-unguarded" // no index keeps references unique
	KeyWithoutTransfer  Kind = "key-without-transfer" // a key that succeeded names no transfer, hold or batch
	RefusedTransfer     Kind = "refused-transfer"     // a key that was refused names a stored transfer, hold or batch
	PaymentNotMade      Kind = "payment-not-made"     // a payment that is done has no such transfer
	PaymentNotDone      Kind = "payment-not-done"     // a payment has a transfer and is not done
)

// Kinds returns every kind, in the order of reports.
func Kinds() []Kind {
	return []Kind{CurrencySum, Balance, Held, Overdrawn, AboveMaximum, Version, VersionGap, RunningBalance, TimeFalls,
		MissingAccount, CurrencyMismatch, HoldCaptured, HoldStatus, WrongCapture, WrongReversal, OverReversed, WrongMember,
		DuplicateReference, ReferencesUnguarded, KeyWithoutTransfer, RefusedTransfer, PaymentNotMade, PaymentNotDone}
}

// A Finding is one thing that is off.
type Finding struct {
	Kind       Kind            `json:"kind"`
	AccountID  uuid.UUID       `json:"account_id,omitzero"`
	TransferID uuid.UUID       `json:"transfer_id,omitzero"`
	HoldID     uuid.UUID       `json:"hold_id,omitzero"`
	Currency   string          `json:"currency,omitempty"`
	Amount     decimal.Decimal `json:"amount,omitzero"` // by how much, with its sign; zero where that says nothing
	Detail     string          `json:"detail"`
}

// A Total is what one currency adds up to. All amounts are in major units, and
// all of them are zero in a ledger without damage.
type Total struct {
	Currency string `json:"currency"`

	// Sum is the sum of all balances, the external account's included.
	Sum decimal.Decimal `json:"sum"`

	// Customers and External are Σ |balance − Σ entries|: what is missing from
	// balances, or too much in them, without regard to the sign.
	Customers decimal.Decimal `json:"customers_off"`
	External  decimal.Decimal `json:"external_off"`

	// Overwritten is Σ |balance_after − what follows from the entry before|:
	// updates that were lost one by one, including those that cancel within
	// one account.
	Overwritten decimal.Decimal `json:"overwritten"`
}

// MaxFindings is how many findings of one kind a report lists. It counts all.
const MaxFindings = 20

// A Report is what [Ledger] found.
type Report struct {
	Accounts  int64          `json:"accounts"`
	Transfers int64          `json:"transfers"`
	Holds     int64          `json:"holds"`
	Keys      int64          `json:"keys"`
	Payments  int64          `json:"payments"`
	Totals    []Total        `json:"totals"`   // by currency
	Counts    map[Kind]int64 `json:"counts"`   // all findings, by kind
	Findings  []Finding      `json:"findings"` // the first of each kind
}

func newReport() *Report {
	return &Report{Counts: map[Kind]int64{}, Findings: []Finding{}, Totals: []Total{}}
}

// Clean reports whether every invariant holds.
func (r Report) Clean() bool { return len(r.Counts) == 0 }

// WriteText writes r for people: the counts, and every listed finding with its
// exact amount.
func (r Report) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d accounts, %d transfers, %d holds, %d idempotency keys, %d payments\n",
		r.Accounts, r.Transfers, r.Holds, r.Keys, r.Payments)
	if err != nil {
		return err
	}
	if r.Clean() {
		_, err = fmt.Fprintln(w, "every invariant holds")
		return err
	}
	for _, kind := range Kinds() {
		if err := r.writeKind(w, kind); err != nil {
			return err
		}
	}
	return nil
}

func (r Report) writeKind(w io.Writer, kind Kind) error {
	count := r.Counts[kind]
	if count == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(w, "\n%s: %d\n", kind, count); err != nil {
		return err
	}
	listed := int64(0)
	for _, f := range r.Findings {
		if f.Kind != kind {
			continue
		}
		listed++
		if _, err := fmt.Fprintf(w, "  %s\n", f.Detail); err != nil {
			return err
		}
	}
	if listed < count {
		_, err := fmt.Fprintf(w, "  … and %d more\n", count-listed)
		return err
	}
	return nil
}

// add counts f, and lists it if there is room.
func (r *Report) add(f Finding) {
	r.Counts[f.Kind]++
	if r.Counts[f.Kind] <= MaxFindings {
		r.Findings = append(r.Findings, f)
	}
}

// total returns currency's total, which it adds where an entry is in a
// currency that no account has.
func (r *Report) total(currency string) *Total {
	i := slices.IndexFunc(r.Totals, func(t Total) bool { return t.Currency == currency })
	if i < 0 {
		r.Totals = append(r.Totals, Total{Currency: currency})
		i = len(r.Totals) - 1
	}
	return &r.Totals[i]
}

// signed writes an amount with the sign that it always has.
func signed(d decimal.Decimal, currency string) string {
	text := money.Format(d, currency)
	if d.Sign() > 0 {
		text = "+" + text
	}
	return text + " " + currency
}

// Package money knows amounts and currencies: their grammar, scale and limits,
// and how they are written. No I/O.
//
// An amount is in major units (dollars, not cents) and is never rounded: text
// that does not fit its currency is refused. Start reading at [ParseAmount].
package money

import (
	"errors"
	"fmt"
	"strings"

	"github.com/bojanz/currency"
	"github.com/shopspring/decimal"
)

// MaxIntegerDigits bounds an amount: less than 10^18. The database has the
// same bound, and one of 10^28 for balances, [BalanceLimit].
const MaxIntegerDigits = 18

// BalanceLimit is what the magnitude of a balance stays below: 10^28.
var BalanceLimit = decimal.New(1, 28)

var amountLimit = decimal.New(1, MaxIntegerDigits)

// IsCurrency reports whether code is an ISO 4217 currency, in capitals.
func IsCurrency(code string) bool {
	return code != "" && currency.IsValid(code) // for which no currency is one
}

// Digits returns how many digits an amount of the currency has after the dot,
// by ISO 4217: 2 for USD, 0 for JPY, 3 for KWD. It is 0 for an unknown code.
func Digits(code string) int {
	digits, ok := currency.GetDigits(code)
	if !ok {
		return 0
	}
	return int(digits)
}

// ParseAmount reads a positive amount of a known currency. The grammar:
//
//	amount   = integer [ "." 1*DIGIT ]   ; at most the currency's digits
//	integer  = "0" / ( nonzero *DIGIT )  ; at most 18 digits
//
// There is no sign, exponent, space or grouping. The error says what is wrong,
// as a sentence without its subject.
func ParseAmount(text, code string) (decimal.Decimal, error) {
	d, err := parse(text, code)
	if err != nil {
		return decimal.Zero, err
	}
	return d, CheckAmount(d, code)
}

// ParseSigned reads an amount as [ParseAmount] does, but zero and, after a
// minus, negative ones as well. A negative zero is refused.
func ParseSigned(text, code string) (decimal.Decimal, error) {
	digits, negative := strings.CutPrefix(text, "-")
	d, err := parse(digits, code)
	if err != nil || !negative {
		return d, err
	}
	if d.IsZero() {
		return decimal.Zero, errors.New("must not be a negative zero")
	}
	return d.Neg(), nil
}

// CheckAmount returns why d cannot be an amount of the currency, or nil: it
// must be positive, below 10^18, and have no more digits than the currency.
func CheckAmount(d decimal.Decimal, code string) error {
	if d.Sign() <= 0 {
		return errors.New("must be greater than zero")
	}
	return CheckRange(d, code)
}

// CheckRange returns why d cannot be an amount of the currency of any sign.
func CheckRange(d decimal.Decimal, code string) error {
	if d.Abs().Cmp(amountLimit) >= 0 {
		return tooLarge()
	}
	if digits := Digits(code); !d.Equal(d.Truncate(int32(digits))) {
		return tooPrecise(code, digits)
	}
	return nil
}

// Format writes d with exactly the currency's digits: "200.00", "200", "1.234".
// It never rounds: a number that has more of them, which nothing stores, is
// written with all it has.
func Format(d decimal.Decimal, code string) string {
	digits := int32(Digits(code))
	if -d.Exponent() > digits && !d.Equal(d.Truncate(digits)) {
		return d.String()
	}
	return d.StringFixed(digits)
}

// parse reads text by the grammar before the decimal library, which knows many
// more spellings, sees it.
func parse(text, code string) (decimal.Decimal, error) {
	integer, fraction, dotted := strings.Cut(text, ".")
	switch {
	case !allDigits(integer) || dotted && !allDigits(fraction):
		return decimal.Zero, errors.New(`must be plain digits with an optional dot, like "200.00"`)
	case len(integer) > 1 && integer[0] == '0':
		return decimal.Zero, errors.New("must not have leading zeros")
	case len(integer) > MaxIntegerDigits:
		return decimal.Zero, tooLarge()
	case len(fraction) > Digits(code):
		return decimal.Zero, tooPrecise(code, Digits(code))
	}
	return decimal.NewFromString(text)
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

func tooLarge() error {
	return fmt.Errorf("must have at most %d digits before the dot", MaxIntegerDigits)
}

func tooPrecise(code string, digits int) error {
	if digits == 0 {
		return fmt.Errorf("must have no digits after the dot: %s has none", code)
	}
	return fmt.Errorf("must have at most %d digits after the dot, as %s has", digits, code)
}

package money_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/money"
)

func TestParseAmountReadsWhatTheGrammarAllows(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, currency, want string }{
		{"200.00", "USD", "200.00"},
		{"200", "USD", "200.00"},
		{"200.5", "USD", "200.50"},
		{"10.0", "USD", "10.00"},
		{"0.01", "USD", "0.01"},
		{"0.10", "USD", "0.10"},
		{"999999999999999999.99", "USD", "999999999999999999.99"},
		{"9007199254740993.01", "USD", "9007199254740993.01"},
		{"100", "JPY", "100"},
		{"1", "JPY", "1"},
		{"1.234", "KWD", "1.234"},
		{"0.001", "KWD", "0.001"},
		{"5", "KWD", "5.000"},
		{"0.0001", "CLF", "0.0001"},
		{"1.5", "IQD", "1.500"},
	} {
		got, err := money.ParseAmount(tt.text, tt.currency)
		if err != nil {
			t.Errorf("ParseAmount(%q, %s) = %v, want an amount", tt.text, tt.currency, err)
			continue
		}
		if text := money.Format(got, tt.currency); text != tt.want {
			t.Errorf("ParseAmount(%q, %s) is written %q, want %q", tt.text, tt.currency, text, tt.want)
		}
	}
}

const (
	notPlain     = "plain digits"
	leadingZeros = "leading zeros"
	notPositive  = "greater than zero"
	tooLarge     = "at most 18 digits before the dot"
	twoDigits    = "at most 2 digits after the dot"
	threeDigits  = "at most 3 digits after the dot"
	noDigits     = "no digits after the dot"
)

func TestParseAmountRefusesEverythingElse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, currency, why string }{
		{"", "USD", notPlain},
		{" ", "USD", notPlain},
		{" 1", "USD", notPlain},
		{"1 ", "USD", notPlain},
		{"1\n", "USD", notPlain},
		{"+1", "USD", notPlain},
		{"-1", "USD", notPlain},
		{"-0", "USD", notPlain},
		{"-0.00", "USD", notPlain},
		{".5", "USD", notPlain},
		{"5.", "USD", notPlain},
		{".", "USD", notPlain},
		{".+5", "USD", notPlain},
		{".-5", "USD", notPlain},
		{"1.+5", "USD", notPlain},
		{"1.2.3", "USD", notPlain},
		{"1,000.00", "USD", notPlain},
		{"1_000", "USD", notPlain},
		{"1e2", "USD", notPlain},
		{"1E2", "USD", notPlain},
		{"1.5e1", "USD", notPlain},
		{"0x10", "USD", notPlain},
		{"NaN", "USD", notPlain},
		{"nan", "USD", notPlain},
		{"Infinity", "USD", notPlain},
		{"-inf", "USD", notPlain},
		{"null", "USD", notPlain},
		{"１０", "USD", notPlain}, // full-width digits
		{"٣", "USD", notPlain},  // Arabic-Indic
		{"1\x00", "USD", notPlain},
		{"1\xff", "USD", notPlain},
		{"010.00", "USD", leadingZeros},
		{"00", "USD", leadingZeros},
		{"0", "USD", notPositive},
		{"0.00", "USD", notPositive},
		{"0.001", "USD", twoDigits},
		{"0.005", "USD", twoDigits},
		{"10.999", "USD", twoDigits},
		{"10.000", "USD", twoDigits},
		{"100.5", "JPY", noDigits},
		{"100.00", "JPY", noDigits},
		{"1.2345", "KWD", threeDigits},
		{"1000000000000000000", "USD", tooLarge},
		{"99999999999999999999999999999999999999", "USD", tooLarge},
	} {
		got, err := money.ParseAmount(tt.text, tt.currency)
		if err == nil || !strings.Contains(err.Error(), tt.why) {
			t.Errorf("ParseAmount(%q, %s) = %v, %v, want an error that says %q", tt.text, tt.currency, got, err, tt.why)
		}
	}
}

func TestParseSignedReadsZeroAndNegative(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"0", "0.00"},
		{"0.00", "0.00"},
		{"-0.01", "-0.01"},
		{"-200", "-200.00"},
		{"200.5", "200.50"},
	} {
		got, err := money.ParseSigned(tt.text, "USD")
		if err != nil {
			t.Errorf("ParseSigned(%q) = %v, want an amount", tt.text, err)
			continue
		}
		if text := money.Format(got, "USD"); text != tt.want {
			t.Errorf("ParseSigned(%q) is written %q, want %q", tt.text, text, tt.want)
		}
	}
	for _, text := range []string{"-0", "-0.00", "--1", "-", "+1", "- 1", "-.5", "-01", "-0.001", "-1000000000000000000"} {
		if got, err := money.ParseSigned(text, "USD"); err == nil {
			t.Errorf("ParseSigned(%q) = %v, want an error", text, got)
		}
	}
}

func TestCurrenciesAreISO4217InCapitals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		code   string
		want   bool
		digits int
	}{
		{"USD", true, 2}, {"EUR", true, 2}, {"HUF", true, 2}, {"MGA", true, 2},
		{"JPY", true, 0}, {"KRW", true, 0}, {"ISK", true, 0}, {"CLP", true, 0}, {"UGX", true, 0}, {"XAF", true, 0},
		{"KWD", true, 3}, {"BHD", true, 3}, {"IQD", true, 3}, {"JOD", true, 3}, {"LYD", true, 3}, {"OMR", true, 3}, {"TND", true, 3},
		{"CLF", true, 4}, {"UYW", true, 4},
		{"", false, 0}, {"usd", false, 0}, {"Usd", false, 0}, {"XXX", false, 0}, {"XAU", false, 0},
		{"US", false, 0}, {"USDX", false, 0}, {"USD ", false, 0},
	} {
		if got := money.IsCurrency(tt.code); got != tt.want {
			t.Errorf("IsCurrency(%q) = %v, want %v", tt.code, got, tt.want)
		}
		if got := money.Digits(tt.code); got != tt.digits {
			t.Errorf("Digits(%q) = %d, want %d", tt.code, got, tt.digits)
		}
	}
}

func TestFormatNeverRoundsAndHasNoNegativeZero(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ number, currency, want string }{
		{"0", "USD", "0.00"},
		{"-0", "USD", "0.00"},
		{"-0.00", "USD", "0.00"},
		{"-0.000", "JPY", "0"},
		{"-0.001", "USD", "-0.001"},
		{"0.005", "USD", "0.005"},
		{"1.100", "USD", "1.10"},
		{"1e3", "USD", "1000.00"},
		{"200", "JPY", "200"},
		{"200.00", "JPY", "200"},
		{"-1.5", "KWD", "-1.500"},
		{"9999999999999999999999999999.99", "USD", "9999999999999999999999999999.99"},
		{"-1e27", "USD", "-1000000000000000000000000000.00"},
		{"0.123456789012345678", "USD", "0.123456789012345678"},
	} {
		if got := money.Format(decimal.RequireFromString(tt.number), tt.currency); got != tt.want {
			t.Errorf("Format(%s, %s) = %q, want %q", tt.number, tt.currency, got, tt.want)
		}
	}
}

func TestCheckAmountJudgesNumbersThatNobodyParsed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ number, currency, why string }{
		{"1", "USD", ""},
		{"1.50", "USD", ""},
		{"1.500", "USD", ""}, // the same number
		{"1e2", "JPY", ""},
		{"999999999999999999.99", "USD", ""},
		{"0", "USD", notPositive},
		{"-1", "USD", notPositive},
		{"1.005", "USD", twoDigits},
		{"0.5", "JPY", noDigits},
		{"1e18", "USD", tooLarge},
		{"1e40", "USD", tooLarge},
	} {
		err := money.CheckAmount(decimal.RequireFromString(tt.number), tt.currency)
		if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
			t.Errorf("CheckAmount(%s, %s) = %v, want %q", tt.number, tt.currency, err, tt.why)
		}
	}
}

var grammar = regexp.MustCompile(`^(0|[1-9][0-9]{0,17})(\.[0-9]+)?$`)

// Whatever is read obeys the grammar, and is the same number when it is
// written and read again.
func FuzzParseAmount(f *testing.F) {
	for _, text := range []string{"200.00", "0.001", "1.+5", "-0", "1e9", "٣", "00.1", "999999999999999999.9999"} {
		for _, currency := range []string{"USD", "JPY", "KWD", "CLF"} {
			f.Add(text, currency)
		}
	}
	f.Fuzz(func(t *testing.T, text, currency string) {
		if !money.IsCurrency(currency) {
			t.Skip()
		}
		d, err := money.ParseAmount(text, currency)
		if err != nil {
			return
		}
		if !grammar.MatchString(text) {
			t.Errorf("ParseAmount(%q, %s) = %s, want an error: it is not in the grammar", text, currency, d)
		}
		again, err := money.ParseAmount(money.Format(d, currency), currency)
		if err != nil || !again.Equal(d) || !decimal.RequireFromString(text).Equal(d) {
			t.Errorf("ParseAmount(%q, %s) = %s, and %s, %v when written and read again", text, currency, d, again, err)
		}
	})
}

var signedGrammar = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?$`)

// The same with a sign, and without the bound from below.
func FuzzParseSigned(f *testing.F) {
	for _, text := range []string{"-200.00", "0", "-0", "-0.00", "--1", "-", "+1", "-.5", "-999999999999999999.99", "-1000000000000000000"} {
		for _, currency := range []string{"USD", "JPY", "KWD", "CLF"} {
			f.Add(text, currency)
		}
	}
	f.Fuzz(func(t *testing.T, text, currency string) {
		if !money.IsCurrency(currency) {
			t.Skip()
		}
		d, err := money.ParseSigned(text, currency)
		if err != nil {
			return
		}
		if !signedGrammar.MatchString(text) || d.IsZero() && text[0] == '-' || money.CheckRange(d, currency) != nil {
			t.Errorf("ParseSigned(%q, %s) = %s, want an error", text, currency, d)
		}
		again, err := money.ParseSigned(money.Format(d, currency), currency)
		if err != nil || !again.Equal(d) || !decimal.RequireFromString(text).Equal(d) {
			t.Errorf("ParseSigned(%q, %s) = %s, and %s, %v when written and read again", text, currency, d, again, err)
		}
	})
}

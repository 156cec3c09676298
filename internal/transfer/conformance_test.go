package transfer_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/transfer"
)

// A cast is one account of each sort.
type cast struct {
	rich, poor, overdrawn, frozen, closed, euro, nobody uuid.UUID
}

func (l *ledger) cast(t *testing.T) cast {
	t.Helper()
	c := cast{
		rich: l.open(t, "USD", "100", "0"), poor: l.open(t, "USD", "0", "0"), overdrawn: l.open(t, "USD", "10", "-50"),
		frozen: l.open(t, "USD", "100", "0"), closed: l.open(t, "USD", "0", "0"), euro: l.open(t, "EUR", "100", "0"),
		nobody: uuid.Must(uuid.NewV7()),
	}
	if _, err := l.accounts.Freeze(t.Context(), c.frozen); err != nil {
		t.Fatalf("freeze: %v", err)
	}
	if _, err := l.accounts.Close(t.Context(), c.closed); err != nil {
		t.Fatalf("close: %v", err)
	}
	return c
}

type refusalCase struct {
	name    string
	command transfer.Command
	is      error
	want    transfer.Refusal
}

func refusalCases(a cast) []refusalCase {
	return []refusalCase{
		{"more than there is", between(a.rich, a.poor, "100.01", "USD"), transfer.ErrInsufficientFunds,
			transfer.Refusal{Code: "insufficient-funds", AccountID: a.rich, Available: "100.00", Required: "100.01", Currency: "USD"}},
		{"more than the overdraft", between(a.overdrawn, a.rich, "60.01", "USD"), transfer.ErrInsufficientFunds,
			transfer.Refusal{Code: "insufficient-funds", AccountID: a.overdrawn, Available: "60.00", Required: "60.01", Currency: "USD"}},
		{"debit of more than there is", transfer.NewDebit(a.poor, number("0.01"), "USD"), transfer.ErrInsufficientFunds,
			transfer.Refusal{Code: "insufficient-funds", AccountID: a.poor, Available: "0.00", Required: "0.01", Currency: "USD"}},
		{"from nobody", between(a.nobody, a.rich, "1", "USD"), transfer.ErrAccountNotFound,
			transfer.Refusal{Code: "account-not-found", AccountID: a.nobody}},
		{"to nobody", between(a.rich, a.nobody, "1", "USD"), transfer.ErrAccountNotFound,
			transfer.Refusal{Code: "account-not-found", AccountID: a.nobody}},
		{"credit to nobody", transfer.NewCredit(a.nobody, number("1"), "USD"), transfer.ErrAccountNotFound,
			transfer.Refusal{Code: "account-not-found", AccountID: a.nobody}},
		{"from frozen", between(a.frozen, a.rich, "1", "USD"), transfer.ErrAccountFrozen,
			transfer.Refusal{Code: "account-frozen", AccountID: a.frozen}},
		{"to frozen", between(a.rich, a.frozen, "1", "USD"), transfer.ErrAccountFrozen,
			transfer.Refusal{Code: "account-frozen", AccountID: a.frozen}},
		{"credit to frozen", transfer.NewCredit(a.frozen, number("1"), "USD"), transfer.ErrAccountFrozen,
			transfer.Refusal{Code: "account-frozen", AccountID: a.frozen}},
		{"to closed", between(a.rich, a.closed, "1", "USD"), transfer.ErrAccountClosed,
			transfer.Refusal{Code: "account-closed", AccountID: a.closed}},
		{"debit of closed", transfer.NewDebit(a.closed, number("1"), "USD"), transfer.ErrAccountClosed,
			transfer.Refusal{Code: "account-closed", AccountID: a.closed}},
		{"from another currency", between(a.euro, a.rich, "1", "USD"), transfer.ErrCurrencyMismatch,
			transfer.Refusal{Code: "currency-mismatch", AccountID: a.euro, Currency: "USD"}},
		{"to another currency", between(a.rich, a.euro, "1", "USD"), transfer.ErrCurrencyMismatch,
			transfer.Refusal{Code: "currency-mismatch", AccountID: a.euro, Currency: "USD"}},
		{"both in another currency", between(a.rich, a.poor, "1", "JPY"), transfer.ErrCurrencyMismatch,
			transfer.Refusal{Code: "currency-mismatch", AccountID: a.rich, Currency: "JPY"}},
		{"debit in a currency without accounts", transfer.NewDebit(a.rich, number("1"), "CHF"), transfer.ErrCurrencyMismatch,
			transfer.Refusal{Code: "currency-mismatch", AccountID: a.rich, Currency: "CHF"}},
		{"credit in a currency without accounts", transfer.NewCredit(a.rich, number("1"), "CHF"), transfer.ErrCurrencyMismatch,
			transfer.Refusal{Code: "currency-mismatch", AccountID: a.rich, Currency: "CHF"}},
	}
}

func TestRefusalsAreTheSameAndFinalUnderTheirKeys(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		s := mode.service(l.db, patient)
		a := l.cast(t)
		before := count(t, l, `SELECT count(*) FROM transfers`)
		cases := refusalCases(a)
		first := map[string]*transfer.Refusal{}
		for _, tt := range cases {
			first[tt.name] = refused(t, s, tt, keyed(tt.command, tt.name), false)
			refused(t, s, tt, tt.command, false)
		}
		if n := count(t, l, `SELECT count(*) FROM transfers`); n != before {
			t.Errorf("%d transfers, want %d as before: all were refused", n, before)
		}
		l.wantSound(t)

		// All that stood in the way goes away; the answers stay.
		for _, id := range []uuid.UUID{a.rich, a.poor, a.overdrawn} {
			create(t, s, transfer.NewCredit(id, number("1000"), "USD"))
		}
		if _, err := l.accounts.Unfreeze(t.Context(), a.frozen); err != nil {
			t.Fatal(err)
		}
		for _, tt := range cases {
			again := refused(t, s, tt, keyed(tt.command, tt.name), true)
			if diff := cmp.Diff(first[tt.name], again); diff != "" {
				t.Errorf("%s: refusal and its replay differ (-first +replay):\n%s", tt.name, diff)
			}
		}
		l.wantSound(t)
	})
}

// refused creates c and wants it refused as tt says.
func refused(t *testing.T, s *transfer.Service, tt refusalCase, c transfer.Command, wantReplayed bool) *transfer.Refusal {
	t.Helper()
	made, replayed, err := s.Create(t.Context(), c)
	var refusal *transfer.Refusal
	if !errors.Is(err, tt.is) || !errors.As(err, &refusal) {
		t.Fatalf("%s: error = %v, want a refusal for %v", tt.name, err, tt.is)
	}
	if diff := cmp.Diff(tt.want, *refusal, cmpopts.IgnoreFields(transfer.Refusal{}, "TransferID")); diff != "" {
		t.Errorf("%s: refusal (-want +got):\n%s", tt.name, diff)
	}
	if refusal.TransferID == uuid.Nil || made.ID != uuid.Nil {
		t.Errorf("%s: refusal of transfer %s beside transfer %s, want the id that it would have had, and none", tt.name, refusal.TransferID, made.ID)
	}
	if replayed != wantReplayed {
		t.Errorf("%s: replayed = %v, want %v", tt.name, replayed, wantReplayed)
	}
	return refusal
}

func TestTransfersSayWhatTheyLeft(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		s := mode.service(l.db, patient)
		low, high := l.openPair(t, "USD", "0")
		external := accounts.ExternalID("USD")
		for _, tt := range []struct {
			name    string
			command transfer.Command
			want    transfer.Transfer
		}{
			{"credit", transfer.NewCredit(low, number("200"), "USD"),
				transfer.Transfer{Kind: "credit", DebitAccountID: external, CreditAccountID: low, DebitVersion: 1, CreditVersion: 1, DebitBalanceAfter: number("-200"), CreditBalanceAfter: number("200")}},
			{"up", between(low, high, "0.01", "USD"),
				transfer.Transfer{Kind: "transfer", DebitAccountID: low, CreditAccountID: high, DebitVersion: 2, CreditVersion: 1, DebitBalanceAfter: number("199.99"), CreditBalanceAfter: number("0.01")}},
			{"all of it, down", between(high, low, "0.01", "USD"),
				transfer.Transfer{Kind: "transfer", DebitAccountID: high, CreditAccountID: low, DebitVersion: 2, CreditVersion: 3, DebitBalanceAfter: number("0"), CreditBalanceAfter: number("200")}},
			{"debit to zero", transfer.NewDebit(low, number("200"), "USD"),
				transfer.Transfer{Kind: "debit", DebitAccountID: low, CreditAccountID: external, DebitVersion: 4, CreditVersion: 2, DebitBalanceAfter: number("0"), CreditBalanceAfter: number("0")}},
		} {
			tt.command.Description, tt.command.Metadata = "for "+tt.name, map[string]string{"order": tt.name}
			tt.want.Amount, tt.want.Currency = tt.command.Amount, "USD"
			tt.want.Description, tt.want.Metadata = tt.command.Description, tt.command.Metadata
			made := create(t, s, tt.command)
			if diff := cmp.Diff(tt.want, made, cmpopts.IgnoreFields(transfer.Transfer{}, "ID", "CreatedAt", "TxID")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
			if zone := made.CreatedAt.Location(); zone != time.UTC {
				t.Errorf("%s: made at %v, want a time in UTC", tt.name, made.CreatedAt)
			}
			stored, err := s.Get(t.Context(), made.ID)
			if err != nil {
				t.Fatalf("%s: get: %v", tt.name, err)
			}
			if diff := cmp.Diff(stored, made); diff != "" {
				t.Errorf("%s: what was answered is not what is stored (-stored +answered):\n%s", tt.name, diff)
			}
		}
		l.wantSound(t)
	})
}

func TestAnOverdraftGoesExactlyToTheMinimum(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		s := mode.service(l.db, patient)
		from, to := l.open(t, "KWD", "1.5", "-50.005"), l.open(t, "KWD", "0", "0")
		wantError(t, s, between(from, to, "51.506", "KWD"), transfer.ErrInsufficientFunds)
		create(t, s, between(from, to, "51.505", "KWD"))
		wantError(t, s, between(from, to, "0.001", "KWD"), transfer.ErrInsufficientFunds)
		l.wantBalance(t, from, "-50.005")
		create(t, s, between(to, from, "51.505", "KWD"))
		l.wantSound(t)
	})
}

func TestABalanceStaysInItsRange(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		s := mode.service(l.db, patient)
		full, other := l.openPair(t, "USD", "10")
		external := accounts.ExternalID("USD")
		for _, tt := range []struct {
			account      uuid.UUID
			balance      string
			tooMuch, fit transfer.Command
		}{
			{full, "9999999999999999999999999999", between(other, full, "1", "USD"), between(other, full, "0.99", "USD")},
			{full, "9999999999999999999999999999", transfer.NewCredit(full, number("999999999999999999.99"), "USD"), transfer.NewCredit(full, number("0.99"), "USD")},
			{external, "-9999999999999999999999999999", transfer.NewCredit(other, number("1"), "USD"), transfer.NewCredit(other, number("0.99"), "USD")},
			{external, "9999999999999999999999999999", transfer.NewDebit(other, number("1"), "USD"), transfer.NewDebit(other, number("0.99"), "USD")},
		} {
			l.exec(t, `UPDATE accounts SET balance = $2 WHERE id = $1`, tt.account, tt.balance)
			_, _, err := s.Create(t.Context(), tt.tooMuch)
			var refusal *transfer.Refusal
			if !errors.As(err, &refusal) || !errors.Is(err, transfer.ErrLimitExceeded) || refusal.AccountID != tt.account {
				t.Errorf("at %s: error = %v, want %v of %s", tt.balance, err, transfer.ErrLimitExceeded, tt.account)
			}
			create(t, s, tt.fit)
			l.exec(t, `UPDATE accounts SET balance = 10 WHERE id = $1`, tt.account)
		}
	})
}

func TestAKeyNamesOneTransfer(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		s := mode.service(l.db, patient)
		low, high := l.openPair(t, "USD", "100")
		c := keyed(between(low, high, "10.0", "USD"), "k")
		first := create(t, s, c)

		c.Amount = number("10.00") // the same amount
		again, replayed, err := s.Create(t.Context(), c)
		if err != nil || !replayed {
			t.Fatalf("replay = replayed %v, error %v, want a replay", replayed, err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("transfer and its replay differ (-first +replay):\n%s", diff)
		}

		for name, change := range map[string]func(*transfer.Command){
			"amount":      func(c *transfer.Command) { c.Amount = number("10.01") },
			"direction":   func(c *transfer.Command) { c.DebitAccountID, c.CreditAccountID = high, low },
			"description": func(c *transfer.Command) { c.Description = "another" },
			"metadata":    func(c *transfer.Command) { c.Metadata = map[string]string{"a": ""} },
			"route":       func(c *transfer.Command) { key := c.Key; *c = transfer.NewDebit(low, c.Amount, "USD"); c.Key = key },
			"sufficiency": func(c *transfer.Command) { c.Amount = number("1000000") },
		} {
			other := c
			change(&other)
			if _, replayed, err := s.Create(t.Context(), other); !errors.Is(err, idempotency.ErrKeyReused) || replayed {
				t.Errorf("another %s under the key: replayed %v, error %v, want %v", name, replayed, err, idempotency.ErrKeyReused)
			}
		}

		c.Key = &idempotency.Key{Principal: "somebody else", Value: "k"}
		if other := create(t, s, c); other.ID == first.ID {
			t.Errorf("another principal's transfer = %s, want one of its own", other.ID)
		}
		l.wantBalance(t, low, "80")
		l.wantSound(t)
	})
}

func TestTimeNeverFallsAsVersionsRise(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		s := mode.service(l.db, patient)
		low, high := l.openPair(t, "USD", "100")
		other := l.open(t, "USD", "100", "0")
		for _, ahead := range []uuid.UUID{low, high} {
			// As if the clock had been set back by an hour since the last entry.
			l.exec(t, `UPDATE accounts SET last_entry_at = last_entry_at + interval '1 hour' WHERE id = $1`, ahead)
			var last transfer.Transfer
			for _, c := range []transfer.Command{
				between(low, high, "1", "USD"), between(high, low, "1", "USD"),
				between(low, other, "1", "USD"), between(other, high, "1", "USD"), transfer.NewDebit(other, number("1"), "USD"),
			} {
				made := create(t, s, c)
				if made.CreatedAt.Before(last.CreatedAt) {
					t.Errorf("made at %v, after one that was made at %v", made.CreatedAt, last.CreatedAt)
				}
				last = made
			}
		}
		l.wantSound(t)
	})
}

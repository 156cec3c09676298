package transfer_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// The second guards: what no bug of ours may store.
func TestTheDatabaseRefusesWhatNoLedgerMayHave(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.open(t, "USD", "100", "-5")
	const insert = `
		INSERT INTO transfers (id, debit_account_id, credit_account_id, debit_version, credit_version, created_at, amount, debit_balance_after, credit_balance_after, kind, currency)
		SELECT gen_random_uuid(), debit_account_id, credit_account_id, debit_version + 1, credit_version + 1, created_at, `
	const rest = `, 0, 0, kind, currency FROM transfers`
	const check, kept, unique = "23514", "23001", "23505"
	for _, tt := range []struct{ name, sql, want string }{
		{"balance NaN", `UPDATE accounts SET balance = 'NaN'`, check},
		{"balance Infinity", `UPDATE accounts SET balance = 'Infinity'`, check},
		{"balance -Infinity", `UPDATE accounts SET balance = '-Infinity' WHERE kind = 'external'`, check},
		{"balance of 10^28", `UPDATE accounts SET balance = 1e28`, check},
		{"balance of -10^28", `UPDATE accounts SET balance = -1e28 WHERE kind = 'external'`, check},
		{"balance of scale 19", `UPDATE accounts SET balance = 0.0000000000000000001`, check},
		{"balance below the minimum", `UPDATE accounts SET balance = -5.01 WHERE kind = 'customer'`, check},
		{"minimum above zero", `UPDATE accounts SET min_balance = 1 WHERE kind = 'customer'`, check},
		{"minimum NaN", `UPDATE accounts SET min_balance = 'NaN' WHERE kind = 'customer'`, check},
		{"customer without a minimum", `UPDATE accounts SET min_balance = NULL WHERE kind = 'customer'`, check},
		{"external with a minimum", `UPDATE accounts SET min_balance = 0, balance = 0 WHERE kind = 'external'`, check},
		{"closed with money", `UPDATE accounts SET status = 'closed' WHERE kind = 'customer'`, check},
		{"unknown status", `UPDATE accounts SET status = 'asleep'`, check},
		{"customer in the external accounts' range", `UPDATE accounts SET id = 'ffffffff-1111-8fff-bfff-555344000000' WHERE kind = 'customer'`, check},
		{"external outside of its range", `UPDATE accounts SET id = '00000000-1111-8fff-bfff-555344000000' WHERE kind = 'external'`, check},
		{"currency in small letters", `UPDATE accounts SET currency = 'usd'`, check},
		{"deleted account", `DELETE FROM accounts`, kept},
		{"truncated accounts", `TRUNCATE accounts`, kept},

		{"amount NaN", insert + `'NaN'` + rest, check},
		{"amount Infinity", insert + `'Infinity'` + rest, check},
		{"amount zero", insert + `0` + rest, check},
		{"amount below zero", insert + `-1` + rest, check},
		{"amount of 10^18", insert + `1e18` + rest, check},
		{"amount of scale 19", insert + `0.0000000000000000001` + rest, check},
		{"the same entry again", `
			INSERT INTO transfers (id, debit_account_id, credit_account_id, debit_version, credit_version, created_at, amount, debit_balance_after, credit_balance_after, kind, currency)
			SELECT gen_random_uuid(), debit_account_id, credit_account_id, debit_version, credit_version + 1, created_at, 1, 0, 0, kind, currency FROM transfers`, unique},
		{"changed transfer", `UPDATE transfers SET description = 'another'`, kept},
		{"deleted transfer", `DELETE FROM transfers`, kept},
		{"truncated transfers", `TRUNCATE transfers`, kept},
	} {
		if _, err := l.db.Exec(t.Context(), tt.sql); retry.SQLState(err) != tt.want {
			t.Errorf("%s: error = %v, want SQLSTATE %s", tt.name, err, tt.want)
		}
	}
	l.wantSound(t)
}

func TestCommandsAreValidatedWithAllTheirFaults(t *testing.T) {
	t.Parallel()
	a, b := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	bad := between(uuid.Nil, accounts.ExternalID("USD"), "0.001", "USD")
	bad.Description, bad.Metadata = "\x00", map[string]string{"": ""}
	bad.Key = &idempotency.Key{}
	for _, tt := range []struct {
		name    string
		command transfer.Command
		want    []string // fields
	}{
		{"good", between(a, b, "1", "USD"), nil},
		{"good debit", transfer.NewDebit(a, number("1"), "USD"), nil},
		{"good credit", transfer.NewCredit(a, number("1"), "USD"), nil},
		{"all bad", bad, []string{"amount", "debit_account_id", "credit_account_id", "description", "metadata", "Idempotency-Key"}},
		{"no currency", transfer.NewDebit(a, number("1"), ""), []string{"currency"}},
		{"no such currency", transfer.NewCredit(a, number("1"), "DOLLARS"), []string{"currency"}},
		{"debit of an external account", transfer.NewDebit(accounts.ExternalID("USD"), number("1"), "USD"), []string{"account_id"}},
		{"credit of nothing", transfer.NewCredit(uuid.Nil, number("1"), "USD"), []string{"account_id"}},
		{"no kind", transfer.Command{DebitAccountID: a, CreditAccountID: b, Amount: number("1"), Currency: "USD"}, []string{"kind"}},
		{"zero amount", between(a, b, "0", "USD"), []string{"amount"}},
		{"negative amount", between(a, b, "-1", "USD"), []string{"amount"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := transfer.New(nil, transfer.Pessimistic, transfer.Locking{}, patient) // no database is asked
			err := tt.command.Validate()
			if tt.want != nil {
				_, _, err = s.Create(t.Context(), tt.command)
			}
			var got []string
			var faults *invalid.Error
			if errors.As(err, &faults) {
				for _, f := range faults.Faults {
					got = append(got, f.Field)
				}
			} else if err != nil {
				t.Fatalf("error = %v, want an *invalid.Error", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("faulty fields (-want +got):\n%s", diff)
			}
		})
	}
	if err := between(a, a, "1", "USD").Validate(); !errors.Is(err, transfer.ErrSameAccount) {
		t.Errorf("error = %v, want %v", err, transfer.ErrSameAccount)
	}
}

func TestModesAreFoundByTheirNames(t *testing.T) {
	t.Parallel()
	var losing []string
	for _, want := range transfer.Modes() {
		if got, err := transfer.ModeByName(want.Name); got != want || err != nil {
			t.Errorf("ModeByName(%s) = %v, %v", want.Name, got, err)
		}
		if want.LosesMoney {
			losing = append(losing, want.Name)
		}
	}
	if diff := cmp.Diff([]string{"none"}, losing); diff != "" {
		t.Errorf("modes that lose money (-want +got):\n%s", diff)
	}
	if got := transfer.Modes()[0]; got != transfer.Pessimistic {
		t.Errorf("the first mode is %s, want the default, pessimistic", got.Name)
	}
	if mode, err := transfer.ModeByName("fast"); err == nil {
		t.Errorf("ModeByName(fast) = %v, want an error", mode.Name)
	}
}

func TestRefusalsSayWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("01890000-0000-7000-8000-000000000001")
	for _, tt := range []struct {
		refusal transfer.Refusal
		is      error
		want    string
	}{
		{transfer.Refusal{Code: "insufficient-funds", AccountID: id, Available: "1.00", Required: "2.00", Currency: "USD"}, transfer.ErrInsufficientFunds,
			"insufficient funds: account 01890000-0000-7000-8000-000000000001 has 1.00 USD available and 2.00 is required"},
		{transfer.Refusal{Code: "currency-mismatch", AccountID: id, Currency: "USD"}, transfer.ErrCurrencyMismatch,
			"account 01890000-0000-7000-8000-000000000001 is not in USD"},
		{transfer.Refusal{Code: "account-frozen", AccountID: id}, transfer.ErrAccountFrozen,
			"account 01890000-0000-7000-8000-000000000001: the account is frozen"},
	} {
		if got := tt.refusal.Error(); got != tt.want {
			t.Errorf("error = %q, want %q", got, tt.want)
		}
		if !errors.Is(&tt.refusal, tt.is) || errors.Is(&tt.refusal, transfer.ErrLimitExceeded) {
			t.Errorf("%s matches something else than %v", tt.refusal.Code, tt.is)
		}
	}
}

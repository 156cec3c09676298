package accounts_test

import (
	"testing"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/retry"
)

// The second guards: what no bug of ours may make of an account.
func TestTheDatabaseRefusesWhatNoAccountMayBe(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	account := open(t, s, accounts.Opening{Currency: "USD", MinBalance: number("-10"), MaxBalance: new(number("100"))})
	credit(t, db, account.ID, "50", "USD")
	const customer, external = ` WHERE kind = 'customer'`, ` WHERE kind = 'external'`
	for _, tt := range []struct{ name, sql string }{
		{"balance above the maximum", `UPDATE accounts SET balance = 100.01` + customer},
		{"maximum below the balance", `UPDATE accounts SET max_balance = 49.99` + customer},
		{"maximum below zero", `UPDATE accounts SET balance = -5, max_balance = -1` + customer},
		{"maximum NaN", `UPDATE accounts SET max_balance = 'NaN'` + customer},
		{"maximum Infinity", `UPDATE accounts SET max_balance = 'Infinity'` + customer},
		{"maximum of 10^28", `UPDATE accounts SET max_balance = 1e28` + customer},
		{"maximum of scale 19", `UPDATE accounts SET max_balance = 60.0000000000000000001` + customer},
		{"minimum above what is available", `UPDATE accounts SET held = 50, min_balance = 0, balance = 49.99` + customer},
		{"held beyond the minimum", `UPDATE accounts SET held = 60.01` + customer},
		{"held below zero", `UPDATE accounts SET held = -0.01` + customer},
		{"held NaN", `UPDATE accounts SET held = 'NaN'` + customer},
		{"held of scale 19", `UPDATE accounts SET held = 0.0000000000000000001` + customer},
		{"closed with something held", `UPDATE accounts SET status = 'closed', balance = 0, held = 1` + customer},
		{"external with something held", `UPDATE accounts SET held = 1` + external},
		{"external with a maximum", `UPDATE accounts SET max_balance = 0` + external},
		{"external without debits", `UPDATE accounts SET debits_blocked = true` + external},
		{"external without credits", `UPDATE accounts SET credits_blocked = true` + external},
	} {
		if _, err := db.Exec(t.Context(), tt.sql); retry.SQLState(err) != "23514" {
			t.Errorf("%s: error = %v, want SQLSTATE 23514", tt.name, err)
		}
	}
}

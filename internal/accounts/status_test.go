package accounts_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/invalid"
)

func TestStatusChangesByTheRules(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	change := map[string]func(context.Context, uuid.UUID) (accounts.Account, error){"freeze": s.Freeze, "unfreeze": s.Unfreeze, "close": s.Close}
	for _, tt := range []struct {
		from, balance, change string
		want                  error
		status                string
	}{
		{"open", "0", "freeze", nil, "frozen"},
		{"open", "10", "freeze", nil, "frozen"},
		{"open", "0", "unfreeze", nil, "open"},
		{"open", "0", "close", nil, "closed"},
		{"open", "10", "close", accounts.ErrNotEmpty, "open"},
		{"open", "-10", "close", accounts.ErrNotEmpty, "open"},
		{"frozen", "10", "freeze", nil, "frozen"},
		{"frozen", "10", "unfreeze", nil, "open"},
		{"frozen", "0", "close", nil, "closed"},
		{"frozen", "10", "close", accounts.ErrNotEmpty, "frozen"},
		{"closed", "0", "freeze", accounts.ErrClosed, "closed"},
		{"closed", "0", "unfreeze", accounts.ErrClosed, "closed"},
		{"closed", "0", "close", nil, "closed"},
	} {
		name := tt.change + " " + tt.from + " with " + tt.balance
		id := open(t, s, accounts.Opening{Currency: "USD", MinBalance: number("-10")}).ID
		exec(t, db, `UPDATE accounts SET status = $2, balance = $3::text::numeric WHERE id = $1`, id, tt.from, tt.balance)
		got, err := change[tt.change](t.Context(), id)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: error = %v, want %v", name, err, tt.want)
		}
		if err == nil && (got.Status != tt.status || got.ID != id) {
			t.Errorf("%s: answered %s of %s, want %s of %s", name, got.Status, got.ID, tt.status, id)
		}
		if stored, err := s.Get(t.Context(), id); err != nil || stored.Status != tt.status {
			t.Errorf("%s: stored %s, %v, want %s", name, stored.Status, err, tt.status)
		}
	}
	for name, change := range change {
		if _, err := change(t.Context(), accounts.ExternalID("USD")); !errors.Is(err, accounts.ErrExternal) {
			t.Errorf("%s an external account: error = %v, want %v", name, err, accounts.ErrExternal)
		}
		if _, err := change(t.Context(), uuid.Must(uuid.NewV7())); !errors.Is(err, accounts.ErrNotFound) {
			t.Errorf("%s nobody's account: error = %v, want %v", name, err, accounts.ErrNotFound)
		}
	}
}

func TestStatusesAreChecked(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]bool{"open": true, "frozen": true, "closed": true, "": false, "Open": false, "asleep": false} {
		var c invalid.Check
		accounts.CheckStatus(&c, status)
		if got := c.Err() == nil; got != want {
			t.Errorf("status %q passes: %v, want %v", status, got, want)
		}
	}
}

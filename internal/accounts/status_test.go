package accounts_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
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

func TestAnAccountWithSomethingHeldIsNotClosed(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	id := open(t, s, accounts.Opening{Currency: "USD", MinBalance: number("-10")}).ID
	exec(t, db, `UPDATE accounts SET held = 10 WHERE id = $1`, id) // of the overdraft
	if _, err := s.Close(t.Context(), id); !errors.Is(err, accounts.ErrNotEmpty) {
		t.Errorf("error = %v, want %v", err, accounts.ErrNotEmpty)
	}
	exec(t, db, `UPDATE accounts SET held = 0 WHERE id = $1`, id)
	if got, err := s.Close(t.Context(), id); err != nil || got.Status != "closed" {
		t.Errorf("answered %s, %v, want closed", got.Status, err)
	}
}

// A change must judge the row that it gets, not the one it saw while somebody
// else had it.
func TestChangesAreJudgedAfterTheLock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		meantime string
		change   func(*accounts.Service, context.Context, uuid.UUID) (accounts.Account, error)
		want     error
	}{
		{"freeze meets a close", `UPDATE accounts SET status = 'closed' WHERE id = $1`, (*accounts.Service).Freeze, accounts.ErrClosed},
		{"unfreeze meets a close", `UPDATE accounts SET status = 'closed' WHERE id = $1`, (*accounts.Service).Unfreeze, accounts.ErrClosed},
		{"close meets a credit", `UPDATE accounts SET balance = 1, version = version + 1 WHERE id = $1`, (*accounts.Service).Close, accounts.ErrNotEmpty},
		{"close meets a hold", `UPDATE accounts SET held = 1 WHERE id = $1`, (*accounts.Service).Close, accounts.ErrNotEmpty},
		{"a maximum meets a credit", `UPDATE accounts SET balance = 1, version = version + 1 WHERE id = $1`, setMax("0.99"), errOutOfLimits},
		{"a minimum meets a debit", `UPDATE accounts SET balance = -1, version = version + 1 WHERE id = $1`, setMin("-0.99"), errOutOfLimits},
		{"a minimum meets a hold", `UPDATE accounts SET held = 1 WHERE id = $1`, setMin("-0.99"), errOutOfLimits},
		{"limits meet a close", `UPDATE accounts SET status = 'closed' WHERE id = $1`, setMax("10"), accounts.ErrClosed},
		{"directions meet a close", `UPDATE accounts SET status = 'closed' WHERE id = $1`, blockDebits, accounts.ErrClosed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			s := accounts.New(db, retry.Policy{Attempts: 3})
			account, _, err := s.Open(t.Context(), accounts.Opening{Currency: "USD", MinBalance: number("-10")})
			if err != nil {
				t.Fatal(err)
			}
			other, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer other.Rollback(context.Background())
			if _, err := other.Exec(t.Context(), tt.meantime, account.ID); err != nil {
				t.Fatal(err)
			}
			answered := make(chan error, 1)
			go func() {
				_, err := tt.change(s, t.Context(), account.ID)
				answered <- err
			}()
			for waiting := 0; waiting == 0; {
				if err := db.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil {
					t.Fatal(err)
				}
			}
			if err := other.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-answered; !errors.Is(sentinel(err), tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
		})
	}
}

package accounts_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/testdb"
)

func TestListSelectsInTheOrderOfIDs(t *testing.T) {
	t.Parallel()
	_, s := newService(t)
	var dollars, euros []uuid.UUID
	for range 5 {
		dollars = append(dollars, open(t, s, accounts.Opening{Currency: "USD"}).ID)
		euros = append(euros, open(t, s, accounts.Opening{Currency: "EUR"}).ID)
	}
	sortIDs(dollars, euros)
	if _, err := s.Freeze(t.Context(), dollars[3]); err != nil {
		t.Fatal(err)
	}
	all := append(slices.Concat(dollars, euros), accounts.ExternalID("EUR"), accounts.ExternalID("USD"))
	sortIDs(all)
	for _, tt := range []struct {
		name   string
		filter accounts.Filter
		want   []uuid.UUID
	}{
		{"all", accounts.Filter{Limit: 3}, all},
		{"a currency", accounts.Filter{Currency: "USD", Limit: 2}, append(slices.Clone(dollars), accounts.ExternalID("USD"))},
		{"a status", accounts.Filter{Status: "frozen", Limit: 2}, dollars[3:4]},
		{"both", accounts.Filter{Currency: "EUR", Status: "open", Limit: 100}, append(slices.Clone(euros), accounts.ExternalID("EUR"))},
		{"none", accounts.Filter{Currency: "EUR", Status: "closed", Limit: 100}, nil},
	} {
		var got []uuid.UUID
		for {
			page, err := s.List(t.Context(), tt.filter)
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			for _, a := range page {
				got = append(got, a.ID)
				tt.filter.After = a.ID
			}
			if len(page) < tt.filter.Limit {
				break
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func sortIDs(lists ...[]uuid.UUID) {
	for _, ids := range lists {
		slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	}
}

func TestEntriesArePagedInBothOrders(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	account := open(t, s, accounts.Opening{Currency: "USD"})
	if got, err := s.Entries(t.Context(), account.ID, accounts.Page{Limit: 3}); err != nil || len(got) != 0 {
		t.Errorf("entries of a new account = %v, %v, want none", got, err)
	}
	for _, amount := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		credit(t, db, account.ID, amount, "USD")
	}
	for _, tt := range []struct {
		name       string
		id         uuid.UUID
		descending bool
		direction  string
		want       []string
	}{
		{"ascending", account.ID, false, "credit", []string{"1 1 1", "2 2 3", "3 3 6", "4 4 10", "5 5 15", "6 6 21", "7 7 28"}},
		{"descending", account.ID, true, "credit", []string{"7 7 28", "6 6 21", "5 5 15", "4 4 10", "3 3 6", "2 2 3", "1 1 1"}},
		{"the other side", accounts.ExternalID("USD"), false, "debit", []string{"1 1 -1", "2 2 -3", "3 3 -6", "4 4 -10", "5 5 -15", "6 6 -21", "7 7 -28"}},
	} {
		var got []string
		page := accounts.Page{Descending: tt.descending, Limit: 3}
		for {
			entries, err := s.Entries(t.Context(), tt.id, page)
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			for _, e := range entries {
				got = append(got, fmt.Sprintf("%d %s %s", e.Version, e.Amount, e.BalanceAfter))
				page.After = e.Version
				if e.AccountID != tt.id || e.Direction != tt.direction || e.Currency != "USD" || e.TransferID == uuid.Nil || e.OtherAccountID == tt.id {
					t.Errorf("%s: entry = %+v, want a %s", tt.name, e, tt.direction)
				}
			}
			if len(entries) < page.Limit {
				break
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: version, amount and balance (-want +got):\n%s", tt.name, diff)
		}
	}
	if _, err := s.Entries(t.Context(), uuid.Must(uuid.NewV7()), accounts.Page{Limit: 3}); !errors.Is(err, accounts.ErrNotFound) {
		t.Errorf("entries of nobody: error = %v, want %v", err, accounts.ErrNotFound)
	}
}

// The statement of one account of many is a merge of two indexes, read no
// further than the page, whether the plan knows the parameters or not.
func TestEntriesAreAMergeOfTwoIndexes(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	exec(t, db, `
		INSERT INTO transfers (id, debit_account_id, credit_account_id, debit_version, credit_version, created_at, amount, debit_balance_after, credit_balance_after, kind, currency)
		SELECT gen_random_uuid(), ('00000000-0000-7000-8000-' || lpad((n % 10)::text, 12, '0'))::uuid, ('00000000-0000-7000-8000-' || lpad(((n + 1) % 10)::text, 12, '0'))::uuid,
		       2 * (n / 10) + 1, 2 * (n / 10) + 2, now(), 1, 0, 0, 'transfer', 'USD'
		  FROM generate_series(0, 19999) n`)
	exec(t, db, `ANALYZE transfers`)
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		for _, tt := range []struct{ order, sql string }{
			{"ascending", accounts.SelectEntriesSQL},
			{"descending", accounts.SelectEntriesDescendingSQL},
		} {
			plan := explain(t, db, mode, tt.sql)
			if !strings.Contains(plan, "Merge Append") || strings.Count(plan, "Index Scan") != 2 {
				t.Errorf("%s, %s: want a Merge Append of two index scans:\n%s", tt.order, mode, plan)
			}
			if strings.Contains(plan, "Sort  (") || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Filter") {
				t.Errorf("%s, %s: want no sort, scan or filter over the whole:\n%s", tt.order, mode, plan)
			}
		}
	}
}

func explain(t *testing.T, db *testdb.DB, mode, sql string) string {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	for _, statement := range []string{`SET LOCAL plan_cache_mode = ` + mode, `PREPARE page (uuid, bigint, bigint) AS ` + sql} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	rows, _ := tx.Query(t.Context(), `EXPLAIN EXECUTE page ('00000000-0000-7000-8000-000000000003', 2000, 50)`, pgx.QueryExecModeSimpleProtocol)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `DEALLOCATE page`); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

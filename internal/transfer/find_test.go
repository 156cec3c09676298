package transfer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// scatterSQL makes transfers 0 to $1 - 1, each between two accounts of its own,
// but from 10,000 on all from one, and a second after the one before. Every fourth has a reference, every tenth
// metadata, and every twentieth belongs to something.
const scatterSQL = `
	INSERT INTO transfers (id, debit_account_id, credit_account_id, debit_version, credit_version, created_at, amount, debit_balance_after, credit_balance_after,
	                       kind, currency, reference, metadata, hold_id, reverses_transfer_id, batch_id)
	SELECT pg_temp.id('1', n), pg_temp.id('2', least(n, 10000)), pg_temp.id('3', n), greatest(1, n - 9999), 1, timestamptz '2026-01-01Z' + n * interval '1 second', 1 + n % 100, 0, 0,
	       CASE n % 8 WHEN 0 THEN 'credit' ELSE 'transfer' END, CASE n % 2 WHEN 0 THEN 'USD' ELSE 'EUR' END,
	       CASE n % 4 WHEN 0 THEN 'reference ' || n END,
	       CASE n % 10 WHEN 0 THEN jsonb_build_object('order', n::text, 'shop', (n % 3)::text) ELSE '{}' END,
	       CASE n % 20 WHEN 0 THEN pg_temp.id('4', n) END, CASE n % 20 WHEN 1 THEN pg_temp.id('5', n) END, CASE n % 20 WHEN 2 THEN pg_temp.id('6', n / 40) END
	  FROM generate_series(0, $1 - 1) n`

const idSQL = `CREATE FUNCTION pg_temp.id(kind text, n bigint) RETURNS uuid LANGUAGE sql
	RETURN ('0000000' || kind || '-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid`

func (l *ledger) scatter(t *testing.T, n int) {
	t.Helper()
	tx := l.session(t)
	for _, statement := range []string{idSQL, strings.ReplaceAll(scatterSQL, "$1", fmt.Sprint(n))} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// connect opens one connection, on which nothing is prepared.
func connect(t *testing.T, url string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: url, PoolSize: 1, AcquireTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// scattered is the id of that kind of transfer n.
func scattered(kind string, n int) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("0000000%s-0000-7000-8000-%012d", kind, n))
}

func second(n int) time.Time { return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC) }

func amount(s string) *decimal.Decimal { return new(number(s)) }

func TestAListHasWhatMatchesAllOfItsFilter(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.scatter(t, 200)
	s := l.service(transfer.Pessimistic)
	for _, tt := range []struct {
		name   string
		filter transfer.Filter
		want   []int
	}{
		{"a reference", transfer.Filter{Reference: "reference 12"}, []int{12}},
		{"one that nothing has", transfer.Filter{Reference: "reference 13"}, nil},
		{"one of who pays", transfer.Filter{Reference: "reference 12", AccountID: scattered("2", 12)}, []int{12}},
		{"not of who is paid", transfer.Filter{Reference: "reference 12", AccountID: scattered("3", 12)}, nil},
		{"one of who gets money from outside", transfer.Filter{Reference: "reference 16", AccountID: scattered("3", 16)}, []int{16}},
		{"not of the outside", transfer.Filter{Reference: "reference 16", AccountID: scattered("2", 16)}, nil},
		{"metadata", transfer.Filter{Metadata: map[string]string{"shop": "1"}}, []int{10, 40, 70, 100, 130, 160, 190}},
		{"all of the metadata", transfer.Filter{Metadata: map[string]string{"shop": "1", "order": "40"}}, []int{40}},
		{"metadata that differ in one", transfer.Filter{Metadata: map[string]string{"shop": "2", "order": "40"}}, nil},
		{"metadata by name in another value", transfer.Filter{Metadata: map[string]string{"shop": "order"}}, nil},
		{"amounts", transfer.Filter{AmountMin: amount("5"), AmountMax: amount("7.00"), Currency: "USD"}, []int{4, 6, 104, 106}},
		{"amounts from", transfer.Filter{AmountMin: amount("99.5"), Currency: "EUR"}, []int{99, 199}},
		{"amounts to", transfer.Filter{AmountMax: amount("1"), Currency: "USD"}, []int{0, 100}},
		{"a time, with its beginning and without its end", transfer.Filter{CreatedFrom: second(3), CreatedTo: second(6)}, []int{3, 4, 5}},
		{"from a nanosecond later", transfer.Filter{CreatedFrom: second(3).Add(1), CreatedTo: second(5).Add(1)}, []int{4, 5}},
		{"a hold", transfer.Filter{HoldID: scattered("4", 40)}, []int{40}},
		{"a transfer taken back", transfer.Filter{ReversesTransferID: scattered("5", 21)}, []int{21}},
		{"a batch", transfer.Filter{BatchID: scattered("6", 1)}, []int{42, 62}},
		{"all of it", transfer.Filter{
			AccountID: scattered("2", 20), Reference: "reference 20", Metadata: map[string]string{"order": "20"}, Currency: "USD",
			AmountMin: amount("21"), AmountMax: amount("21"), CreatedFrom: second(20), CreatedTo: second(21), HoldID: scattered("4", 20),
		}, []int{20}},
		{"all but the currency", transfer.Filter{Reference: "reference 20", Currency: "EUR", HoldID: scattered("4", 20)}, nil},
	} {
		var want []uuid.UUID
		for _, n := range tt.want {
			want = append(want, scattered("1", n))
		}
		tt.filter.Limit = 2
		if diff := cmp.Diff(want, idsOf(pageUntil(t, s, tt.filter, len(want)))); diff != "" {
			t.Errorf("%s, ascending (-want +got):\n%s", tt.name, diff)
		}
		slices.Reverse(want)
		tt.filter.Descending = true
		if diff := cmp.Diff(want, idsOf(page(t, s, tt.filter))); diff != "" {
			t.Errorf("%s, descending (-want +got):\n%s", tt.name, diff)
		}
	}
	found := page(t, s, transfer.Filter{HoldID: scattered("4", 20), Limit: 2, Descending: true})
	if len(found) != 1 || found[0].HoldID != scattered("4", 20) || found[0].Reference != "reference 20" || found[0].BatchID != uuid.Nil {
		t.Errorf("found %+v, want one transfer with its hold and reference, and no batch", found)
	}
}

// A filter that leaves little is answered from its index, and a list without
// one is read no further than the page.
func TestAListReadsNoMoreThanItMust(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.scatter(t, 20_000)
	l.exec(t, `VACUUM ANALYZE transfers`)
	pageUntil(t, l.service(transfer.Pessimistic), transfer.Filter{HoldID: scattered("4", 400), Limit: 4}, 1) // before, the planner knows that the feed has nothing
	page := transfer.Position{TxID: 1}
	for _, tt := range []struct {
		name   string
		filter transfer.Filter
		want   []string
	}{
		{"all", transfer.Filter{}, []string{"transfers_tx_id_id"}},
		{"after a page", transfer.Filter{After: &page}, []string{"transfers_tx_id_id"}},
		{"one account's", transfer.Filter{AccountID: scattered("2", 400)}, []string{"transfers_debit_entry", "transfers_credit_entry", "transfers_pkey"}},
		{"a reference", transfer.Filter{Reference: "reference 400"}, []string{"transfers_reference"}},
		{"an account's reference", transfer.Filter{Reference: "reference 400", AccountID: scattered("3", 400)}, []string{"transfers_reference"}},
		{"a busy account's", transfer.Filter{AccountID: scattered("2", 10_000)}, []string{"transfers_debit_entry", "transfers_credit_entry", "transfers_pkey"}},
		{"a busy account's reference", transfer.Filter{Reference: "reference 14004", AccountID: scattered("2", 10_000)}, []string{"transfers_reference"}},
		{"a busy account's hold", transfer.Filter{HoldID: scattered("4", 14_000), AccountID: scattered("2", 10_000)}, []string{"transfers_hold"}},
		{"a busy account's metadata", transfer.Filter{Metadata: map[string]string{"order": "14000"}, AccountID: scattered("2", 10_000)}, []string{"transfers_metadata"}},
		{"metadata", transfer.Filter{Metadata: map[string]string{"order": "400"}}, []string{"transfers_metadata"}},
		{"metadata and more", transfer.Filter{Metadata: map[string]string{"order": "400", "shop": "1"}, Currency: "USD", AmountMin: amount("1")}, []string{"transfers_metadata"}},
		{"a hold", transfer.Filter{HoldID: scattered("4", 400)}, []string{"transfers_hold"}},
		{"a transfer taken back", transfer.Filter{ReversesTransferID: scattered("5", 401)}, []string{"transfers_reverses"}},
		{"a batch", transfer.Filter{BatchID: scattered("6", 10)}, []string{"transfers_batch"}},
	} {
		for _, tt.filter.Descending = range []bool{false, true} {
			tt.filter.Limit = 50
			plan := explainList(t, l, tt.filter)
			name := fmt.Sprintf("%s, descending %t", tt.name, tt.filter.Descending)
			for _, index := range tt.want {
				if !strings.Contains(plan, index) {
					t.Errorf("%s: want %s:\n%s", name, index, plan)
				}
			}
			if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "transfers_tx_id_id") != slices.Contains(tt.want, "transfers_tx_id_id") {
				t.Errorf("%s: want no walk over the whole table:\n%s", name, plan)
			}
			if strings.Contains(plan, "NULL::") {
				t.Errorf("%s: the planner does not see what is not filtered by:\n%s", name, plan)
			}
			if inOrder := tt.want[0] == "transfers_tx_id_id" || tt.want[0] == "transfers_debit_entry"; inOrder && strings.Contains(plan, "Sort  (") {
				t.Errorf("%s: want an index that has the order:\n%s", name, plan)
			}
		}
	}
}

// explainList returns the plan of f's query, for its parameters.
func explainList(t *testing.T, l *ledger, f transfer.Filter) string {
	t.Helper()
	sql, args := transfer.ListSQL(f)
	rows, _ := l.db.Query(t.Context(), `EXPLAIN `+sql, args...)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// Without it, the sixth list on a connection would have a plan for any filter,
// which walks over the whole table.
func TestEveryListIsPlannedForItsFilter(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.scatter(t, 10)
	db := connect(t, l.db.URL)
	s := transfer.New(db, transfer.Pessimistic, transfer.Locking{}, patient)
	for range 12 {
		page(t, s, transfer.Filter{HoldID: scattered("4", 0), Descending: true, Limit: 5})
	}
	var generic, custom int
	const plansSQL = `SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE $1`
	if err := db.QueryRow(t.Context(), plansSQL, "%FROM transfers t%").Scan(&generic, &custom); err != nil {
		t.Fatal(err)
	}
	if generic != 0 || custom != 12 {
		t.Errorf("%d plans for any filter and %d for the one there was, want 0 and 12", generic, custom)
	}
}

// A search that the server cannot finish in time is no list without results.
func TestAListThatTakesTooLongIsUnavailable(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.scatter(t, 10)
	hasty := patient
	hasty.StatementTimeout = 100 * time.Millisecond
	db := connect(t, l.db.URL)
	filter := transfer.Filter{Reference: "reference 4", Descending: true, Limit: 4}
	page(t, transfer.New(db, transfer.Pessimistic, transfer.Locking{}, patient), filter) // prepares the statement
	other := l.session(t)
	if _, err := other.Exec(t.Context(), `LOCK TABLE transfers`); err != nil {
		t.Fatal(err)
	}
	_, err := transfer.New(db, transfer.Pessimistic, transfer.Locking{}, hasty).List(t.Context(), filter)
	if !errors.Is(err, retry.ErrUnavailable) || retry.SQLState(err) != "57014" {
		t.Errorf("error = %v, want %v for 57014", err, retry.ErrUnavailable)
	}
}

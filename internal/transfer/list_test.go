package transfer_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/transfer"
)

// fillSQL makes 500 transfers between $1 and $2 in one transaction, with equal
// times: an order by time alone could not page through them.
const fillSQL = `
	INSERT INTO transfers (id, debit_account_id, credit_account_id, debit_version, credit_version, created_at, amount, debit_balance_after, credit_balance_after, kind, currency)
	SELECT gen_random_uuid(), CASE n % 2 WHEN 0 THEN $1::uuid ELSE $2 END, CASE n % 2 WHEN 0 THEN $2 ELSE $1::uuid END,
	       n, n, now(), 1, 0, 0, 'transfer', 'USD'
	  FROM generate_series(1, 500) n`

// read reads f's list to its end, and returns where it goes on one day.
func read(t *testing.T, s *transfer.Service, f transfer.Filter) (all []transfer.Transfer, next *transfer.Position) {
	t.Helper()
	for {
		page, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		all = append(all, page.Transfers...)
		if page.Next == nil || len(page.Transfers) < f.Limit {
			return all, page.Next
		}
		f.After = page.Next
	}
}

func page(t *testing.T, s *transfer.Service, f transfer.Filter) []transfer.Transfer {
	t.Helper()
	all, _ := read(t, s, f)
	return all
}

// pageUntil is page, as soon as there are n: an ascending list waits for every
// transaction of the server, and other tests have theirs.
func pageUntil(t *testing.T, s *transfer.Service, f transfer.Filter, n int) (all []transfer.Transfer) {
	t.Helper()
	for range 6000 {
		if all = page(t, s, f); len(all) >= n {
			return all
		}
		time.Sleep(10 * time.Millisecond)
	}
	return all
}

func idsOf(transfers []transfer.Transfer) (ids []uuid.UUID) {
	for _, t := range transfers {
		ids = append(ids, t.ID)
	}
	return ids
}

func TestPagesHaveEveryTransferOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	s := l.service(transfer.Pessimistic)
	low, high := l.openPair(t, "USD", "0")
	l.exec(t, fillSQL, low, high)
	l.exec(t, `UPDATE accounts SET version = 500 WHERE id IN ($1, $2)`, low, high)
	for range 3 { // in transactions of their own
		create(t, s, transfer.NewCredit(low, number("1"), "USD"))
	}
	for _, tt := range []struct {
		name   string
		filter transfer.Filter
		want   int
	}{
		{"all", transfer.Filter{Limit: 7}, 503},
		{"one account's", transfer.Filter{AccountID: low, Limit: 7}, 503},
		{"another account's", transfer.Filter{AccountID: high, Limit: 7}, 500},
		{"nobody's", transfer.Filter{AccountID: uuid.Must(uuid.NewV7()), Limit: 7}, 0},
	} {
		ascending := idsOf(pageUntil(t, s, tt.filter, tt.want))
		if len(ascending) != tt.want {
			t.Errorf("%s: %d transfers, want %d", tt.name, len(ascending), tt.want)
		}
		if once := slices.Compact(slices.SortedFunc(slices.Values(ascending), compareUUIDs)); len(once) != len(ascending) {
			t.Errorf("%s: %d transfers, of which %d differ, want each once", tt.name, len(ascending), len(once))
		}
		tt.filter.Descending = true
		descending := idsOf(page(t, s, tt.filter))
		slices.Reverse(descending)
		if diff := cmp.Diff(ascending, descending); diff != "" {
			t.Errorf("%s: descending is not the reverse of ascending:\n%s", tt.name, diff)
		}
	}
}

func compareUUIDs(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }

func TestAnAccountsTransfersAreInTheOrderOfItsStatement(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	s := l.service(transfer.Pessimistic)
	low, high := l.openPair(t, "USD", "10")
	var want []uuid.UUID
	for i := range 9 {
		c := between(low, high, "1", "USD")
		if i%2 == 1 {
			c = between(high, low, "1", "USD")
		}
		want = append(want, create(t, s, c).ID)
	}
	got := idsOf(page(t, s, transfer.Filter{AccountID: high, Limit: 4}))[1:] // without the first credit
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("transfers (-want +got):\n%s", diff)
	}
}

// A transaction that began to write first, and commits last, has the lower
// tx_id: a reader that had gone past it would never see its transfer.
func TestAnAscendingListStopsAtAnOpenTransactionAndLosesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	s := l.service(transfer.Pessimistic)
	low, high := l.openPair(t, "USD", "10")
	filter := transfer.Filter{Limit: 2}
	pageUntil(t, s, filter, 2)
	before, after := read(t, s, filter)

	other := l.session(t)
	var late uuid.UUID
	const insertSQL = `
		INSERT INTO transfers (id, debit_account_id, credit_account_id, debit_version, credit_version, created_at, amount, debit_balance_after, credit_balance_after, kind, currency)
		VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, 1, now(), 1, 0, 0, 'transfer', 'USD')
		RETURNING id`
	if err := other.QueryRow(t.Context(), insertSQL).Scan(&late); err != nil {
		t.Fatal(err)
	}
	var made []uuid.UUID
	for range 3 {
		made = append(made, create(t, s, between(low, high, "1", "USD")).ID)
	}
	if diff := cmp.Diff(idsOf(before), idsOf(page(t, s, filter))); diff != "" {
		t.Errorf("ascending, beside an open transaction (-want +got):\n%s", diff)
	}
	if got := page(t, s, transfer.Filter{Descending: true, Limit: 2}); len(got) != 5 {
		t.Errorf("descending, beside an open transaction: %d transfers, want all 5 that are committed", len(got))
	}
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	filter.After = after
	if diff := cmp.Diff(append([]uuid.UUID{late}, made...), idsOf(pageUntil(t, s, filter, 4))); diff != "" {
		t.Errorf("what follows when it has ended (-want +got):\n%s", diff)
	}
}

func TestATransferThatIsNotThereIsNotFound(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	if got, err := l.service(transfer.Pessimistic).Get(t.Context(), uuid.Must(uuid.NewV7())); !errors.Is(err, transfer.ErrNotFound) {
		t.Errorf("Get = %v, %v, want %v", got.ID, err, transfer.ErrNotFound)
	}
}

package accounts_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/testdb"
)

// A history is one account's entries, as a test made them up.
type history struct {
	id    uuid.UUID
	steps []step
}

type step struct {
	at      time.Time
	change  decimal.Decimal
	balance decimal.Decimal
}

var began = time.Date(2026, 5, 1, 9, 30, 0, 123456000, time.UTC)

// makeUp writes n transfers of an account in both directions, behind the
// ledger's back: so the times are known. Many share theirs with the one before.
func makeUp(t *testing.T, db *testdb.DB, id uuid.UUID, random *rand.Rand, n int) history {
	t.Helper()
	h := history{id: id}
	at, balance := began, decimal.Zero
	b := &pgx.Batch{}
	for version := 1; version <= n; version++ {
		if random.IntN(2) == 0 {
			at = at.Add(time.Duration(random.IntN(3)) * time.Microsecond)
		}
		change := decimal.New(random.Int64N(100_000)+1, -2)
		debit, credit := accounts.ExternalID("USD"), id
		if random.IntN(3) == 0 {
			change, debit, credit = change.Neg(), credit, debit
		}
		balance = balance.Add(change)
		own, other := version, random.Int64()>>1+1 // nobody reads the other side here
		versions, balances := []any{other, own}, []any{decimal.Zero, balance}
		if debit == id {
			versions, balances = []any{own, other}, []any{balance, decimal.Zero}
		}
		b.Queue(`
			INSERT INTO transfers (id, debit_account_id, credit_account_id, debit_version, credit_version, created_at, amount,
			                       debit_balance_after, credit_balance_after, kind, currency)
			VALUES (gen_random_uuid(), $1, $2, $3, $4, $5, $6, $7, $8, 'transfer', 'USD')`,
			debit, credit, versions[0], versions[1], at, change.Abs(), balances[0], balances[1])
		h.steps = append(h.steps, step{at, change, balance})
	}
	b.Queue(`UPDATE accounts SET version = $2 WHERE id = $1`, id, n)
	if err := db.SendBatch(t.Context(), b).Close(); err != nil {
		t.Fatal(err)
	}
	return h
}

// fold adds up the entries that are kept, and counts them.
func (h history) fold(keep func(step) bool) (version int64, balance decimal.Decimal) {
	for _, s := range h.steps {
		if !keep(s) {
			break
		}
		version++
		balance = balance.Add(s.change)
	}
	return version, balance
}

// moments are all times that matter: at every entry, right before and after it,
// between two, and far from all.
func (h history) moments() (all []time.Time) {
	for _, s := range h.steps {
		all = append(all, s.at, s.at.Add(-time.Microsecond), s.at.Add(time.Microsecond), s.at.Add(time.Nanosecond), s.at.Add(-time.Nanosecond))
	}
	return append(all, began.Add(-24*time.Hour), began.Add(24*time.Hour), time.Date(1, 2, 3, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
}

// Whatever the history, the balance at a version or a time is the fold of the
// entries up to it.
func TestABalanceIsTheFoldOfItsEntries(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 3, 7, 8, 9, 40} {
		h := makeUp(t, db, open(t, s, accounts.Opening{Currency: "USD"}).ID, random, n)
		check := func(name string, m accounts.Moment, version int64, balance decimal.Decimal) {
			t.Helper()
			got, err := s.BalanceAt(t.Context(), h.id, m)
			if err != nil || got.Version != version || !got.Balance.Equal(balance) || got.Currency != "USD" || got.AccountID != h.id {
				t.Fatalf("%d entries, %s: got %+v, %v, want version %d with %s", n, name, got, err, version, balance)
			}
			if version == 0 && !got.At.IsZero() || version > 0 && !got.At.Equal(h.steps[version-1].at) {
				t.Fatalf("%d entries, %s: made at %v, want the time of entry %d", n, name, got.At, version)
			}
		}
		version, balance := h.fold(func(step) bool { return true })
		check("now", accounts.Moment{}, version, balance)
		for v := range int64(n) + 1 {
			version, balance := h.fold(func(s step) bool { v--; return v >= 0 })
			check(fmt.Sprintf("version %d", version), accounts.Moment{Version: &version}, version, balance)
		}
		for _, at := range h.moments() {
			version, balance := h.fold(func(s step) bool { return !s.at.After(at) })
			check(at.Format(time.RFC3339Nano), accounts.Moment{At: at}, version, balance)
		}
	}
}

// The opening balance and the entries of all pages make the closing balance,
// for any period, and every page says the same of both.
func TestAStatementAddsUp(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	random := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 5, 30} {
		h := makeUp(t, db, open(t, s, accounts.Opening{Currency: "USD"}).ID, random, n)
		times := append(h.moments(), time.Time{})
		for range 60 {
			p := accounts.Period{From: times[random.IntN(len(times))], To: times[random.IntN(len(times))]}
			if !p.To.IsZero() && p.To.Before(p.From) {
				p.From, p.To = p.To, p.From
			}
			opening, before := h.fold(func(s step) bool { return s.at.Before(p.From) })
			closing, after := h.fold(func(s step) bool { return p.To.IsZero() || s.at.Before(p.To) })
			r := accounts.Reading{Period: p, Limit: 1 + random.IntN(7)}
			for first := true; first || r.After < closing; first = false {
				got, err := s.Statement(t.Context(), h.id, r)
				if err != nil || got.Bounds() != (accounts.Bounds{Opening: opening, Closing: closing}) ||
					!got.Opening.Balance.Equal(before) || !got.Closing.Balance.Equal(after) {
					t.Fatalf("%d entries, %+v: got %+v, %v; want from %d with %s to %d with %s", n, r, got, err, opening, before, closing, after)
				}
				if len(got.Entries) == 0 && opening < closing {
					t.Fatalf("%d entries, %+v: an empty page", n, r)
				}
				r.Bounds = new(got.Bounds())
				r.After = max(r.After, opening)
				for _, e := range got.Entries {
					if r.After++; e.Version != r.After || !e.BalanceAfter.Equal(h.steps[e.Version-1].balance) {
						t.Fatalf("%d entries, %+v: entry %+v, want version %d", n, r, e, r.After)
					}
				}
			}
			if r.After != closing {
				t.Errorf("%d entries, %+v: the pages end with version %d, want %d", n, p, r.After, closing)
			}
		}
	}
}

// What is made between two pages is on none of them.
func TestAStatementStaysAsItsFirstPageFoundIt(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	id := open(t, s, accounts.Opening{Currency: "USD"}).ID
	for range 3 {
		credit(t, db, id, "1.00", "USD")
	}
	first, err := s.Statement(t.Context(), id, accounts.Reading{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	credit(t, db, id, "1.00", "USD")
	second, err := s.Statement(t.Context(), id, accounts.Reading{Bounds: new(first.Bounds()), After: 2, Limit: 2})
	if err != nil || !second.Closing.Balance.Equal(first.Closing.Balance) || second.Closing.Version != 3 || len(second.Entries) != 1 {
		t.Errorf("got %+v, %v, want one entry and the closing balance of version 3", second, err)
	}
}

func TestHistoryOfNobodyAndOfVersionsThatAreNotThere(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	nobody := uuid.Must(uuid.NewV7())
	for _, m := range []accounts.Moment{{}, {Version: new(int64)}, {At: began}} {
		if _, err := s.BalanceAt(t.Context(), nobody, m); !errors.Is(err, accounts.ErrNotFound) {
			t.Errorf("%+v: error = %v, want %v", m, err, accounts.ErrNotFound)
		}
	}
	for _, p := range []accounts.Period{{}, {From: began}, {To: began}} {
		if _, err := s.Statement(t.Context(), nobody, accounts.Reading{Period: p, Limit: 1}); !errors.Is(err, accounts.ErrNotFound) {
			t.Errorf("%+v: error = %v, want %v", p, err, accounts.ErrNotFound)
		}
	}
	id := open(t, s, accounts.Opening{Currency: "USD"}).ID
	var fault *invalid.Error
	if _, err := s.BalanceAt(t.Context(), id, accounts.Moment{Version: new(int64(1))}); !errors.As(err, &fault) || fault.Faults[0].Field != "version" {
		t.Errorf("a version too high: error = %v, want a fault of version", err)
	}
	// An entry that is gone is no balance of zero, nor an account that is not there.
	exec(t, db, `UPDATE accounts SET version = 5 WHERE id = $1`, id)
	for _, m := range []accounts.Moment{{}, {Version: new(int64(4))}, {At: began}} {
		if got, err := s.BalanceAt(t.Context(), id, m); err == nil || errors.Is(err, accounts.ErrNotFound) || errors.As(err, &fault) {
			t.Errorf("%+v: got %+v, %v, want an error of our own", m, got, err)
		}
	}
}

// A balance of any time costs a few look-ups, however long the history is, and
// whether the plan knows the parameters or not.
func TestABalanceIsFoundWithoutASumOrAScan(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	const entries = 100_000
	for range 50 {
		open(t, s, accounts.Opening{Currency: "USD"})
	}
	id := open(t, s, accounts.Opening{Currency: "USD"}).ID
	exec(t, db, `
		INSERT INTO transfers (id, debit_account_id, credit_account_id, debit_version, credit_version, created_at, amount, debit_balance_after, credit_balance_after, kind, currency)
		SELECT gen_random_uuid(), CASE n % 3 WHEN 0 THEN $1::uuid ELSE $2::uuid END, CASE n % 3 WHEN 0 THEN $2::uuid ELSE $1::uuid END, n, n, $3::timestamptz + n * interval '1 ms', 1, n, n, 'transfer', 'USD'
		  FROM generate_series(1, $4::bigint) n`, id, accounts.ExternalID("USD"), began, entries)
	exec(t, db, `UPDATE accounts SET version = $2 WHERE id = $1`, id, entries)
	exec(t, db, `ANALYZE transfers`)
	exec(t, db, `ANALYZE accounts`)
	middle := "'" + began.Add(entries/3*time.Millisecond).Format(time.RFC3339Nano) + "'"
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		for _, tt := range []struct {
			name, sql, kind, argument string
			buffers                   int
		}{
			{"before a time", accounts.SelectBalanceBeforeSQL, "timestamptz", middle, 400},
			{"at a version", accounts.SelectBalanceSQL, "bigint", "33333", 40},
			{"now", accounts.SelectBalanceSQL, "bigint", "NULL", 40},
		} {
			plan := analyze(t, db, mode, tt.sql, tt.kind, fmt.Sprintf("'%s', %s", id, tt.argument))
			if strings.Contains(plan, "Seq Scan on transfers") {
				t.Errorf("%s, %s: the plan reads all transfers:\n%s", tt.name, mode, plan)
			}
			if got := buffers(t, plan); got > tt.buffers {
				t.Errorf("%s, %s: %d pages are read, want at most %d:\n%s", tt.name, mode, got, tt.buffers, plan)
			}
		}
	}
}

// analyze runs sql as a prepared statement and returns what that took.
func analyze(t *testing.T, db *testdb.DB, mode, sql, kind, arguments string) string {
	t.Helper()
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, statement := range []string{
		`SET plan_cache_mode = ` + mode,
		`PREPARE history (uuid, ` + kind + `) AS ` + sql,
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	defer conn.Exec(t.Context(), `DEALLOCATE history; RESET plan_cache_mode`)
	rows, _ := conn.Query(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE history (`+arguments+`)`, pgx.QueryExecModeSimpleProtocol)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// buffers are the pages that a plan's top node has touched.
func buffers(t *testing.T, plan string) (sum int) {
	t.Helper()
	line := regexp.MustCompile(`Buffers: .*`).FindString(plan)
	for _, found := range regexp.MustCompile(`(?:hit|read)=(\d+)`).FindAllStringSubmatch(line, -1) {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if sum == 0 {
		t.Errorf("the plan says nothing of pages:\n%s", plan)
	}
	return sum
}

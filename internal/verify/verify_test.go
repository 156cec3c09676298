package verify_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
	"github.com/rowlock/ledger/internal/verify"
)

func TestMain(m *testing.M) { testdb.Main(m) }

var policy = retry.Policy{Attempts: 3, MinPause: time.Millisecond, MaxPause: 10 * time.Millisecond}

// Fixed ids, so that damage can be written as SQL.
var (
	alice = uuid.MustParse("0a000000-0000-7000-8000-000000000001")
	bob   = uuid.MustParse("0b000000-0000-7000-8000-000000000002")
)

// ledger makes a database with two accounts, three transfers, a refusal and a
// queued payment: alice 100, -30, -20; bob +30.
func ledger(t *testing.T) *testdb.DB {
	t.Helper()
	db := testdb.New(t)
	ctx := t.Context()
	for _, id := range []uuid.UUID{alice, bob} {
		if _, _, err := accounts.New(db, policy).Open(ctx, accounts.Opening{ID: id, Currency: "USD"}); err != nil {
			t.Fatal(err)
		}
	}
	service := transfer.New(db, transfer.Pessimistic, transfer.Locking{}, policy)
	between := transfer.Command{Kind: transfer.Between, DebitAccountID: alice, CreditAccountID: bob, Amount: decimal.NewFromInt(30), Currency: "USD"}
	for _, c := range []transfer.Command{
		keyed(transfer.NewCredit(alice, decimal.NewFromInt(100), "USD"), "credit"),
		keyed(between, "transfer"),
		keyed(transfer.NewDebit(alice, decimal.NewFromInt(20), "USD"), "debit"),
	} {
		if _, _, err := service.Create(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := service.Create(ctx, keyed(transfer.NewDebit(alice, decimal.NewFromInt(1000), "USD"), "refused")); err == nil {
		t.Fatal("the fourth transfer was made, want a refusal")
	}
	queued := payment.Command{DebitAccountID: alice, CreditAccountID: bob, Amount: decimal.NewFromInt(1), Currency: "USD"}
	if _, _, err := payment.New(db, policy, nil).Enqueue(ctx, queued); err != nil {
		t.Fatal(err)
	}
	return db
}

func keyed(c transfer.Command, key string) transfer.Command {
	c.Key = &idempotency.Key{Principal: "alice", Value: key}
	return c
}

func check(t *testing.T, db *testdb.DB) verify.Report {
	t.Helper()
	report, err := verify.Ledger(t.Context(), db, policy)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestCleanAfterTransfers(t *testing.T) {
	t.Parallel()
	report := check(t, ledger(t))
	if !report.Clean() {
		t.Errorf("findings = %+v, want none", report.Findings)
	}
	if report.Accounts != 3 || report.Transfers != 3 || report.Keys != 4 {
		t.Errorf("accounts, transfers, keys = %d, %d, %d, want 3, 3, 4", report.Accounts, report.Transfers, report.Keys)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(), "every invariant holds") {
		t.Errorf("WriteText: %v, %q", err, text.String())
	}
}

func TestCleanWhenEmpty(t *testing.T) {
	t.Parallel()
	if report := check(t, testdb.New(t)); !report.Clean() {
		t.Errorf("findings = %+v, want none", report.Findings)
	}
}

func TestDamageIsFound(t *testing.T) {
	t.Parallel()
	const aliceID, bobID = "'0a000000-0000-7000-8000-000000000001'", "'0b000000-0000-7000-8000-000000000002'"
	tests := []struct {
		name   string
		sql    string
		want   map[verify.Kind]int64
		amount string // of the first finding of the first kind that is listed
	}{
		{"money appears", "UPDATE accounts SET balance = balance + 0.01 WHERE id = " + aliceID,
			map[verify.Kind]int64{verify.CurrencySum: 1, verify.Balance: 1}, "0.01"},
		{"money vanishes", "UPDATE accounts SET balance = balance - 7.50 WHERE id = " + aliceID,
			map[verify.Kind]int64{verify.CurrencySum: 1, verify.Balance: 1}, "-7.5"},
		{"losses cancel in the total", "UPDATE accounts SET balance = balance + CASE id WHEN " + aliceID + " THEN 5 ELSE -5 END WHERE kind = 'customer'",
			map[verify.Kind]int64{verify.Balance: 2}, "5"},
		{"a version is ahead", "UPDATE accounts SET version = version + 1 WHERE id = " + bobID,
			map[verify.Kind]int64{verify.Version: 1}, "0"},
		{"an entry has moved on", "UPDATE transfers SET debit_version = 9 WHERE kind = 'debit'",
			map[verify.Kind]int64{verify.Version: 1, verify.VersionGap: 1}, "0"},
		// One side each: no unique index covers debits and credits together.
		{"a version twice across sides", "UPDATE transfers SET debit_version = 1 WHERE kind = 'transfer'",
			map[verify.Kind]int64{verify.VersionGap: 2}, "0"},
		{"a balance after is wrong", "UPDATE transfers SET debit_balance_after = 69 WHERE kind = 'transfer'",
			map[verify.Kind]int64{verify.RunningBalance: 2}, "-1"},
		{"an overdraft", `ALTER TABLE accounts DROP CONSTRAINT accounts_available_covered;
			UPDATE accounts SET min_balance = 0, balance = -3 WHERE id = ` + bobID,
			map[verify.Kind]int64{verify.CurrencySum: 1, verify.Balance: 1, verify.Overdrawn: 1}, "-33"},
		{"more is held than there is", `ALTER TABLE accounts DROP CONSTRAINT accounts_available_covered;
			UPDATE accounts SET held = 31 WHERE id = ` + bobID,
			map[verify.Kind]int64{verify.Held: 1, verify.Overdrawn: 1}, "31"},
		{"a balance above its maximum", `ALTER TABLE accounts DROP CONSTRAINT accounts_balance_capped;
			UPDATE accounts SET max_balance = 20 WHERE id = ` + bobID,
			map[verify.Kind]int64{verify.AboveMaximum: 1}, "10"},
		{"time falls", "UPDATE transfers SET created_at = created_at - interval '1 hour' WHERE kind = 'debit'",
			map[verify.Kind]int64{verify.TimeFalls: 2}, "0"},
		{"an account is gone", "DELETE FROM accounts WHERE id = " + bobID,
			map[verify.Kind]int64{verify.CurrencySum: 1, verify.MissingAccount: 1}, "-30"},
		{"an account changes its currency", "UPDATE accounts SET currency = 'EUR' WHERE id = " + bobID,
			map[verify.Kind]int64{verify.CurrencySum: 2, verify.CurrencyMismatch: 1}, "30"},
		{"a transfer is gone", "DELETE FROM transfers WHERE kind = 'debit'",
			map[verify.Kind]int64{verify.Balance: 2, verify.Version: 2, verify.KeyWithoutTransfer: 1}, "-20"},
		{"a refusal was made", "UPDATE idempotency_keys SET refusal = '{}' WHERE key = 'debit'",
			map[verify.Kind]int64{verify.RefusedTransfer: 1}, "0"},
		{"two keys name one transfer", "UPDATE idempotency_keys SET refusal = NULL, resource_id = (SELECT resource_id FROM idempotency_keys WHERE key = 'debit') WHERE key = 'refused'",
			map[verify.Kind]int64{verify.KeyWithoutTransfer: 1}, "0"},
		{"a payment was not made", "UPDATE payments SET status = 'done', finished_at = now(), queued_at = NULL",
			map[verify.Kind]int64{verify.PaymentNotMade: 1}, "0"},
		{"a payment was made and does not know", "UPDATE payments SET id = (SELECT id FROM transfers WHERE kind = 'transfer')",
			map[verify.Kind]int64{verify.PaymentNotDone: 1}, "0"},
		{"a payment was made with another amount", "UPDATE payments SET id = (SELECT id FROM transfers WHERE kind = 'transfer'), status = 'done', finished_at = now(), queued_at = NULL",
			map[verify.Kind]int64{verify.PaymentNotMade: 1}, "0"},
		{"a success was not made", "UPDATE idempotency_keys SET refusal = NULL WHERE key = 'refused'",
			map[verify.Kind]int64{verify.KeyWithoutTransfer: 1}, "0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := ledger(t)
			damage(t, db, tt.sql)
			report := check(t, db)
			for _, kind := range verify.Kinds() {
				if got := report.Counts[kind]; got != tt.want[kind] {
					t.Errorf("%s: %d findings, want %d", kind, got, tt.want[kind])
				}
			}
			if report.Clean() || len(report.Findings) == 0 {
				t.Fatal("the report is clean")
			}
			first := report.Findings[0]
			for _, f := range report.Findings {
				if f.Kind == verify.Balance && first.Kind == verify.CurrencySum {
					first = f
				}
			}
			if want := decimal.RequireFromString(tt.amount); !first.Amount.Equal(want) {
				t.Errorf("amount of %+v = %s, want %s", first, first.Amount, want)
			}
			if t.Failed() {
				t.Logf("%+v", report)
			}
		})
	}
}

// damage runs sql as nobody but a superuser with the guards down can.
func damage(t *testing.T, db *testdb.DB, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	guards := "ALTER TABLE accounts DISABLE TRIGGER USER; ALTER TABLE transfers DISABLE TRIGGER USER; ALTER TABLE holds DISABLE TRIGGER USER;"
	if _, err := conn.PgConn().Exec(t.Context(), guards+sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

func TestTotalsBySign(t *testing.T) {
	t.Parallel()
	db := ledger(t)
	damage(t, db, "UPDATE accounts SET balance = balance + CASE kind WHEN 'customer' THEN 5 ELSE -10 END")
	report := check(t, db)
	if len(report.Totals) != 1 {
		t.Fatalf("totals = %+v, want one", report.Totals)
	}
	total := report.Totals[0]
	if !total.Sum.IsZero() || !total.Customers.Equal(decimal.NewFromInt(10)) || !total.External.Equal(decimal.NewFromInt(10)) {
		t.Errorf("sum, customers, external = %s, %s, %s, want 0, 10, 10", total.Sum, total.Customers, total.External)
	}
}

func TestFindingsAreBounded(t *testing.T) {
	t.Parallel()
	db := ledger(t)
	damage(t, db, `INSERT INTO accounts (id, currency, balance) SELECT gen_random_uuid(), 'USD', 1 FROM generate_series(1, 50)
		WHERE gen_random_uuid() < 'ffffffff-0000-0000-0000-000000000000'`)
	report := check(t, db)
	if got := report.Counts[verify.Balance]; got != 50 {
		t.Errorf("balance findings = %d, want 50", got)
	}
	listed := 0
	for _, f := range report.Findings {
		if f.Kind == verify.Balance {
			listed++
		}
	}
	if listed != verify.MaxFindings {
		t.Errorf("listed = %d, want %d", listed, verify.MaxFindings)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(), "and 30 more") {
		t.Errorf("WriteText: %v, want the rest as a count:\n%s", err, text.String())
	}
}

// A ledger need not be stopped: what is half done or done meanwhile is no
// finding.
func TestCleanWhileTransfersGoOn(t *testing.T) {
	t.Parallel()
	db := ledger(t)
	ctx, cancel := context.WithCancel(t.Context())
	service := transfer.New(db, transfer.Pessimistic, transfer.Locking{}, policy)
	var traffic sync.WaitGroup
	for _, ids := range [][2]uuid.UUID{{alice, bob}, {bob, alice}} {
		traffic.Go(func() {
			c := transfer.Command{Kind: transfer.Between, DebitAccountID: ids[0], CreditAccountID: ids[1], Amount: decimal.New(1, -2), Currency: "USD"}
			for ctx.Err() == nil {
				if _, _, err := service.Create(ctx, c); err != nil && ctx.Err() == nil {
					t.Errorf("transfer: %v", err)
					return
				}
			}
		})
	}
	before := check(t, db).Transfers
	var after int64
	deadline := time.Now().Add(time.Minute)
	for n := 0; n < 100 || after == before && time.Now().Before(deadline); n++ {
		report := check(t, db)
		if !report.Clean() {
			t.Errorf("findings = %+v, want none", report.Findings)
			break
		}
		after = report.Transfers
	}
	cancel()
	traffic.Wait()
	if after == before {
		t.Error("no transfer was made meanwhile")
	}
}

package accounts_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// patient is a policy whose limits no test reaches, however slow the machine.
var patient = retry.Policy{
	Attempts: 1000, MinPause: time.Millisecond, MaxPause: 20 * time.Millisecond,
	StatementTimeout: time.Minute, LockTimeout: time.Minute,
}

func newService(t *testing.T) (*testdb.DB, *accounts.Service) {
	t.Helper()
	db := testdb.New(t)
	db.AcquireTimeout = time.Minute
	return db, accounts.New(db, patient)
}

func number(s string) decimal.Decimal { return decimal.RequireFromString(s) }

func key(value string) *idempotency.Key { return &idempotency.Key{Principal: "tester", Value: value} }

// open opens an account and wants it to be new.
func open(t *testing.T, s *accounts.Service, o accounts.Opening) accounts.Account {
	t.Helper()
	account, replayed, err := s.Open(t.Context(), o)
	if err != nil || replayed {
		t.Fatalf("Open = replayed %v, error %v, want a new account", replayed, err)
	}
	return account
}

// credit brings money into an account.
func credit(t *testing.T, db retry.Beginner, id uuid.UUID, amount, currency string) {
	t.Helper()
	s := transfer.New(db, transfer.Pessimistic, transfer.Locking{}, patient)
	if _, _, err := s.Create(t.Context(), transfer.NewCredit(id, number(amount), currency)); err != nil {
		t.Fatalf("credit: %v", err)
	}
}

func exec(t *testing.T, db *testdb.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func wantCount(t *testing.T, db *testdb.DB, sql string, want int) {
	t.Helper()
	var got int
	if err := db.QueryRow(t.Context(), sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if got != want {
		t.Errorf("%s: %d, want %d", sql, got, want)
	}
}

// A lossyDB loses the answer of its first COMMIT, which is carried out or not.
type lossyDB struct {
	retry.Beginner
	lost, carriedOut bool
}

func (db *lossyDB) BeginWith(ctx context.Context, begin *pgx.Batch) (pgx.Tx, error) {
	tx, err := db.Beginner.BeginWith(ctx, begin)
	if err != nil {
		return nil, err
	}
	return &lossyTx{tx, db}, nil
}

type lossyTx struct {
	pgx.Tx
	db *lossyDB
}

func (tx *lossyTx) Commit(ctx context.Context) error {
	if tx.db.lost {
		return tx.Tx.Commit(ctx)
	}
	tx.db.lost = true
	if tx.db.carriedOut {
		if err := tx.Tx.Commit(ctx); err != nil {
			return err
		}
	}
	return context.DeadlineExceeded // no answer of the server's
}

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
	"github.com/rowlock/ledger/internal/verify"
)

// A bank is some accounts with money, among which a test moves it about.
type bank []uuid.UUID

func newBank(t *testing.T, db *postgres.DB) (b bank) {
	t.Helper()
	ctx := testContext(t)
	credits := service(db, transfer.Pessimistic)
	for range 8 {
		account, _, err := accounts.New(db, policy).Open(ctx, accounts.Opening{Currency: "USD"})
		if err != nil {
			t.Fatalf("open an account: %v", err)
		}
		if _, _, err := credits.Create(ctx, transfer.NewCredit(account.ID, decimal.NewFromInt(1000), "USD")); err != nil {
			t.Fatalf("credit: %v", err)
		}
		b = append(b, account.ID)
	}
	return b
}

func service(db *postgres.DB, mode *transfer.Mode) *transfer.Service {
	return transfer.New(db, mode, transfer.Locking{}, policy)
}

// safeModes are those that lose no money.
func safeModes() (modes []*transfer.Mode) {
	for _, m := range transfer.Modes() {
		if !m.LosesMoney {
			modes = append(modes, m)
		}
	}
	return modes
}

// move makes one transfer between two accounts of b by chance, each under a key
// of its own, and again while all that was lost is a conflict.
func (b bank) move(ctx context.Context, s *transfer.Service) error {
	from, to := rand.IntN(len(b)), rand.IntN(len(b)-1)
	if to >= from {
		to++
	}
	c := transfer.Command{
		Kind: transfer.Between, DebitAccountID: b[from], CreditAccountID: b[to],
		Amount: decimal.New(1+rand.Int64N(500), -2), Currency: "USD",
		Call: transfer.Call{Key: &idempotency.Key{Principal: "test", Value: uuid.NewString()}},
	}
	for {
		_, _, err := s.Create(ctx, c)
		var exhausted *retry.ExhaustedError
		switch {
		case errors.As(err, &exhausted) && ctx.Err() == nil:
			continue
		case errors.Is(err, transfer.ErrInsufficientFunds):
			return nil
		}
		return err
	}
}

// checkLedger fails the test if any invariant of the ledger in db is broken.
func checkLedger(t *testing.T, db *postgres.DB) {
	t.Helper()
	report, err := verify.Ledger(testContext(t), db, policy)
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	if !report.Clean() {
		var text strings.Builder
		report.WriteText(&text)
		t.Errorf("the ledger is damaged:\n%s", text.String())
	}
}

// countTransfers says how much a test has really done.
func countTransfers(t *testing.T, url string) int {
	t.Helper()
	return ask[int](t, url, fmt.Sprintf("SELECT count(1) FROM transfers WHERE kind = '%s'", transfer.Between))
}

package transfer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

func (l *ledger) moveOrders(t *testing.T, orders ...transfer.Order) ([]transfer.Outcome, error) {
	t.Helper()
	return retry.Tx(t.Context(), l.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, patient, func(ctx context.Context, tx pgx.Tx) ([]transfer.Outcome, error) {
		return transfer.Move(ctx, tx, orders)
	})
}

// Orders are a group: in their order, each by itself, under their own ids.
func TestOrdersAreMadeOrRefusedInTheirOrder(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	low, high := l.openPair(t, "USD", "10")
	order := func(debit, credit uuid.UUID, amount string) transfer.Order {
		return transfer.Order{ID: uuid.Must(uuid.NewV7()), Command: between(debit, credit, amount, "USD")}
	}
	orders := []transfer.Order{order(low, high, "20"), order(high, low, "10"), order(low, high, "20"), order(low, uuid.New(), "1")}
	outcomes, err := l.moveOrders(t, orders...)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{transfer.ErrInsufficientFunds, nil, nil, transfer.ErrAccountNotFound} {
		o := outcomes[i]
		if !errors.Is(o.Refusal, want) || want == nil && o.Transfer.ID != orders[i].ID {
			t.Errorf("outcome %d = %+v, want %v", i, o, want)
		}
		if n := count(t, l, `SELECT count(*) FROM transfers WHERE id = $1`, orders[i].ID); (n == 1) != (want == nil) {
			t.Errorf("order %d: %d transfers", i, n)
		}
	}
	l.wantBalance(t, low, "0")
	l.wantBalance(t, high, "20")

	// An id is one transfer, whoever orders it again.
	if _, err := l.moveOrders(t, order(high, low, "1"), orders[1]); retry.SQLState(err) != "23505" {
		t.Errorf("the same id again: error = %v, want a unique violation", err)
	}
	l.wantBalance(t, low, "0")
	l.wantSound(t)
}

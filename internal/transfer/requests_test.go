package transfer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/transfer"
)

// A request is any command, to be sent to a service with a call of its own.
type request func(ctx context.Context, s *transfer.Service, call transfer.Call) result

// A result is what a request was answered with.
type result struct {
	made     any // a Transfer, a Hold or a Batch
	replayed bool
	err      error
}

func resultOf[T any](made T, replayed bool, err error) result { return result{made, replayed, err} }

func creating(c transfer.Command) request {
	return func(ctx context.Context, s *transfer.Service, call transfer.Call) result {
		c.Call = call
		return resultOf(s.Create(ctx, c))
	}
}

func holding(c transfer.HoldCommand) request {
	return func(ctx context.Context, s *transfer.Service, call transfer.Call) result {
		c.Call = call
		return resultOf(s.Hold(ctx, c))
	}
}

func capturing(c transfer.Capture) request {
	return func(ctx context.Context, s *transfer.Service, call transfer.Call) result {
		c.Call = call
		return resultOf(s.Capture(ctx, c))
	}
}

func voiding(id uuid.UUID) request {
	return func(ctx context.Context, s *transfer.Service, call transfer.Call) result {
		h, err := s.Void(ctx, id, call)
		return result{h, false, err}
	}
}

func reversing(r transfer.Reversal) request {
	return func(ctx context.Context, s *transfer.Service, call transfer.Call) result {
		r.Call = call
		return resultOf(s.Reverse(ctx, r))
	}
}

func batching(atomic bool, cs ...transfer.Command) request {
	return func(ctx context.Context, s *transfer.Service, call transfer.Call) result {
		return resultOf(s.CreateBatch(ctx, transfer.BatchCommand{Call: call, Atomic: atomic, Transfers: cs}))
	}
}

// send sends r, under a key where there is one.
func (r request) send(t testing.TB, s *transfer.Service, key string) result {
	t.Helper()
	return r(t.Context(), s, callUnder(key))
}

func callUnder(key string) transfer.Call {
	if key == "" {
		return transfer.Call{}
	}
	return transfer.Call{Key: &idempotency.Key{Principal: "tester", Value: key}}
}

// done sends r without a key, and wants it done.
func (r request) done(t testing.TB, s *transfer.Service) result {
	t.Helper()
	got := r.send(t, s, "")
	if got.err != nil || got.replayed {
		t.Fatalf("replayed %v, error %v, want it done", got.replayed, got.err)
	}
	return got
}

func (r request) refused(t testing.TB, s *transfer.Service, want error) {
	t.Helper()
	if got := r.send(t, s, ""); !errors.Is(got.err, want) {
		t.Errorf("error = %v, want %v", got.err, want)
	}
}

// sameAnswers compares what was answered, as callers see it.
var sameAnswers = cmp.Options{cmpopts.IgnoreUnexported(transfer.Hold{}), cmpopts.EquateEmpty()}

func holdOf(debit, credit uuid.UUID, amount string) transfer.HoldCommand {
	return transfer.HoldCommand{Kind: transfer.Between, DebitAccountID: debit, CreditAccountID: credit, Amount: number(amount), Currency: "USD"}
}

// openHold opens a hold without an end.
func openHold(t testing.TB, s *transfer.Service, debit, credit uuid.UUID, amount string) transfer.Hold {
	t.Helper()
	return holding(holdOf(debit, credit, amount)).done(t, s).made.(transfer.Hold)
}

// openExpired opens a hold whose time is over, and that nobody has ended.
func (l *ledger) openExpired(t testing.TB, debit, credit uuid.UUID, amount string) transfer.Hold {
	t.Helper()
	c := holdOf(debit, credit, amount)
	c.ExpiresAt = time.Now().Add(24 * time.Hour)
	h := holding(c).done(t, l.service(transfer.Pessimistic)).made.(transfer.Hold)
	l.expireNow(t, h.ID)
	return h
}

// expireNow puts the end of holds behind them, by the database's clock.
func (l *ledger) expireNow(t testing.TB, ids ...uuid.UUID) {
	t.Helper()
	l.exec(t, `UPDATE holds SET expires_at = created_at WHERE id = ANY($1)`, ids)
}

func (l *ledger) wantHeld(t testing.TB, id uuid.UUID, want string) {
	t.Helper()
	var got string
	if err := l.db.QueryRow(t.Context(), `SELECT held::text FROM accounts WHERE id = $1`, id).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if !number(got).Equal(number(want)) {
		t.Errorf("held = %s, want %s", got, want)
	}
}

// wantHold compares what is stored of a hold: its status, as the table has it,
// and what was captured.
func (l *ledger) wantHold(t testing.TB, id uuid.UUID, status, captured string) {
	t.Helper()
	var gotStatus, gotCaptured string
	if err := l.db.QueryRow(t.Context(), `SELECT status, captured::text FROM holds WHERE id = $1`, id).Scan(&gotStatus, &gotCaptured); err != nil {
		t.Fatal(err)
	}
	if gotStatus != status || !number(gotCaptured).Equal(number(captured)) {
		t.Errorf("hold = %s, %s captured, want %s, %s", gotStatus, gotCaptured, status, captured)
	}
}

// contents are all rows of the tables that a command may write, as text.
func (l *ledger) contents(t testing.TB) []string {
	t.Helper()
	rows, _ := l.db.Query(t.Context(), `
		SELECT 'account ' || a::text FROM accounts a
		 UNION ALL SELECT 'transfer ' || t::text FROM transfers t
		 UNION ALL SELECT 'hold ' || h::text FROM holds h
		 UNION ALL SELECT 'key ' || k::text FROM idempotency_keys k
		 UNION ALL SELECT 'payment ' || p::text FROM payments p
		 ORDER BY 1`)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

package payment_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/transfer"
)

func TestAPaymentBeginsByWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, tt := range []struct {
		name string
		set  func(c *payment.Command)
		want string
	}{
		{"nothing", func(*payment.Command) {}, payment.Queued},
		{"a time that has passed", func(c *payment.Command) { c.RunAt = time.Now().Add(-time.Hour) }, payment.Queued},
		{"a time to come", func(c *payment.Command) { c.RunAt = time.Now().Add(time.Hour) }, payment.Scheduled},
		{"approval", func(c *payment.Command) { c.NeedsApproval = true }, payment.AwaitingApproval},
		{"approval and a time", func(c *payment.Command) { c.NeedsApproval, c.RunAt = true, time.Now().Add(time.Hour) }, payment.AwaitingApproval},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := l.pay("5.00")
			c.Description, c.Metadata, c.Priority, c.MaxAttempts = "rent", map[string]string{"a": "b"}, 7, 3
			tt.set(&c)
			got := l.enqueue(t, c)
			want := payment.Payment{
				ID: got.ID, Status: tt.want, DebitAccountID: l.rich, CreditAccountID: l.poor, Amount: c.Amount, Currency: "USD",
				Description: "rent", Metadata: map[string]string{"a": "b"}, Priority: 7, RunAt: got.RunAt, MaxAttempts: 3,
				Failures: []payment.Failure{}, NeedsApproval: c.NeedsApproval, CreatedAt: got.CreatedAt,
			}
			if !c.RunAt.IsZero() {
				want.RunAt = c.RunAt.UTC().Truncate(time.Microsecond)
			}
			same := cmp.Options{cmp.Comparer(decimal.Decimal.Equal), cmp.Comparer(time.Time.Equal)}
			if diff := cmp.Diff(want, got, same, cmp.AllowUnexported(payment.Payment{})); diff != "" {
				t.Errorf("enqueued (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(got, l.get(t, got.ID), same, cmp.AllowUnexported(payment.Payment{})); diff != "" {
				t.Errorf("stored (-enqueued +stored):\n%s", diff)
			}
		})
	}
}

func TestWhatCannotBeAPaymentIsRefused(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, tt := range []struct {
		field string
		set   func(c *payment.Command)
	}{
		{"amount", func(c *payment.Command) { c.Amount = decimal.RequireFromString("-1") }},
		{"currency", func(c *payment.Command) { c.Currency = "usd" }},
		{"debit_account_id", func(c *payment.Command) { c.DebitAccountID = uuid.Nil }},
		{"priority", func(c *payment.Command) { c.Priority = 10 }},
		{"priority", func(c *payment.Command) { c.Priority = -1 }},
		{"max_attempts", func(c *payment.Command) { c.MaxAttempts = 101 }},
		{"max_attempts", func(c *payment.Command) { c.MaxAttempts = -1 }},
		{"run_at", func(c *payment.Command) { c.RunAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"run_at", func(c *payment.Command) { c.RunAt = time.Date(26, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"description", func(c *payment.Command) { c.Description = "\x00" }},
		{"Idempotency-Key", func(c *payment.Command) { c.Key = &idempotency.Key{} }},
	} {
		c := l.pay("5.00")
		tt.set(&c)
		_, _, err := l.payments.Enqueue(t.Context(), c)
		var faults *invalid.Error
		if !errors.As(err, &faults) || len(faults.Faults) != 1 || faults.Faults[0].Field != tt.field {
			t.Errorf("error = %v, want one fault of %s", err, tt.field)
		}
	}
	c := l.pay("5.00")
	c.CreditAccountID = c.DebitAccountID
	if _, _, err := l.payments.Enqueue(t.Context(), c); !errors.Is(err, transfer.ErrSameAccount) {
		t.Errorf("error = %v, want %v", err, transfer.ErrSameAccount)
	}
	if n := l.count(t, `SELECT count(*) FROM payments`); n != 0 {
		t.Errorf("%d payments were stored, want none", n)
	}
}

func TestAKeyIsOnePaymentAsItWasEnqueued(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	c := l.pay("5.00")
	c.Key = &idempotency.Key{Principal: "p", Value: "k"}
	first := l.enqueue(t, c)
	if _, err := l.payments.Cancel(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	c.Amount, c.MaxAttempts = decimal.RequireFromString("5"), payment.DefaultMaxAttempts // the same meaning
	again, replayed, err := l.payments.Enqueue(t.Context(), c)
	if err != nil || !replayed || again.ID != first.ID || again.Status != payment.Queued || !again.RunAt.Equal(first.RunAt) {
		t.Errorf("replay = %+v, %v, %v, want the first answer", again, replayed, err)
	}
	for name, set := range map[string]func(*payment.Command){
		"amount":       func(c *payment.Command) { c.Amount = decimal.RequireFromString("5.01") },
		"run_at":       func(c *payment.Command) { c.RunAt = time.Now().Add(time.Hour) },
		"priority":     func(c *payment.Command) { c.Priority = 1 },
		"approval":     func(c *payment.Command) { c.NeedsApproval = true },
		"max_attempts": func(c *payment.Command) { c.MaxAttempts = 1 },
	} {
		c := c
		set(&c)
		if _, _, err := l.payments.Enqueue(t.Context(), c); !errors.Is(err, idempotency.ErrKeyReused) {
			t.Errorf("another %s: error = %v, want %v", name, err, idempotency.ErrKeyReused)
		}
	}
	if n := l.count(t, `SELECT count(*) FROM payments`); n != 1 {
		t.Errorf("%d payments, want 1", n)
	}
	l.wantSound(t)
}

func TestALostAnswerOfEnqueueIsSettled(t *testing.T) {
	t.Parallel()
	for _, carried := range []bool{true, false} {
		for _, key := range []*idempotency.Key{nil, {Principal: "p", Value: "k"}} {
			l := newLedger(t)
			db := &lossyDB{Beginner: l.db, carried: carried}
			db.lose.Store(2)
			c := l.pay("5.00")
			c.Key = key
			p, replayed, err := payment.New(db, patient, nil).Enqueue(t.Context(), c)
			if err != nil || replayed {
				t.Errorf("carried out %v, key %v: %v, %v, want the payment, not replayed", carried, key, replayed, err)
			}
			if n := l.count(t, `SELECT count(*) FROM payments WHERE id = $1`, p.ID); n != 1 || l.count(t, `SELECT count(*) FROM payments`) != 1 {
				t.Errorf("carried out %v, key %v: not this one payment alone", carried, key)
			}
		}
	}
}

// The table of docs/payments.md.
func TestEachStatusAllowsItsChanges(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	setStatus := map[string]string{
		payment.Scheduled:        `run_at = now() + interval '1 hour', queued_at = NULL`,
		payment.AwaitingApproval: `queued_at = NULL, needs_approval = true`,
		payment.Queued:           `queued_at = now()`,
		payment.Processing:       `queued_at = NULL, leased_by = 'w', leased_until = now() + interval '1 hour'`,
		payment.Done:             `queued_at = NULL, finished_at = now()`,
		payment.Failed:           `queued_at = NULL, finished_at = now(), attempts = 5, failures = '[{"attempt": 5}]', last_code = 'x'`,
		payment.Canceled:         `queued_at = NULL, finished_at = now()`,
	}
	type after map[string]string // by change; "" refused
	for status, want := range map[string]after{
		payment.Scheduled:        {"approve": "", "cancel": payment.Canceled, "retry": payment.Scheduled},
		payment.AwaitingApproval: {"approve": payment.Queued, "cancel": payment.Canceled, "retry": ""},
		payment.Queued:           {"approve": "", "cancel": payment.Canceled, "retry": payment.Queued},
		payment.Processing:       {"approve": "", "cancel": "", "retry": payment.Processing},
		payment.Done:             {"approve": "", "cancel": "", "retry": ""},
		payment.Failed:           {"approve": "", "cancel": "", "retry": payment.Queued},
		payment.Canceled:         {"approve": "", "cancel": payment.Canceled, "retry": ""},
	} {
		for change, becomes := range want {
			t.Run(status+" "+change, func(t *testing.T) {
				p := l.enqueue(t, l.pay("5.00"))
				l.exec(t, `UPDATE payments SET status = $2, `+setStatus[status]+` WHERE id = $1`, p.ID, status)
				for range 2 { // the second time changes nothing
					got, err := l.change(t, p.ID, change)
					var refused *payment.StatusError
					if becomes == "" {
						if !errors.As(err, &refused) || *refused != (payment.StatusError{Status: status, Change: change}) {
							t.Errorf("error = %v, want a refusal", err)
						}
						continue
					}
					if err != nil || got.Status != becomes {
						t.Errorf("status = %s, %v, want %s", got.Status, err, becomes)
					}
					if status == payment.Failed && (got.Attempts != 0 || len(got.Failures) != 0 || got.LastCode != "" || got.FinishedAt != nil) {
						t.Errorf("retried = %+v, want one with all its attempts", got)
					}
					if change == "approve" && (got.ApprovedAt == nil || got.ApprovedBy != "boss") {
						t.Errorf("approved at %v by %q, want a time and boss", got.ApprovedAt, got.ApprovedBy)
					}
				}
			})
		}
	}
	for _, change := range []string{"approve", "cancel", "retry"} {
		if _, err := l.change(t, uuid.New(), change); !errors.Is(err, payment.ErrNotFound) {
			t.Errorf("%s of none: error = %v, want %v", change, err, payment.ErrNotFound)
		}
	}
	if _, err := l.payments.Get(t.Context(), uuid.New()); !errors.Is(err, payment.ErrNotFound) {
		t.Errorf("get of none: error = %v, want %v", err, payment.ErrNotFound)
	}
}

func (l *ledger) change(t *testing.T, id uuid.UUID, change string) (payment.Payment, error) {
	switch change {
	case "approve":
		return l.payments.Approve(t.Context(), id, "boss")
	case "cancel":
		return l.payments.Cancel(t.Context(), id)
	}
	return l.payments.Retry(t.Context(), id)
}

func TestListsHaveTheLatestFirst(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	other := l.open(t)
	var all []uuid.UUID // the latest first
	for i := range 6 {
		c := l.pay("1.00")
		switch i % 3 {
		case 1:
			c.CreditAccountID = other
		case 2:
			c.DebitAccountID, c.NeedsApproval = other, true
		}
		all = append([]uuid.UUID{l.enqueue(t, c).ID}, all...)
	}
	for _, tt := range []struct {
		name   string
		filter payment.Filter
		want   []uuid.UUID
	}{
		{"all", payment.Filter{Limit: 10}, all},
		{"a page", payment.Filter{Limit: 2}, all[:2]},
		{"the next page", payment.Filter{Limit: 2, Before: all[1]}, all[2:4]},
		{"of a status", payment.Filter{Limit: 10, Status: payment.AwaitingApproval}, []uuid.UUID{all[0], all[3]}},
		{"of a status, next page", payment.Filter{Limit: 10, Status: payment.AwaitingApproval, Before: all[0]}, []uuid.UUID{all[3]}},
		{"of an account, either side", payment.Filter{Limit: 10, AccountID: other}, []uuid.UUID{all[0], all[1], all[3], all[4]}},
		{"of an account, a page", payment.Filter{Limit: 2, AccountID: other, Before: all[0]}, []uuid.UUID{all[1], all[3]}},
		{"of an account and a status", payment.Filter{Limit: 10, AccountID: other, Status: payment.Queued}, []uuid.UUID{all[1], all[4]}},
		{"of nobody", payment.Filter{Limit: 10, AccountID: uuid.New()}, nil},
	} {
		found, err := l.payments.List(t.Context(), tt.filter)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		var got []uuid.UUID
		for _, p := range found {
			got = append(got, p.ID)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// The second guard: what was made, or called off, stays so.
func TestTheDatabaseKeepsWhatIsFinal(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	p := l.enqueue(t, l.pay("5.00"))
	if _, err := l.payments.Cancel(t.Context(), p.ID); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`UPDATE payments SET status = 'queued', queued_at = now(), finished_at = NULL`,
		`UPDATE payments SET amount = 6`,
	} {
		if _, err := l.db.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: no error, want one", sql)
		}
	}
}

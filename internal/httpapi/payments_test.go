package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/client"
	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/testdb"
)

// setStatusSQL does what workers do, who are not here.
const setStatusSQL = `
	UPDATE payments
	   SET status = $2,
	       queued_at = CASE WHEN $2 = 'queued' THEN clock_timestamp() END,
	       leased_by = CASE WHEN $2 = 'processing' THEN 'a worker' END,
	       leased_until = CASE WHEN $2 = 'processing' THEN clock_timestamp() + interval '1 minute' END,
	       finished_at = CASE WHEN $2 IN ('done', 'failed', 'canceled') THEN clock_timestamp() END,
	       approved_by = CASE WHEN $3 THEN 'somebody' END,
	       approved_at = CASE WHEN $3 THEN clock_timestamp() END
	 WHERE id = $1`

// A change is made, or there is nothing to change, or it is refused and nothing
// has changed.
func TestWhatAStatusAllows(t *testing.T) {
	db := testdb.New(t)
	h := New(configOn(db))
	tests := []struct {
		status                 string
		approved               bool
		approve, cancel, retry string // the status afterwards; "" is a refusal
	}{
		{payment.Scheduled, false, "", "canceled", "scheduled"},
		{payment.Scheduled, true, "scheduled", "canceled", "scheduled"},
		{payment.AwaitingApproval, false, "queued", "canceled", ""},
		{payment.Queued, false, "", "canceled", "queued"},
		{payment.Queued, true, "queued", "canceled", "queued"},
		{payment.Processing, false, "", "", "processing"},
		{payment.Processing, true, "processing", "", "processing"},
		{payment.Done, false, "", "", ""},
		{payment.Done, true, "done", "", ""},
		{payment.Failed, false, "", "", "queued"},
		{payment.Failed, true, "failed", "", "queued"},
		{payment.Canceled, false, "", "canceled", ""},
		{payment.Canceled, true, "", "canceled", ""},
	}
	for _, tt := range tests {
		for change, want := range map[string]string{"approve": tt.approve, "cancel": tt.cancel, "retry": tt.retry} {
			t.Run(fmt.Sprintf("%s, approved %t, %s", tt.status, tt.approved, change), func(t *testing.T) {
				path := createPayment(t, h)
				if _, err := db.Exec(t.Context(), setStatusSQL, path[len("/v1/payments/"):], tt.status, tt.approved); err != nil {
					t.Fatal(err)
				}
				before := do(h, "GET", path, "").Body.String()
				changed := do(h, "POST", path+"/"+change, "")
				after := do(h, "GET", path, "").Body.String()
				var got struct{ Status, Code, Detail any }
				if err := json.Unmarshal(changed.Body.Bytes(), &got); err != nil {
					t.Fatal(err)
				}
				detail := fmt.Sprintf("a payment that is %s cannot be changed by %q", tt.status, change)
				refused := changed.Code == 409 && got.Code == "payment-status" && got.Detail == detail
				made := changed.Code == 200 && got.Status == want && after == changed.Body.String()
				if want == "" && !refused || want != "" && !made {
					t.Errorf("got %d %s, and then %s; want the status %q, or where it is empty, 409: %s",
						changed.Code, changed.Body, after, want, detail)
				}
				if (want == "" || want == tt.status) && after != before {
					t.Errorf("nothing was to change, and\n%s became\n%s", before, after)
				}
			})
		}
	}
}

// createPayment asks for a payment and returns its path.
func createPayment(t *testing.T, h http.Handler) (path string) {
	t.Helper()
	body := fmt.Sprintf(`{"debit_account_id":%q,"credit_account_id":%q,"amount":"1.00","currency":"USD"}`, uuid.New(), uuid.New())
	w := do(h, "POST", "/v1/payments", body, "Content-Type: application/json")
	if w.Code != 202 {
		t.Fatalf("create a payment: %d %s", w.Code, w.Body)
	}
	return w.Header().Get("Location")
}

// The generated client says what it was asked to say, and understands what is
// null. Where nobody is asked for a token, nobody's name is noted.
func TestTheClientOfPayments(t *testing.T) {
	ledger, err := client.NewClientWithResponses(serve(t, configOn(testdb.New(t))))
	if err != nil {
		t.Fatal(err)
	}
	order := client.NewPayment{DebitAccountID: uuid.New(), CreditAccountID: uuid.New(), Amount: "5.00", Currency: "USD"}
	plain, err := ledger.CreatePaymentWithResponse(t.Context(), nil, order)
	if err != nil || plain.JSON202 == nil {
		t.Fatalf("create: %v %s", err, plain.Body)
	}
	if p := plain.JSON202; p.Status != client.Queued || p.Approval != client.ApprovalNone || p.MaxAttempts != payment.DefaultMaxAttempts ||
		p.ApprovedAt != nil || p.FinishedAt != nil || p.LeasedUntil != nil || p.TransferID != nil || p.LastCode != "" {
		t.Errorf("created %+v", p)
	}
	order.RunAt, order.Priority, order.Approval, order.MaxAttempts = time.Now().Add(time.Hour), 7, client.ApprovalRequired, 1
	created, err := ledger.CreatePaymentWithResponse(t.Context(), &client.CreatePaymentParams{IdempotencyKey: new("k")}, order)
	if err != nil || created.JSON202 == nil {
		t.Fatalf("create: %v %s", err, created.Body)
	}
	if p := created.JSON202; p.Status != client.AwaitingApproval || p.Priority != 7 || p.MaxAttempts != 1 || !p.RunAt.Equal(order.RunAt.Truncate(time.Microsecond)) {
		t.Errorf("created %+v", p)
	}
	approved, err := ledger.ApprovePaymentWithResponse(t.Context(), created.JSON202.ID)
	if err != nil || approved.JSON200 == nil {
		t.Fatalf("approve: %v %s", err, approved.Body)
	}
	if p := approved.JSON200; p.Status != client.Scheduled || p.ApprovedAt == nil || p.ApprovedBy != "" {
		t.Errorf("approved %+v", p)
	}
	listed, err := ledger.ListPaymentsWithResponse(t.Context(), &client.ListPaymentsParams{Status: new(client.Scheduled)})
	if err != nil || listed.JSON200 == nil || len(listed.JSON200.Items) != 1 {
		t.Errorf("payments: %v %s", err, listed.Body)
	}
}

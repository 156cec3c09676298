package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/money"
	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/transfer"
)

// newPayment is the body of POST /v1/payments: a transfer, and how it is to be
// made.
type newPayment struct {
	order
	DebitAccountID  text   `json:"debit_account_id"`
	CreditAccountID text   `json:"credit_account_id"`
	RunAt           text   `json:"run_at"`
	Priority        number `json:"priority"`
	Approval        text   `json:"approval"`
	MaxAttempts     number `json:"max_attempts"`
}

func (s *server) createPayment(w http.ResponseWriter, r *http.Request) error {
	var body newPayment
	if err := decode(r, &body); err != nil {
		return err
	}
	var f form
	t := f.command(transfer.Between, body.order)
	c := payment.Command{
		DebitAccountID:  f.account("debit_account_id", body.DebitAccountID),
		CreditAccountID: f.account("credit_account_id", body.CreditAccountID),
		Amount:          t.Amount,
		Currency:        t.Currency,
		Description:     t.Description,
		Metadata:        t.Metadata,
		Priority:        body.Priority.value,
		NeedsApproval:   f.approval(body.Approval),
		MaxAttempts:     body.MaxAttempts.value,
		Key:             f.key(r),
	}
	if body.RunAt.given {
		c.RunAt = f.time("run_at", body.RunAt.value)
	}
	if body.MaxAttempts.given && c.MaxAttempts == 0 { // which means the default to the domain
		f.Add("max_attempts", "must be a number from 1 to %d", payment.MaxMaxAttempts)
	}
	if err := f.validate(c.Validate()); err != nil {
		return err
	}
	p, replayed, err := s.Payments.Enqueue(r.Context(), c)
	markReplay(w, replayed)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/payments/"+p.ID.String())
	return writeJSON(w, http.StatusAccepted, paymentBody(p))
}

// approval reports whether somebody has to approve first.
func (f *form) approval(t text) bool {
	if t.given && t.value != approvalNone && t.value != approvalRequired {
		f.Add("approval", "must be %s or %s", approvalNone, approvalRequired)
	}
	return t.value == approvalRequired
}

const (
	approvalNone     = "none"
	approvalRequired = "required"
)

func (s *server) getPayment(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	p, err := s.Payments.Get(r.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, paymentBody(p))
}

// approvePayment notes who approves.
func (s *server) approvePayment(w http.ResponseWriter, r *http.Request) error {
	approve := func(ctx context.Context, id uuid.UUID) (payment.Payment, error) {
		return s.Payments.Approve(ctx, id, callOf(r).principal)
	}
	return change(approve, paymentBody)(w, r)
}

func (s *server) listPayments(w http.ResponseWriter, r *http.Request) error {
	var f form
	q := r.URL.Query()
	filter := payment.Filter{Status: q.Get("status")}
	if q.Has("status") {
		payment.CheckStatus(&f.Check, filter.Status)
	}
	if q.Has("account_id") {
		filter.AccountID = f.id("account_id", q.Get("account_id"))
	}
	limit := f.limit(q)
	list := "payments?status=" + filter.Status + "&account_id=" + filter.AccountID.String()
	if place := f.cursor(q, list, idSize); place != nil {
		filter.Before = uuid.UUID(place)
	}
	if err := f.Err(); err != nil {
		return err
	}
	filter.Limit = limit + 1
	found, err := s.Payments.List(r.Context(), filter)
	if err != nil {
		return err
	}
	page, next := paged(found, limit, list, func(p payment.Payment) []byte { return p.ID[:] })
	return writeJSON(w, http.StatusOK, listOf(page, paymentBody, next))
}

// paymentJSON is a payment as it is sent.
type paymentJSON struct {
	ID              string            `json:"id"`
	Status          string            `json:"status"`
	DebitAccountID  string            `json:"debit_account_id"`
	CreditAccountID string            `json:"credit_account_id"`
	Amount          string            `json:"amount"`
	Currency        string            `json:"currency"`
	Description     string            `json:"description"`
	Metadata        map[string]string `json:"metadata"`
	Priority        int               `json:"priority"`
	RunAt           string            `json:"run_at"`
	Approval        string            `json:"approval"`
	ApprovedBy      *string           `json:"approved_by"`
	ApprovedAt      *string           `json:"approved_at"`
	Attempts        int               `json:"attempts"`
	MaxAttempts     int               `json:"max_attempts"`
	LastCode        *string           `json:"last_code"`
	Failures        []failureJSON     `json:"failures"`
	TransferID      *string           `json:"transfer_id"`
	CreatedAt       string            `json:"created_at"`
	FinishedAt      *string           `json:"finished_at"`
	LeasedUntil     *string           `json:"leased_until"`
}

func paymentBody(p payment.Payment) paymentJSON {
	body := paymentJSON{
		ID: p.ID.String(), Status: p.Status,
		DebitAccountID: p.DebitAccountID.String(), CreditAccountID: p.CreditAccountID.String(),
		Amount: money.Format(p.Amount, p.Currency), Currency: p.Currency,
		Description: p.Description, Metadata: p.Metadata,
		Priority: p.Priority, RunAt: formatTime(p.RunAt),
		Approval: approvalNone, ApprovedBy: orNull(p.ApprovedBy), ApprovedAt: formatOptionalTime(p.ApprovedAt),
		Attempts: p.Attempts, MaxAttempts: p.MaxAttempts,
		LastCode: orNull(p.LastCode), Failures: bodies(p.Failures, failureBody),
		CreatedAt: formatTime(p.CreatedAt), FinishedAt: formatOptionalTime(p.FinishedAt), LeasedUntil: formatOptionalTime(p.LeasedUntil),
	}
	if p.NeedsApproval {
		body.Approval = approvalRequired
	}
	if p.Status == payment.Done {
		body.TransferID = &body.ID
	}
	return body
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func formatOptionalTime(t *time.Time) *string {
	if t == nil {
		return nil
	}
	s := formatTime(*t)
	return &s
}

// failureJSON is a failed attempt as it is sent.
type failureJSON struct {
	Attempt int    `json:"attempt"`
	Code    string `json:"code"`
	Detail  string `json:"detail"`
	At      string `json:"at"`
}

func failureBody(f payment.Failure) failureJSON {
	return failureJSON{Attempt: f.Attempt, Code: f.Code, Detail: f.Detail, At: formatTime(f.At)}
}

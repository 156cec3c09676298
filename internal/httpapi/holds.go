package httpapi

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/money"
	"github.com/rowlock/ledger/internal/transfer"
)

// newHold is the body of POST /v1/holds. Without a credit account, the money is
// kept to leave the ledger.
type newHold struct {
	order
	DebitAccountID  text `json:"debit_account_id"`
	CreditAccountID text `json:"credit_account_id"`
	ExpiresAt       text `json:"expires_at"`
}

func (s *server) createHold(w http.ResponseWriter, r *http.Request) error {
	var body newHold
	if err := decode(r, &body); err != nil {
		return err
	}
	var f form
	t := f.command(transfer.Between, body.order)
	c := transfer.HoldCommand{
		Call: f.call(r), Kind: transfer.Debit,
		DebitAccountID: f.account("debit_account_id", body.DebitAccountID), CreditAccountID: accounts.ExternalID(t.Currency),
		Amount: t.Amount, Currency: t.Currency, Description: t.Description, Metadata: t.Metadata,
	}
	if body.CreditAccountID.given {
		c.Kind, c.CreditAccountID = transfer.Between, f.account("credit_account_id", body.CreditAccountID)
	}
	if body.ExpiresAt.given {
		c.ExpiresAt = f.time("expires_at", body.ExpiresAt.value)
	}
	if err := f.validate(c.Validate()); err != nil {
		return err
	}
	h, replayed, err := s.Transfers.Hold(r.Context(), c)
	markReplay(w, replayed)
	if err != nil {
		return err
	}
	created(w, c.Call, "/v1/holds/"+h.ID.String())
	return writeJSON(w, http.StatusCreated, holdBody(h))
}

// newCapture is the body of POST /v1/holds/{id}/capture.
type newCapture struct {
	newReversal
	Final flag `json:"final"`
}

func (s *server) captureHold(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body newCapture
	if err := decode(r, &body); err != nil {
		return err
	}
	var f form
	c := transfer.Capture{
		Call: f.call(r), HoldID: id, Amount: f.part(body.Amount), Final: body.Final.value, Reference: f.reference(body.Reference),
		Description: body.Description.value, Metadata: body.Metadata,
	}
	if err := f.validate(c.Validate()); err != nil {
		return err
	}
	t, replayed, err := s.Transfers.Capture(r.Context(), c)
	return answerTransfer(w, c.Call, t, replayed, err)
}

func (s *server) voidHold(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	if err := noBody(r); err != nil {
		return err
	}
	var f form
	call := f.call(r)
	if err := f.Err(); err != nil {
		return err
	}
	h, err := s.Transfers.Void(r.Context(), id, call)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, holdBody(h))
}

func (s *server) getHold(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	h, err := s.Transfers.GetHold(r.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, holdBody(h))
}

func (s *server) listHolds(w http.ResponseWriter, r *http.Request) error {
	var f form
	q := r.URL.Query()
	filter := transfer.HoldFilter{Status: q.Get("status")}
	if q.Has("account_id") {
		filter.AccountID = f.id("account_id", q.Get("account_id"))
	} else {
		f.Add("account_id", "is required")
	}
	if q.Has("status") {
		transfer.CheckHoldStatus(&f.Check, filter.Status)
	}
	limit := f.limit(q)
	list := "holds?account_id=" + filter.AccountID.String() + "&status=" + filter.Status
	if place := f.cursor(q, list, idSize); place != nil {
		filter.Before = uuid.UUID(place)
	}
	if err := f.Err(); err != nil {
		return err
	}
	filter.Limit = limit + 1
	found, err := s.Transfers.ListHolds(r.Context(), filter)
	if err != nil {
		return err
	}
	page, next := paged(found, limit, list, func(h transfer.Hold) []byte { return h.ID[:] })
	return writeJSON(w, http.StatusOK, listOf(page, holdBody, next))
}

// holdJSON is a hold as it is sent.
type holdJSON struct {
	ID              string            `json:"id"`
	Kind            string            `json:"kind"`
	DebitAccountID  string            `json:"debit_account_id"`
	CreditAccountID string            `json:"credit_account_id"`
	Amount          string            `json:"amount"`
	CapturedAmount  string            `json:"captured_amount"`
	RemainingAmount string            `json:"remaining_amount"`
	Currency        string            `json:"currency"`
	Status          string            `json:"status"`
	Description     string            `json:"description" csv:"text"`
	Metadata        map[string]string `json:"metadata"`
	ExpiresAt       *string           `json:"expires_at"`
	EndedAt         *string           `json:"ended_at"`
	CreatedAt       string            `json:"created_at"`
}

func holdBody(h transfer.Hold) holdJSON {
	return holdJSON{
		ID: h.ID.String(), Kind: h.Kind, DebitAccountID: h.DebitAccountID.String(), CreditAccountID: h.CreditAccountID.String(),
		Amount: money.Format(h.Amount, h.Currency), CapturedAmount: money.Format(h.Captured, h.Currency),
		RemainingAmount: money.Format(h.Rest(), h.Currency), Currency: h.Currency, Status: h.Status,
		Description: h.Description, Metadata: h.Metadata,
		ExpiresAt: timeOrNull(h.ExpiresAt), EndedAt: timeOrNull(h.EndedAt), CreatedAt: formatTime(h.CreatedAt),
	}
}

// timeOrNull writes a time that may be none.
func timeOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return new(formatTime(t))
}

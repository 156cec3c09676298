package httpapi

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/money"
	"github.com/rowlock/ledger/internal/transfer"
)

// newTransfer is the body of POST /v1/transfers.
type newTransfer struct {
	DebitAccountID  text   `json:"debit_account_id"`
	CreditAccountID text   `json:"credit_account_id"`
	Amount          text   `json:"amount"`
	Currency        text   `json:"currency"`
	Description     text   `json:"description"`
	Metadata        labels `json:"metadata"`
}

func (s *server) createTransfer(w http.ResponseWriter, r *http.Request) error {
	var body newTransfer
	if err := decode(r, &body); err != nil {
		return err
	}
	var f form
	c := f.command(transfer.Between, body)
	c.DebitAccountID = f.account("debit_account_id", body.DebitAccountID)
	c.CreditAccountID = f.account("credit_account_id", body.CreditAccountID)
	return s.create(w, r, &f, c)
}

// newOneSided is the body of POST /v1/debits and POST /v1/credits.
type newOneSided struct {
	AccountID   text   `json:"account_id"`
	Amount      text   `json:"amount"`
	Currency    text   `json:"currency"`
	Description text   `json:"description"`
	Metadata    labels `json:"metadata"`
}

func (s *server) createDebit(w http.ResponseWriter, r *http.Request) error {
	var body newOneSided
	if err := decode(r, &body); err != nil {
		return err
	}
	var f form
	c := f.command(transfer.Debit, body.shared())
	c.DebitAccountID = f.account("account_id", body.AccountID)
	c.CreditAccountID = accounts.ExternalID(c.Currency)
	return s.create(w, r, &f, c)
}

func (s *server) createCredit(w http.ResponseWriter, r *http.Request) error {
	var body newOneSided
	if err := decode(r, &body); err != nil {
		return err
	}
	var f form
	c := f.command(transfer.Credit, body.shared())
	c.CreditAccountID = f.account("account_id", body.AccountID)
	c.DebitAccountID = accounts.ExternalID(c.Currency)
	return s.create(w, r, &f, c)
}

// shared is what all three bodies have.
func (b newOneSided) shared() newTransfer {
	return newTransfer{Amount: b.Amount, Currency: b.Currency, Description: b.Description, Metadata: b.Metadata}
}

// command reads all of a command but its accounts and key.
func (f *form) command(kind string, body newTransfer) transfer.Command {
	c := transfer.Command{
		Kind:        kind,
		Currency:    f.required("currency", body.Currency),
		Description: body.Description.value,
		Metadata:    body.Metadata,
	}
	f.required("amount", body.Amount)
	c.Amount = f.amount("amount", body.Amount, c.Currency, money.ParseAmount)
	return c
}

// create makes the transfer that c asks for, and answers.
func (s *server) create(w http.ResponseWriter, r *http.Request, f *form, c transfer.Command) error {
	c.Key = f.key(r)
	c.Left = callOf(r).left
	if err := f.validate(c.Validate()); err != nil {
		return err
	}
	t, replayed, err := s.Transfers.Create(r.Context(), c)
	markReplay(w, replayed)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/transfers/"+t.ID.String())
	return writeJSON(w, http.StatusCreated, transferBody(t))
}

func (s *server) getTransfer(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	t, err := s.Transfers.Get(r.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, transferBody(t))
}

func (s *server) listTransfers(w http.ResponseWriter, r *http.Request) error {
	var f form
	q := r.URL.Query()
	filter := f.transferFilter(q)
	list := transferList(filter)
	filter.Limit = f.limit(q)
	if place := f.cursor(q, list, positionSize); place != nil {
		after := placePosition(place)
		filter.After = &after
	}
	if err := f.Err(); err != nil {
		return err
	}
	found, err := s.Transfers.List(r.Context(), filter)
	if err != nil {
		return err
	}
	page, next := found.Transfers, (*string)(nil)
	if found.Next != nil {
		next = new(sealCursor(list, positionPlace(*found.Next)))
	}
	return writeJSON(w, http.StatusOK, listOf(page, transferBody, next))
}

// transferJSON is a transfer as it is sent.
type transferJSON struct {
	ID                 string            `json:"id"`
	Kind               string            `json:"kind"`
	DebitAccountID     string            `json:"debit_account_id"`
	CreditAccountID    string            `json:"credit_account_id"`
	Amount             string            `json:"amount"`
	Currency           string            `json:"currency"`
	Description        string            `json:"description"`
	Metadata           map[string]string `json:"metadata"`
	DebitBalanceAfter  string            `json:"debit_balance_after"`
	CreditBalanceAfter string            `json:"credit_balance_after"`
	CreatedAt          string            `json:"created_at"`
	Reference          string            `json:"reference,omitempty"`
	HoldID             string            `json:"hold_id,omitempty"`
	ReversesTransferID string            `json:"reverses_transfer_id,omitempty"`
	BatchID            string            `json:"batch_id,omitempty"`
}

func transferBody(t transfer.Transfer) transferJSON {
	return transferJSON{
		ID: t.ID.String(), Kind: t.Kind,
		DebitAccountID: t.DebitAccountID.String(), CreditAccountID: t.CreditAccountID.String(),
		Amount: money.Format(t.Amount, t.Currency), Currency: t.Currency,
		Description: t.Description, Metadata: t.Metadata,
		DebitBalanceAfter:  money.Format(t.DebitBalanceAfter, t.Currency),
		CreditBalanceAfter: money.Format(t.CreditBalanceAfter, t.Currency),
		CreatedAt:          formatTime(t.CreatedAt),
		Reference:          t.Reference,
		HoldID:             idOrNothing(t.HoldID), ReversesTransferID: idOrNothing(t.ReversesTransferID), BatchID: idOrNothing(t.BatchID),
	}
}

func idOrNothing(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

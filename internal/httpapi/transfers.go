package httpapi

import (
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/money"
	"github.com/rowlock/ledger/internal/transfer"
)

// order is what all bodies have that ask for money to be moved, or kept for it.
type order struct {
	Amount      text   `json:"amount"`
	Currency    text   `json:"currency"`
	Description text   `json:"description"`
	Metadata    labels `json:"metadata"`
}

// newTransfer is the body of POST /v1/transfers.
type newTransfer struct {
	order
	DebitAccountID  text `json:"debit_account_id"`
	CreditAccountID text `json:"credit_account_id"`
	Reference       text `json:"reference"`
	IfVersion       text `json:"if_version"`
}

func (s *server) createTransfer(w http.ResponseWriter, r *http.Request) error {
	var body newTransfer
	if err := decode(r, &body); err != nil {
		return err
	}
	var f form
	return s.create(w, r, &f, f.transfer(body))
}

// transfer reads the transfer that body asks for.
func (f *form) transfer(body newTransfer) transfer.Command {
	c := f.command(transfer.Between, body.order)
	c.DebitAccountID = f.account("debit_account_id", body.DebitAccountID)
	c.CreditAccountID = f.account("credit_account_id", body.CreditAccountID)
	c.Reference = f.reference(body.Reference)
	c.IfVersion = f.version("if_version", body.IfVersion)
	return c
}

// newDebit is the body of POST /v1/debits.
type newDebit struct {
	order
	AccountID text `json:"account_id"`
	Reference text `json:"reference"`
	IfVersion text `json:"if_version"`
}

// newCredit is the body of POST /v1/credits. What pays is external, and no
// caller has read its version.
type newCredit struct {
	order
	AccountID text `json:"account_id"`
	Reference text `json:"reference"`
}

func (s *server) createDebit(w http.ResponseWriter, r *http.Request) error {
	var body newDebit
	if err := decode(r, &body); err != nil {
		return err
	}
	var f form
	c := f.command(transfer.Debit, body.order)
	c.Reference = f.reference(body.Reference)
	c.IfVersion = f.version("if_version", body.IfVersion)
	c.DebitAccountID = f.account("account_id", body.AccountID)
	c.CreditAccountID = accounts.ExternalID(c.Currency)
	return s.create(w, r, &f, c)
}

func (s *server) createCredit(w http.ResponseWriter, r *http.Request) error {
	var body newCredit
	if err := decode(r, &body); err != nil {
		return err
	}
	var f form
	c := f.command(transfer.Credit, body.order)
	c.Reference = f.reference(body.Reference)
	c.CreditAccountID = f.account("account_id", body.AccountID)
	c.DebitAccountID = accounts.ExternalID(c.Currency)
	return s.create(w, r, &f, c)
}

// command reads all that an order has.
func (f *form) command(kind string, body order) transfer.Command {
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

// reference reads a caller's own name for a transfer. "" means "none" to the
// domain.
func (f *form) reference(t text) string {
	if t.given && t.value == "" {
		f.Add("reference", "must not be empty")
	}
	return t.value
}

// version reads a version of an account; nil where none is given.
func (f *form) version(field string, t text) *int64 {
	if !t.given {
		return nil
	}
	n, err := strconv.ParseInt(t.value, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != t.value {
		f.Add(field, `must be a version of the account, like "42"`)
	}
	return &n
}

// call reads what all calls that move money have in common.
func (f *form) call(r *http.Request) transfer.Call {
	c := transfer.Call{Key: f.key(r), Left: callOf(r).left}
	switch r.URL.Query().Get(dryRun) {
	case "true":
		c.DryRun = true
	case "", "false":
		if r.URL.Query().Has(dryRun) && r.URL.Query().Get(dryRun) == "" {
			f.Add(dryRun, "must be true or false")
		}
	default:
		f.Add(dryRun, "must be true or false")
	}
	return c
}

// dryRun is the parameter of a call that is to leave nothing behind.
const dryRun = "dry_run"

// create makes the transfer that c asks for, and answers.
func (s *server) create(w http.ResponseWriter, r *http.Request, f *form, c transfer.Command) error {
	c.Call = f.call(r)
	if err := f.validate(c.Validate()); err != nil {
		return err
	}
	t, replayed, err := s.Transfers.Create(r.Context(), c)
	return answerTransfer(w, c.Call, t, replayed, err)
}

// answerTransfer answers a call that makes one transfer.
func answerTransfer(w http.ResponseWriter, c transfer.Call, t transfer.Transfer, replayed bool, err error) error {
	markReplay(w, replayed)
	if err != nil {
		return err
	}
	created(w, c, "/v1/transfers/"+t.ID.String())
	return writeJSON(w, http.StatusCreated, transferBody(t))
}

// created says where what was made is. After a dry run it is nowhere.
func created(w http.ResponseWriter, c transfer.Call, path string) {
	if !c.DryRun {
		w.Header().Set("Location", path)
	}
}

// newReversal is the body of POST /v1/transfers/{id}/reverse.
type newReversal struct {
	Amount      text   `json:"amount"`
	Reference   text   `json:"reference"`
	Description text   `json:"description"`
	Metadata    labels `json:"metadata"`
}

func (s *server) reverseTransfer(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body newReversal
	if err := decode(r, &body); err != nil {
		return err
	}
	var f form
	c := transfer.Reversal{
		Call: f.call(r), TransferID: id, Amount: f.part(body.Amount), Reference: f.reference(body.Reference),
		Description: body.Description.value, Metadata: body.Metadata,
	}
	if err := f.validate(c.Validate()); err != nil {
		return err
	}
	t, replayed, err := s.Transfers.Reverse(r.Context(), c)
	return answerTransfer(w, c.Call, t, replayed, err)
}

// part reads an amount of which none means all that is left. The domain knows
// the currency.
func (f *form) part(t text) string {
	if t.given && t.value == "" {
		f.Add("amount", "must not be empty")
	}
	return t.value
}

func (s *server) getTransfer(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	t, reversed, err := s.Transfers.GetReversed(r.Context(), id)
	if err != nil {
		return err
	}
	body := transferBody(t)
	if t.ReversesTransferID == uuid.Nil {
		body.ReversedAmount = money.Format(reversed, t.Currency)
	}
	return writeJSON(w, http.StatusOK, body)
}

func (s *server) listTransfers(w http.ResponseWriter, r *http.Request) error {
	csv, err := acceptsCSV(w, r)
	if err != nil {
		return err
	}
	var f form
	q := r.URL.Query()
	filter := f.transferFilter(q)
	if csv {
		f.whole(q)
		if err := f.Err(); err != nil {
			return err
		}
		return s.streamTransfers(w, r, filter)
	}
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
	Description        string            `json:"description" csv:"text"`
	Metadata           map[string]string `json:"metadata"`
	DebitBalanceAfter  string            `json:"debit_balance_after"`
	CreditBalanceAfter string            `json:"credit_balance_after"`
	CreatedAt          string            `json:"created_at"`
	Reference          string            `json:"reference,omitempty" csv:"text"`
	HoldID             string            `json:"hold_id,omitempty"`
	ReversesTransferID string            `json:"reverses_transfer_id,omitempty"`
	BatchID            string            `json:"batch_id,omitempty"`
	ReversedAmount     string            `json:"reversed_amount,omitempty" csv:"-"` // only where one is shown
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

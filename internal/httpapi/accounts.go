package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/money"
)

// newAccount is the body of POST /v1/accounts.
type newAccount struct {
	ID         text   `json:"id"`
	Currency   text   `json:"currency"`
	Name       text   `json:"name"`
	MinBalance text   `json:"min_balance"`
	Metadata   labels `json:"metadata"`
}

func (s *server) openAccount(w http.ResponseWriter, r *http.Request) error {
	var body newAccount
	if err := decode(r, &body); err != nil {
		return err
	}
	var f form
	o := accounts.Opening{
		Currency: f.required("currency", body.Currency),
		Name:     body.Name.value,
		Metadata: body.Metadata,
		Key:      f.key(r),
	}
	if body.ID.given {
		o.ID = f.id("id", body.ID.value)
	}
	o.MinBalance = f.amount("min_balance", body.MinBalance, o.Currency, money.ParseSigned)
	if err := f.validate(o.Validate()); err != nil {
		return err
	}
	account, replayed, err := s.Accounts.Open(r.Context(), o)
	markReplay(w, replayed)
	if errors.Is(err, accounts.ErrExists) {
		return &occurrence{err, accountPath(o.ID)}
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", accountPath(account.ID))
	return writeJSON(w, http.StatusCreated, accountBody(account))
}

func markReplay(w http.ResponseWriter, replayed bool) {
	if replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
}

func accountPath(id uuid.UUID) string { return "/v1/accounts/" + id.String() }

func (s *server) getAccount(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	account, err := s.Accounts.Get(r.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, accountBody(account))
}

// change is the handler of a change that needs no more than the id in the path:
// do makes it, and body is what is sent of the outcome.
func change[D, T any](do func(context.Context, uuid.UUID) (D, error), body func(D) T) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := pathID(r)
		if err != nil {
			return err
		}
		if err := noBody(r); err != nil {
			return err
		}
		changed, err := do(r.Context(), id)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, body(changed))
	}
}

func (s *server) listAccounts(w http.ResponseWriter, r *http.Request) error {
	var f form
	q := r.URL.Query()
	filter := accounts.Filter{Currency: q.Get("currency"), Status: q.Get("status")}
	if q.Has("currency") && !money.IsCurrency(filter.Currency) {
		f.Add("currency", "must be an ISO 4217 code in capitals, like USD")
	}
	if q.Has("status") {
		accounts.CheckStatus(&f.Check, filter.Status)
	}
	limit := f.limit(q)
	list := "accounts?currency=" + filter.Currency + "&status=" + filter.Status
	if place := f.cursor(q, list, idSize); place != nil {
		filter.After = uuid.UUID(place)
	}
	if err := f.Err(); err != nil {
		return err
	}
	filter.Limit = limit + 1
	found, err := s.Accounts.List(r.Context(), filter)
	if err != nil {
		return err
	}
	page, next := paged(found, limit, list, func(a accounts.Account) []byte { return a.ID[:] })
	return writeJSON(w, http.StatusOK, listOf(page, accountBody, next))
}

func (s *server) listEntries(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var f form
	q := r.URL.Query()
	p := accounts.Page{Descending: f.descending(q, "asc")}
	limit := f.limit(q)
	list := "entries?account_id=" + id.String() + "&descending=" + strconv.FormatBool(p.Descending)
	if place := f.cursor(q, list, versionSize); place != nil {
		p.After = placeVersion(place)
	}
	if err := f.Err(); err != nil {
		return err
	}
	p.Limit = limit + 1
	found, err := s.Accounts.Entries(r.Context(), id, p)
	if err != nil {
		return err
	}
	page, next := paged(found, limit, list, func(e accounts.Entry) []byte { return versionPlace(e.Version) })
	return writeJSON(w, http.StatusOK, listOf(page, entryBody, next))
}

// accountJSON is an account as it is sent.
type accountJSON struct {
	ID         string            `json:"id"`
	Kind       string            `json:"kind"`
	Currency   string            `json:"currency"`
	Name       string            `json:"name"`
	Status     string            `json:"status"`
	Balance    string            `json:"balance"`
	MinBalance *string           `json:"min_balance"`
	Version    string            `json:"version"`
	Metadata   map[string]string `json:"metadata"`
	CreatedAt  string            `json:"created_at"`
}

func accountBody(a accounts.Account) accountJSON {
	return accountJSON{
		ID: a.ID.String(), Kind: a.Kind, Currency: a.Currency, Name: a.Name, Status: a.Status,
		Balance: money.Format(a.Balance, a.Currency), MinBalance: formatOptional(a.MinBalance, a.Currency),
		Version: strconv.FormatInt(a.Version, 10), Metadata: a.Metadata, CreatedAt: formatTime(a.CreatedAt),
	}
}

func formatOptional(d *decimal.Decimal, currency string) *string {
	if d == nil {
		return nil
	}
	s := money.Format(*d, currency)
	return &s
}

// formatTime writes what PostgreSQL keeps of a time: microseconds.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// entryJSON is an entry as it is sent.
type entryJSON struct {
	AccountID      string `json:"account_id"`
	Version        string `json:"version"`
	Direction      string `json:"direction"`
	Amount         string `json:"amount"`
	BalanceAfter   string `json:"balance_after"`
	TransferID     string `json:"transfer_id"`
	OtherAccountID string `json:"other_account_id"`
	CreatedAt      string `json:"created_at"`
}

func entryBody(e accounts.Entry) entryJSON {
	return entryJSON{
		AccountID: e.AccountID.String(), Version: strconv.FormatInt(e.Version, 10), Direction: e.Direction,
		Amount: money.Format(e.Amount, e.Currency), BalanceAfter: money.Format(e.BalanceAfter, e.Currency),
		TransferID: e.TransferID.String(), OtherAccountID: e.OtherAccountID.String(), CreatedAt: formatTime(e.CreatedAt),
	}
}

// A listJSON is a page of items as it is sent.
type listJSON[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

func listOf[D, T any](page []D, body func(D) T, next *string) listJSON[T] {
	return listJSON[T]{Items: bodies(page, body), NextCursor: next}
}

func bodies[D, T any](items []D, body func(D) T) []T {
	sent := make([]T, len(items))
	for i, item := range items {
		sent[i] = body(item)
	}
	return sent
}

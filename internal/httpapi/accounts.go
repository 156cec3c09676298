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
	MaxBalance text   `json:"max_balance"`
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
	if body.MaxBalance.given {
		o.MaxBalance = new(f.amount("max_balance", body.MaxBalance, o.Currency, money.ParseSigned))
	}
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

// accountUpdate is the body of PATCH /v1/accounts/{id}.
type accountUpdate struct {
	Name     text   `json:"name"`
	Metadata labels `json:"metadata"`
}

func (s *server) updateAccount(w http.ResponseWriter, r *http.Request) error {
	var body accountUpdate
	return s.changeAccount(w, r, &body, func(id uuid.UUID) (accounts.Account, error) {
		u := accounts.Update{Metadata: body.Metadata}
		if body.Name.given {
			u.Name = &body.Name.value
		}
		return s.Accounts.Update(r.Context(), id, u)
	})
}

// newLimits is the body of POST /v1/accounts/{id}/limits.
type newLimits struct {
	MinBalance text         `json:"min_balance"`
	MaxBalance nullableText `json:"max_balance"`
}

func (s *server) setLimits(w http.ResponseWriter, r *http.Request) error {
	var body newLimits
	return s.changeAccount(w, r, &body, func(id uuid.UUID) (accounts.Account, error) {
		// For its currency, which never changes: how amounts are read depends on it.
		account, err := s.Accounts.Get(r.Context(), id)
		if err != nil {
			return accounts.Account{}, err
		}
		var f form
		var l accounts.Limits
		if body.MinBalance.given {
			l.MinBalance = new(f.amount("min_balance", body.MinBalance, account.Currency, money.ParseSigned))
		}
		switch {
		case body.MaxBalance.null:
			l.MaxBalance = &decimal.NullDecimal{}
		case body.MaxBalance.given:
			amount := f.amount("max_balance", body.MaxBalance.text, account.Currency, money.ParseSigned)
			l.MaxBalance = new(decimal.NewNullDecimal(amount))
		}
		if err := f.validate(l.Validate()); err != nil {
			return accounts.Account{}, err
		}
		return s.Accounts.SetLimits(r.Context(), id, l)
	})
}

// newDirections is the body of POST /v1/accounts/{id}/directions.
type newDirections struct {
	Debits  text `json:"debits"`
	Credits text `json:"credits"`
}

func (s *server) setDirections(w http.ResponseWriter, r *http.Request) error {
	var body newDirections
	return s.changeAccount(w, r, &body, func(id uuid.UUID) (accounts.Account, error) {
		var f form
		d := accounts.Directions{
			DebitsBlocked:  f.blocked("debits", body.Debits),
			CreditsBlocked: f.blocked("credits", body.Credits),
		}
		if err := f.validate(d.Validate()); err != nil {
			return accounts.Account{}, err
		}
		return s.Accounts.SetDirections(r.Context(), id, d)
	})
}

// changeAccount answers with what do makes of the account in the path, when
// body has been read.
func (s *server) changeAccount(w http.ResponseWriter, r *http.Request, body any, do func(uuid.UUID) (accounts.Account, error)) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	if err := decode(r, body); err != nil {
		return err
	}
	account, err := do(id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, accountBody(account))
}

// What is said of an account's direction.
const (
	allowed = "allowed"
	blocked = "blocked"
)

// blocked reads whether a direction is blocked; nil where nothing is said.
func (f *form) blocked(field string, t text) *bool {
	if !t.given {
		return nil
	}
	if t.value != allowed && t.value != blocked {
		f.Add(field, "must be %s or %s", allowed, blocked)
	}
	return new(t.value == blocked)
}

func directionBody(isBlocked bool) string {
	if isBlocked {
		return blocked
	}
	return allowed
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

// accountJSON is an account as it is sent.
type accountJSON struct {
	ID         string            `json:"id"`
	Kind       string            `json:"kind"`
	Currency   string            `json:"currency"`
	Name       string            `json:"name" csv:"text"`
	Status     string            `json:"status"`
	Balance    string            `json:"balance"`
	Held       string            `json:"held"`
	Available  string            `json:"available"`
	MinBalance *string           `json:"min_balance"`
	MaxBalance *string           `json:"max_balance"`
	Debits     string            `json:"debits"`
	Credits    string            `json:"credits"`
	Version    string            `json:"version"`
	Metadata   map[string]string `json:"metadata"`
	CreatedAt  string            `json:"created_at"`
}

func accountBody(a accounts.Account) accountJSON {
	return accountJSON{
		ID: a.ID.String(), Kind: a.Kind, Currency: a.Currency, Name: a.Name, Status: a.Status,
		Balance: money.Format(a.Balance, a.Currency), Held: money.Format(a.Held, a.Currency), Available: money.Format(a.Available(), a.Currency),
		MinBalance: formatOptional(a.MinBalance, a.Currency), MaxBalance: formatOptional(a.MaxBalance, a.Currency),
		Debits: directionBody(a.DebitsBlocked), Credits: directionBody(a.CreditsBlocked),
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

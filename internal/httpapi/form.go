package httpapi

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/money"
)

// A form reads the fields of a request, and notes all that is wrong with them.
type form struct{ invalid.Check }

// validate adds the faults that the domain found, and returns all of them, or
// what else is wrong.
func (f *form) validate(found error) error {
	other := f.Join(found)
	if err := f.Err(); err != nil {
		return err
	}
	return other
}

func (f *form) required(field string, t text) string {
	if !t.given {
		f.Add(field, "is required")
	}
	return t.value
}

// account reads the id of an account that the body must name.
func (f *form) account(field string, t text) uuid.UUID {
	if !t.given {
		f.Add(field, "is required")
		return uuid.Nil
	}
	return f.id(field, t.value)
}

// id reads an id. The nil UUID names nothing, and means "none" to the domain.
func (f *form) id(field, s string) uuid.UUID {
	id, err := parseID(s)
	if err != nil {
		f.Add(field, "%v", err)
	} else if id == uuid.Nil {
		f.Add(field, "must not be the nil UUID")
	}
	return id
}

// parseID reads the one form of 36 characters; the library knows more.
func parseID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if len(s) != 36 || err != nil {
		return uuid.Nil, errors.New(`must be a UUID of 36 characters, like "0199d5f0-4b7c-7c1e-9d8a-1f2e3d4c5b6a"`)
	}
	return id, nil
}

// amount reads an amount by parse, one of package money's. Where the currency
// is no currency, that is the fault that counts.
func (f *form) amount(field string, t text, currency string, parse func(text, code string) (decimal.Decimal, error)) decimal.Decimal {
	if !t.given || !money.IsCurrency(currency) {
		return decimal.Zero
	}
	d, err := parse(t.value, currency)
	if err != nil {
		f.Add(field, "%v", err)
	}
	return d
}

// time reads a time. The zero time means "none" to the domain.
func (f *form) time(field, s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || !rfc3339.MatchString(s) || t.IsZero() {
		f.Add(field, `must be a time with its zone by RFC 3339, like "2026-05-01T09:30:00Z"`)
	}
	return t
}

// rfc3339 is the form of a time; the library reads more than the RFC has.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// key reads the idempotency key; nil where there is none.
func (f *form) key(r *http.Request) *idempotency.Key {
	switch values := r.Header.Values("Idempotency-Key"); len(values) {
	case 0:
		return nil
	case 1:
		return &idempotency.Key{Principal: callOf(r).principal, Value: values[0]}
	}
	f.Add("Idempotency-Key", "must be given once")
	return nil
}

// query refuses what h does not know of the query, and what is given twice.
// Behind it, [url.URL.Query] loses nothing. Of params, "metadata[]" is a family:
// metadata[a], metadata[b] and so on, each of them once.
func query(h handler, params ...string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var f form
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			f.Add("query", "must be well-formed")
		}
		for name, all := range values {
			switch {
			case !admits(params, name):
				f.Add(name, "is unknown")
			case len(all) > 1:
				f.Add(name, "must be given once")
			case !utf8.ValidString(all[0]) || strings.ContainsRune(all[0], 0):
				f.Add(name, "must be valid UTF-8 without U+0000")
			}
		}
		if err := f.Err(); err != nil {
			return err
		}
		return h(w, r)
	}
}

func admits(params []string, name string) bool {
	return slices.ContainsFunc(params, func(param string) bool {
		_, ok := memberOf(param, name)
		return ok || param == name
	})
}

// memberOf returns what the parameter of that name has in its brackets, if it is
// one of the family.
func memberOf(family, name string) (member string, ok bool) {
	prefix, ok := strings.CutSuffix(family, "[]")
	if !ok {
		return "", false
	}
	member, ok = strings.CutPrefix(name, prefix+"[")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(member, "]")
}

// pathID reads the id that is part of the path.
func pathID(r *http.Request) (uuid.UUID, error) {
	id, err := parseID(r.PathValue("id"))
	if err != nil {
		return uuid.Nil, &invalid.Error{Faults: []invalid.Fault{{Field: "id", Detail: err.Error()}}}
	}
	return id, nil
}

// noBody refuses a body where none is expected: what it asks for would be
// ignored.
func noBody(r *http.Request) error {
	if len(callOf(r).body) > 0 {
		return &invalid.Error{Faults: []invalid.Fault{{Field: bodyField, Detail: "must be empty"}}}
	}
	return nil
}

// Bounds of a page.
const (
	defaultLimit = 50
	maxLimit     = 100
)

func (f *form) limit(q url.Values) int {
	if !q.Has("limit") {
		return defaultLimit
	}
	digits := q.Get("limit")
	n, err := strconv.Atoi(digits)
	if err != nil || strconv.Itoa(n) != digits || n < 1 || n > maxLimit {
		f.Add("limit", "must be a number from 1 to %d", maxLimit)
	}
	return n
}

// descending reads the order; absent is the order where it is not given.
func (f *form) descending(q url.Values, absent string) bool {
	order := absent
	if q.Has("order") {
		order = q.Get("order")
	}
	if order != "asc" && order != "desc" {
		f.Add("order", "must be asc or desc")
	}
	return order == "desc"
}

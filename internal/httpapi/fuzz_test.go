package httpapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever the body: no panic, and what is accepted is what a careless reader
// would have read, once.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"currency":"USD"}`, `{"currency":"USD","metadata":{"a":"b"}}`, `{"currency":"USD","currency":"EUR"}`,
		`{"Currency":"USD"}`, `{"currency":"\ud800"}`, `{"currency":null}`, `{}`, `{} {}`, `[]`, ``, `{"metadata":{"a":{"b":[`, `{"":1}`,
		strings.Repeat(`{"metadata":`, 1000),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var got newAccount
		if err := unmarshal(body, &got); err != nil {
			if p := describe(err, "x"); p.Code != "invalid-request" || len(p.Errors) != 1 || p.Errors[0].Field == "" {
				t.Fatalf("%q is refused with %+v", body, p)
			}
			return
		}
		if !utf8.Valid(body) {
			t.Fatalf("%q is accepted and is not UTF-8", body)
		}
		var careless map[string]any
		if err := json.NewDecoder(bytes.NewReader(body)).Decode(&careless); err != nil {
			t.Fatalf("%q is accepted, and refused by the standard library: %v", body, err)
		}
		for name, member := range map[string]text{"id": got.ID, "currency": got.Currency, "name": got.Name, "min_balance": got.MinBalance, "max_balance": got.MaxBalance} {
			if want, given := careless[name].(string); want != member.value || given != member.given {
				t.Fatalf("%q: %s is read as %+v, want %q, %t", body, name, member, want, given)
			}
		}
	})
}

// Whatever the cursor: no panic, and only one spelling of a place opens.
func FuzzCursor(f *testing.F) {
	f.Add("accounts?currency=&status=", sealCursor("accounts?currency=&status=", make([]byte, idSize)))
	f.Add("x", "")
	f.Add("x", "AAAA\n")
	f.Fuzz(func(t *testing.T, list, cursor string) {
		for _, size := range []int{idSize, versionSize, positionSize} {
			place, ok := openCursor(list, cursor, size)
			if !ok {
				continue
			}
			if len(place) != size || sealCursor(list, place) != cursor {
				t.Fatalf("%q opens as %x, which seals as %q", cursor, place, sealCursor(list, place))
			}
		}
	})
}

func TestAChangedCursorDoesNotOpen(t *testing.T) {
	const list = "entries?account_id=1"
	cursor := sealCursor(list, versionPlace(42))
	if place, ok := openCursor(list, cursor, versionSize); !ok || placeVersion(place) != 42 {
		t.Fatalf("the cursor opens as %x, %t", place, ok)
	}
	for i := range cursor {
		for _, c := range "AZaz09-_=\n" {
			changed := cursor[:i] + string(c) + cursor[i+1:]
			if _, ok := openCursor(list, changed, versionSize); ok && changed != cursor {
				t.Errorf("%q opens, made from %q", changed, cursor)
			}
		}
	}
}

package httpapi

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// bodyTypes are those of all requests that have a body.
var bodyTypes = []reflect.Type{
	reflect.TypeFor[newAccount](), reflect.TypeFor[accountUpdate](), reflect.TypeFor[newLimits](), reflect.TypeFor[newDirections](),
	reflect.TypeFor[newTransfer](), reflect.TypeFor[newDebit](), reflect.TypeFor[newCredit](), reflect.TypeFor[newReversal](),
	reflect.TypeFor[newBatch](), reflect.TypeFor[newHold](), reflect.TypeFor[newCapture](), reflect.TypeFor[newPayment](),
}

// Whatever the body: no panic, and what is accepted is what a careless reader
// would have read, once.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"currency":"USD"}`, `{"currency":"USD","metadata":{"a":"b"}}`, `{"currency":"USD","currency":"EUR"}`,
		`{"Currency":"USD"}`, `{"currency":"\ud800"}`, `{"currency":null}`, `{}`, `{} {}`, `[]`, ``, `{"metadata":{"a":{"b":[`, `{"":1}`,
		strings.Repeat(`{"metadata":`, 1000),
		`{"max_balance":null}`, `{"final":true,"amount":"1"}`, `{"priority":9,"max_attempts":1e2}`, `{"priority":99999999999999999999}`,
		`{"atomic":false,"transfers":[{"amount":"1"},{},{"amount":"2","metadata":{}}]}`, `{"atomic":true,"transfers":null}`,
	} {
		for kind := range bodyTypes {
			f.Add(uint8(kind), []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		bodyType := bodyTypes[int(kind)%len(bodyTypes)]
		got := reflect.New(bodyType)
		if err := unmarshal(body, got.Interface()); err != nil {
			wantInvalid(t, err, body)
			return
		}
		if !utf8.Valid(body) {
			t.Fatalf("%q is accepted and is not UTF-8", body)
		}
		careless := map[string]any{}
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		if err := decoder.Decode(&careless); err != nil {
			t.Fatalf("%q is accepted, and refused by the standard library: %v", body, err)
		}
		rewritten, err := json.Marshal(careless)
		if err != nil {
			t.Fatal(err)
		}
		again := reflect.New(bodyType)
		if err := unmarshal(rewritten, again.Interface()); err != nil || !reflect.DeepEqual(again.Interface(), got.Interface()) {
			t.Fatalf("%s %q is read as %+v, and as %+v, %v when it is written anew: %s",
				bodyType, body, got.Elem(), again.Elem(), err, rewritten)
		}
		if tokens(body) != tokens(rewritten) {
			t.Fatalf("%q is accepted, and says more than %s", body, rewritten)
		}
	})
}

// tokens counts those of valid JSON.
func tokens(body []byte) (n int) {
	for decoder := json.NewDecoder(bytes.NewReader(body)); ; n++ {
		if _, err := decoder.Token(); err != nil {
			return n
		}
	}
}

// wantInvalid checks that err is told as the one fault of a field.
func wantInvalid(t *testing.T, err error, input []byte) {
	t.Helper()
	p := describe(err, "x")
	if p.Code != "invalid-request" || len(p.Errors) != 1 || p.Errors[0].Field == "" || p.Errors[0].Detail == "" {
		t.Fatalf("%q is refused with %+v", input, p)
	}
	if _, err := json.Marshal(p); err != nil || !utf8.ValidString(p.Detail) {
		t.Fatalf("%q is refused with %q, which cannot be sent: %v", input, p.Detail, err)
	}
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

// Whatever the place: it is the one that was sealed, in its own list alone.
func FuzzPlace(f *testing.F) {
	f.Add("entries?account_id=1", "entries?account_id=2", make([]byte, positionSize))
	f.Add("", "\x00", []byte{})
	f.Fuzz(func(t *testing.T, list, other string, place []byte) {
		cursor := sealCursor(list, place)
		if got, ok := openCursor(list, cursor, len(place)); !ok || !bytes.Equal(got, place) {
			t.Fatalf("%q opens as %x, %t, want %x", cursor, got, ok, place)
		}
		if _, ok := openCursor(other, cursor, len(place)); ok && other != list {
			t.Fatalf("the cursor of %q opens in %q", list, other)
		}
		if len(place) == positionSize && !bytes.Equal(positionPlace(placePosition(place)), place) {
			t.Fatalf("the position %+v is not that of %x", placePosition(place), place)
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

var keyGrammar = regexp.MustCompile(`\A[ -~]{1,255}\z`)

// Whatever the header: a key is taken as it is, or refused by its name.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{"k", " !~", "", "a\tb", "ü", "\xff", "\x7f", strings.Repeat("k", 255), strings.Repeat("k", 256)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		var got *form
		h := (&server{}).identify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got = &form{}
			key := got.key(r)
			if key == nil || key.Value != value {
				t.Fatalf("%q is read as %+v", value, key)
			}
			key.Check(&got.Check)
		}))
		r := httptest.NewRequest("POST", "/", nil)
		r.Header["Idempotency-Key"] = []string{value}
		h.ServeHTTP(httptest.NewRecorder(), r)
		if err := got.Err(); (err == nil) != keyGrammar.MatchString(value) {
			t.Fatalf("%q: %v", value, err)
		} else if err != nil {
			wantInvalid(t, err, []byte(value))
		}
	})
}

// Whatever the file: no panic, what it says is what is understood, and an error
// repeats nothing that may be a token.
func FuzzTokens(f *testing.F) {
	_, line, err := NewToken("alice")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		line, "# c\n\n  " + line + "\r\n", line + "\n" + line, strings.Replace(line, "alice", "Alice", 1), line[:len(line)-1], line + " x",
		"alice rowlock_0J3fyfXx9gkuqDsbZ5tN2aVh8tGJQn6nQ6s4rWl9pXk", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		entries, err := parseTokens(text)
		if err != nil {
			for _, word := range strings.Fields(text) {
				if len(word) >= 20 && !tokenNames.MatchString(word) && strings.Contains(err.Error(), word) {
					t.Fatalf("%q: the error repeats %q: %v", text, word, err)
				}
			}
			return
		}
		var lines []string
		for _, e := range entries {
			if checkTokenName(e.name) != nil || !strings.Contains(text, e.name) {
				t.Fatalf("%q names %q", text, e.name)
			}
			lines = append(lines, e.name+" "+hex.EncodeToString(e.hash[:]))
		}
		again, err := parseTokens(strings.Join(lines, "\n"))
		if err != nil || !reflect.DeepEqual(again, entries) {
			t.Fatalf("%q is %v, and %v, %v when it is written anew", text, entries, again, err)
		}
	})
}

// Whatever the text: an id and a time have one form each.
func FuzzIDAndTime(f *testing.F) {
	for _, seed := range []string{
		"0199d5f0-4b7c-7c1e-9d8a-1f2e3d4c5b6a", "{0199d5f0-4b7c-7c1e-9d8a-1f2e3d4c5b6a}", "0199d5f04b7c7c1e9d8a1f2e3d4c5b6a", "00000000-0000-0000-0000-000000000000",
		"2026-05-01T09:30:00Z", "2026-05-01T09:30:60Z", "2026-02-30T00:00:00Z", "2026-05-01T09:30:00,5Z", "0000-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999999-23:59",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var ids form
		if id := ids.id("id", text); ids.Err() == nil && !(id != uuid.Nil && strings.EqualFold(id.String(), text)) {
			t.Fatalf("%q is read as %s", text, id)
		}
		var times form
		at := times.time("at", text)
		if times.Err() != nil {
			return
		}
		var again form
		written := at.Format(time.RFC3339Nano)
		if got := again.time("at", written); again.Err() != nil || !got.Equal(at) {
			t.Fatalf("%q is read as %v, and %v, %v when it is written anew", text, at, got, again.Err())
		}
	})
}

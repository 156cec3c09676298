package bench

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"github.com/google/uuid"
)

// A fakeService answers transfers as net/http does.
type fakeService struct {
	mu     sync.Mutex
	keys   map[string]bool
	bodies []map[string]string
	answer func(w http.ResponseWriter)
}

func (s *fakeService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body := map[string]string{}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/transfers" || json.NewDecoder(r.Body).Decode(&body) != nil {
		http.NotFound(w, r)
		return
	}
	s.keys[r.Header.Get("Idempotency-Key")] = true
	s.bodies = append(s.bodies, body)
	s.answer(w)
}

func startFake(t *testing.T, answer func(w http.ResponseWriter)) (*fakeService, httpTarget) {
	t.Helper()
	fake := &fakeService{keys: map[string]bool{}, answer: answer}
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return fake, httpTarget{url: address, ids: []uuid.UUID{accountID(0), accountID(1), accountID(2)}, run: newRun()}
}

func TestRequestsAreWhatTheServiceReads(t *testing.T) {
	fake, target := startFake(t, func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated); io.WriteString(w, `{"id":"x"}`) })
	c := newHTTPCaller(target, 7)
	defer c.close()
	for i := range 5 {
		if code, err := c.call([]pair{{i % 3, (i + 1) % 3}}); code != "" || err != nil {
			t.Fatalf("transfer: %q, %v", code, err)
		}
	}
	if len(fake.keys) != 5 || fake.keys[""] {
		t.Errorf("keys %v, want five", fake.keys)
	}
	for i, body := range fake.bodies {
		want := map[string]string{
			"debit_account_id": accountID(i % 3).String(), "credit_account_id": accountID((i + 1) % 3).String(),
			"amount": amount, "currency": "USD",
		}
		for field, value := range want {
			if body[field] != value {
				t.Errorf("request %d: %s = %q, want %q", i, field, body[field], value)
			}
		}
	}
}

func TestKeysCanBeLeftOut(t *testing.T) {
	fake, target := startFake(t, func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) })
	target.run = ""
	c := newHTTPCaller(target, 0)
	defer c.close()
	if code, err := c.call([]pair{{0, 1}}); code != "" || err != nil {
		t.Fatalf("transfer: %q, %v", code, err)
	}
	if len(fake.keys) != 1 || !fake.keys[""] {
		t.Errorf("keys %v, want none", fake.keys)
	}
}

func TestProblemsAreTold(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       string
	}{
		{"a problem", `{"type":"…","status":422,"code":"insufficient-funds"}`, "insufficient-funds"},
		{"something else", `oops`, "status-422"},
	} {
		_, target := startFake(t, func(w http.ResponseWriter) {
			w.Header().Set("Connection", "close") // and the next call connects again
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, tt.body)
		})
		c := newHTTPCaller(target, 0)
		for range 2 {
			if code, err := c.call([]pair{{0, 1}}); code != tt.want || err != nil {
				t.Errorf("%s: %q, %v; want %q", tt.name, code, err, tt.want)
			}
		}
	}
}

func TestAnAnswerThatBreaksOffIsNone(t *testing.T) {
	_, target := startFake(t, func(http.ResponseWriter) { panic(http.ErrAbortHandler) })
	c := newHTTPCaller(target, 0)
	if code, err := c.call([]pair{{0, 1}}); err == nil {
		t.Errorf("code %q and no error, want one", code)
	}
}

func TestParseAnswer(t *testing.T) {
	const head = "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n"
	for _, tt := range []struct {
		name, text     string
		whole, refused bool
	}{
		{"whole", head + "{  }", true, false},
		{"without its end", head + "{", false, false},
		{"without its body", head, false, false},
		{"half a head", head[:30], false, false},
		{"too much", head + "{  }HTTP/1.1", false, true},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, true},
		{"something else", "SSH-2.0-OpenSSH\r\n\r\n", false, true},
	} {
		_, whole, err := parseAnswer([]byte(tt.text))
		if whole != tt.whole || (err != nil) != tt.refused {
			t.Errorf("%s: whole %v, error %v; want %v and an error %v", tt.name, whole, err, tt.whole, tt.refused)
		}
	}
}

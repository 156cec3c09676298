package paymenthook_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/paymenthook"
)

const (
	oldSecret = "whsec_b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xkIG8="
	newSecret = "whsec_bmV3IG5ldyBuZXcgbmV3IG5ldyBuZXcgbmV3IG4="
)

// due is a payment in its second attempt.
func due() payment.Payment {
	return payment.Payment{
		ID:              uuid.MustParse("019a0000-0000-7000-8000-000000000001"),
		DebitAccountID:  uuid.MustParse("019a0000-0000-7000-8000-00000000000a"),
		CreditAccountID: uuid.MustParse("019a0000-0000-7000-8000-00000000000b"),
		Amount:          decimal.RequireFromString("200.5"),
		Currency:        "USD",
		Description:     "Rent, <May>",
		Metadata:        map[string]string{"flat": "7"},
		Priority:        3,
		Attempts:        2,
		MaxAttempts:     5,
		RunAt:           time.Date(2026, 5, 1, 9, 0, 0, 0, time.FixedZone("", 2*60*60)),
		CreatedAt:       time.Date(2026, 4, 1, 12, 30, 0, 123_456_000, time.UTC),
	}
}

// serve runs a server that answers with answer, and returns its URL.
func serve(t testing.TB, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

func newHook(t testing.TB, c paymenthook.Config) *paymenthook.Hook {
	t.Helper()
	if c.Secrets == nil {
		c.Secrets = []string{newSecret}
	}
	if c.Timeout == 0 {
		c.Timeout = time.Hour // no test is to be as slow
	}
	h, err := paymenthook.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func allow(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"decision":"allow"}`)
}

func TestQuestion(t *testing.T) {
	var header http.Header
	var method, path string
	var body []byte
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		header, method, path = r.Header, r.Method, r.URL.String()
		body, _ = io.ReadAll(r.Body)
		allow(w)
	})
	before := time.Now().Truncate(time.Second)
	got, err := newHook(t, paymenthook.Config{URL: url + "/may?key=1", Secrets: []string{oldSecret, newSecret}}).Ask(t.Context(), due())
	if want := (payment.Decision{Verdict: payment.Allow}); err != nil || got != want {
		t.Fatalf("Ask returned %+v, %v, want %+v", got, err, want)
	}

	if method != "POST" || path != "/may?key=1" {
		t.Errorf("got %s %s", method, path)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json",
		"User-Agent":   "rowlock-ledger",
		"webhook-id":   "019a0000-0000-7000-8000-000000000001_2",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if n := len(strings.Fields(header.Get("webhook-signature"))); n != 2 {
		t.Errorf("two secrets have made %d signatures", n)
	}
	for _, secret := range []string{oldSecret, newSecret} {
		if err := verifier(t, secret).Verify(body, header); err != nil {
			t.Errorf("one of two signatures: %v", err)
		}
	}
	if err := verifier(t, "whsec_"+strings.Repeat("A", 32)).Verify(body, header); err == nil {
		t.Error("a secret that signed nothing verifies the request")
	}

	var question map[string]any
	if err := json.Unmarshal(body, &question); err != nil {
		t.Fatal(err)
	}
	asked, err := time.Parse(time.RFC3339, question["timestamp"].(string))
	if err != nil || asked.Before(before) || asked.After(time.Now()) {
		t.Errorf("the question's timestamp is %v, %v", question["timestamp"], err)
	}
	delete(question, "timestamp")
	want := map[string]any{
		"type": "payment.due",
		"data": map[string]any{
			"id":                "019a0000-0000-7000-8000-000000000001",
			"debit_account_id":  "019a0000-0000-7000-8000-00000000000a",
			"credit_account_id": "019a0000-0000-7000-8000-00000000000b",
			"amount":            "200.50",
			"currency":          "USD",
			"description":       "Rent, <May>",
			"metadata":          map[string]any{"flat": "7"},
			"priority":          3.0,
			"attempts":          2.0,
			"max_attempts":      5.0,
			"run_at":            "2026-05-01T07:00:00.000000Z",
			"created_at":        "2026-04-01T12:30:00.123456Z",
		},
	}
	if diff := cmp.Diff(want, question); diff != "" {
		t.Errorf("the question differs (-want +got):\n%s", diff)
	}
}

func verifier(t testing.TB, secret string) *standardwebhooks.Webhook {
	t.Helper()
	v, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestClientOfTheCaller(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { allow(w) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it will be told that it is not trusted
	server.StartTLS()
	t.Cleanup(server.Close)
	if _, err := newHook(t, paymenthook.Config{URL: server.URL}).Ask(t.Context(), due()); err == nil {
		t.Error("a server that nobody knows is trusted")
	}
	if _, err := newHook(t, paymenthook.Config{URL: server.URL, Client: server.Client()}).Ask(t.Context(), due()); err != nil {
		t.Error(err)
	}
}

// silent reads its request and never answers.
func silent(_ http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	<-r.Context().Done() // the caller has left
}

// stuck stops in the middle of its answer.
func stuck(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"decision":`)
	http.NewResponseController(w).Flush()
	silent(w, r)
}

func TestTimeout(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{"silent": silent, "stuck": stuck} {
		t.Run(name, func(t *testing.T) {
			_, err := newHook(t, paymenthook.Config{URL: serve(t, answer), Timeout: 20 * time.Millisecond}).Ask(t.Context(), due())
			if want := "payment hook: no answer within 20ms"; err == nil || err.Error() != want {
				t.Errorf("error = %v, want %s", err, want)
			}
		})
	}
}

func TestAskEndsWithItsContext(t *testing.T) {
	leaseLost := errors.New("the lease was lost")
	for name, answer := range map[string]http.HandlerFunc{"silent": silent, "stuck": stuck} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				cancel(leaseLost)
				answer(w, r)
			})
			if _, err := newHook(t, paymenthook.Config{URL: url}).Ask(ctx, due()); !errors.Is(err, leaseLost) {
				t.Errorf("error = %v, want one that matches %v", err, leaseLost)
			}
		})
	}
}

func TestNobodyAnswers(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	_, err := newHook(t, paymenthook.Config{URL: server.URL + "?key=hidden"}).Ask(t.Context(), due())
	if err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("error = %v, want one without the URL's query", err)
	}
}

// The other side may close an idle connection just as a question comes.
func TestAConnectionThatIsClosedIsNoSilence(t *testing.T) {
	var mu sync.Mutex
	var ids []string
	h := newHook(t, paymenthook.Config{URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if ids = append(ids, r.Header.Get("webhook-id")); len(ids) == 2 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"decision":"allow"}`)
	})})
	for range 2 {
		if d, err := h.Ask(t.Context(), due()); err != nil || d.Verdict != payment.Allow {
			t.Errorf("Ask = %+v, %v, want allow", d, err)
		}
	}
	if len(ids) != 3 || ids[1] != ids[2] {
		t.Errorf("asked with the ids %q, want the last one twice", ids)
	}
}

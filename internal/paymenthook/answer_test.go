package paymenthook_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/paymenthook"
)

// askFor asks a server that answers with these.
func askFor(t *testing.T, status int, contentType, body string) (payment.Decision, error) {
	t.Helper()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{contentType}
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
	return newHook(t, paymenthook.Config{URL: url + "/?key=hidden"}).Ask(t.Context(), due())
}

func TestAnswers(t *testing.T) {
	allow := payment.Decision{Verdict: payment.Allow}
	denied := func(reason string) payment.Decision { return payment.Decision{Verdict: payment.Deny, Reason: reason} }
	later := func(reason string, after time.Duration) payment.Decision {
		return payment.Decision{Verdict: payment.Later, Reason: reason, After: after}
	}
	const unsaid = "no reason was given"
	for _, tt := range []struct {
		body string
		want payment.Decision
	}{
		{`{"decision":"allow"}`, allow},
		{` {"decision":"allow","reason":"fine","retry_after_seconds":null,"score":[0.1]} `, allow},
		{`{"decision":"deny"}`, denied(unsaid)},
		{`{"decision":"deny","reason":"over the limit"}`, denied("over the limit")},
		{`{"decision":"later"}`, later(unsaid, 0)},
		{`{"decision":"later","reason":"asked Ann","retry_after_seconds":1}`, later("asked Ann", time.Second)},
		{`{"decision":"later","retry_after_seconds":2592000}`, later(unsaid, 30*24*time.Hour)},

		{`{"decision":"deny","reason":"` + strings.Repeat("é", 501) + `"}`, denied(strings.Repeat("é", 500))},
		{`{"decision":"deny","reason":"a\u0000b"}`, denied("ab")},
		{`{"decision":"deny","reason":"\u0000"}`, denied(unsaid)},
		{"{\"decision\":\"deny\",\"reason\":\"a\xffb\"}", denied("a\ufffdb")},
		{`{"decision":"deny","reason":"a\ud800b"}`, denied("a\ufffdb")},
	} {
		for _, contentType := range []string{"application/json", "Application/JSON; charset=utf-8"} {
			if got, err := askFor(t, http.StatusOK, contentType, tt.body); err != nil || got != tt.want {
				t.Errorf("%s is read as %+v, %v, want %+v", tt.body, got, err, tt.want)
			}
		}
	}
}

func TestNoAnswers(t *testing.T) {
	const allow = `{"decision":"allow"}`
	for _, tt := range []struct {
		status            int
		contentType, body string
		want              string // in the error
	}{
		{201, "application/json", allow, "status 201"},
		{204, "application/json", "", "status 204"},
		{304, "application/json", "", "redirect (304)"},
		{401, "application/json", allow, "status 401"},
		{503, "application/json", allow, "status 503"},
		{200, "", allow, "Content-Type"},
		{200, "text/html", allow, "Content-Type"},
		{200, "application/json;;", allow, "Content-Type"},
		{200, "application/json", "", "cannot be read"},
		{200, "application/json", "null", "decision"},
		{200, "application/json", "{}", "decision"},
		{200, "application/json", `"allow"`, "cannot be read"},
		{200, "application/json", "[" + allow + "]", "cannot be read"},
		{200, "application/json", allow[:len(allow)-1], "cannot be read"},
		{200, "application/json", allow + allow, "cannot be read"},
		{200, "application/json", `{"decision":"deny","decision":"allow"}`, "cannot be read"},
		{200, "application/json", `{"decision":true}`, "cannot be read"},
		{200, "application/json", `{"Decision":"allow"}`, "decision"},
		{200, "application/json", `{"decision":"Allow"}`, "decision"},
		{200, "application/json", `{"decision":"maybe"}`, "decision"},
		{200, "application/json", `{"decision":"deny","reason":7}`, "/reason"},
		{200, "application/json", `{"decision":"later","retry_after_seconds":0}`, "from 1 to 2592000"},
		{200, "application/json", `{"decision":"later","retry_after_seconds":-1}`, "from 1 to 2592000"},
		{200, "application/json", `{"decision":"later","retry_after_seconds":2592001}`, "from 1 to 2592000"},
		{200, "application/json", `{"decision":"later","retry_after_seconds":9223372036854775807}`, "from 1 to 2592000"},
		{200, "application/json", `{"decision":"later","retry_after_seconds":9223372036854775808}`, "/retry_after_seconds"},
		{200, "application/json", `{"decision":"later","retry_after_seconds":1.5}`, "/retry_after_seconds"},
		{200, "application/json", `{"decision":"later","retry_after_seconds":"60"}`, "/retry_after_seconds"},
		{200, "application/json", allow + strings.Repeat(" ", 64<<10), "longer than 65536"},
	} {
		got, err := askFor(t, tt.status, tt.contentType, tt.body)
		if err == nil || got != (payment.Decision{}) {
			t.Errorf("%d %q %.80s is read as %+v, %v, want an error", tt.status, tt.contentType, tt.body, got, err)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, "payment hook: ") || !strings.Contains(text, tt.want) {
			t.Errorf("%d %q %.80s: the error is %q, want one with %q", tt.status, tt.contentType, tt.body, text, tt.want)
		} else if strings.Contains(text, "hidden") || strings.Contains(text, "whsec_") {
			t.Errorf("the error tells a secret: %s", text)
		}
	}
}

func TestNoAnswerIsCutShort(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, `{"decision":"allow"}`)
	})
	if got, err := newHook(t, paymenthook.Config{URL: url}).Ask(t.Context(), due()); err == nil {
		t.Errorf("a part of an answer is read as %+v", got)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := serve(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was sent elsewhere", r.Method, r.URL)
		allow(w)
	})
	for _, status := range []int{301, 302, 303, 307, 308} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, status) })
		for _, client := range []*http.Client{nil, {}} {
			_, err := newHook(t, paymenthook.Config{URL: url, Client: client}).Ask(t.Context(), due())
			if err == nil || !strings.Contains(err.Error(), "redirect") {
				t.Errorf("%d: error = %v, want one that names the redirect", status, err)
			}
		}
	}
}

package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/rowlock/ledger/tests/openapi"
)

// checkContract holds an answer against the contract.
func checkContract(t testing.TB, at string, r *http.Request, a answer) {
	t.Helper()
	if err := contractError(r, a); err != nil {
		t.Errorf("%s: the answer to %s %s breaks the contract: %.300v\n%d %.1000s", at, r.Method, r.URL.Path, err, a.status, a.body)
	}
}

func contractError(r *http.Request, a answer) error {
	c, err := openapi.Load()
	if err != nil {
		return err
	}
	return c.CheckAnswer(r, a.status, a.header, a.body)
}

// The check is not blind.
func TestTheContractIsHeld(t *testing.T) {
	const good = `{"type":"t","title":"t","status":503,"detail":"d","instance":"urn:x","code":"unavailable","retryable":true}`
	tests := []struct {
		name, method, path string
		status             int
		body               string
		retryAfter         string
		ok                 bool
	}{
		{"as promised", "GET", "/v1/accounts", 503, good, "1", true},
		{"an empty page", "GET", "/v1/accounts", 200, `{"items":[],"next_cursor":null}`, "", true},
		{"no Retry-After", "GET", "/v1/accounts", 503, good, "", false},
		{"another call's code", "GET", "/v1/accounts", 503, strings.Replace(good, "unavailable", "outcome-unknown", 1), "1", false},
		{"an unknown code", "GET", "/v1/accounts", 503, strings.Replace(good, "unavailable", "oops", 1), "1", false},
		{"a status that is not promised", "GET", "/v1/accounts", 409, good, "1", false},
		{"a member that is not promised", "GET", "/v1/accounts", 200, `{"items":[],"next_cursor":null,"total":1}`, "", false},
		{"a member missing", "GET", "/v1/accounts", 200, `{"items":[]}`, "", false},
		{"a number for a string", "GET", "/v1/accounts", 200, `{"items":[],"next_cursor":1}`, "", false},
		{"no such call", "GET", "/v1/wallets", 200, `{}`, "", false},
		{"no such method", "PUT", "/v1/accounts", 405, strings.Replace(good, "unavailable", "method-not-allowed", 1), "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := answer{status: tt.status, header: http.Header{"Content-Type": {"application/problem+json"}}, body: []byte(tt.body)}
			if tt.status < 400 {
				a.header.Set("Content-Type", "application/json")
			}
			if tt.retryAfter != "" {
				a.header.Set("Retry-After", tt.retryAfter)
			}
			if err := json.Unmarshal(a.body, &a.json); err != nil {
				t.Fatal(err)
			}
			r, _ := http.NewRequest(tt.method, "http://127.0.0.1"+tt.path, nil)
			if err := contractError(r, a); (err == nil) != tt.ok {
				t.Errorf("got %v, want ok %t", err, tt.ok)
			}
		})
	}
}

func TestEveryRouteIsInTheContract(t *testing.T) {
	c, err := openapi.Load()
	if err != nil {
		t.Fatal(err)
	}
	promised := map[string]bool{}
	for path, item := range c.Doc.Paths.Map() {
		for method := range item.Operations() {
			promised[method+" "+path] = true
		}
	}
	chi.Walk(bare(nil).(chi.Router), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		name := method + " " + route
		if !promised[name] && name != "GET /docs/*" { // the page's own assets
			t.Errorf("the route %s is not in the contract", name)
		}
		delete(promised, name)
		return nil
	})
	for name := range promised {
		t.Errorf("%s is in the contract and has no route", name)
	}
}

// The page to try it works without any other server.
func TestTheDocsPageBringsAllItNeeds(t *testing.T) {
	h := bare(nil)
	page := do(h, "GET", "/docs", "").Body.String()
	assets := regexp.MustCompile(`(?:href|src)="([^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(assets) < 3 || !strings.Contains(page, "/openapi.yaml") {
		t.Errorf("the page has the assets %q, want some, and the contract", assets)
	}
	for _, asset := range assets {
		if w := do(h, "GET", asset[1], ""); w.Code != 200 || !strings.HasPrefix(asset[1], "/docs/") {
			t.Errorf("the page needs %s, which is answered with %d", asset[1], w.Code)
		}
	}
}

// A code stands in four places: the table, the contract's list, the responses
// of its calls, and a heading of the documentation. Codes that only attempts of
// payments end in have the heading alone.
func TestEveryCodeIsDocumented(t *testing.T) {
	c, err := openapi.Load()
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/problems.md")
	if err != nil {
		t.Fatal(err)
	}
	var table, listed, answered, headings []string
	for _, k := range append(slices.Clone(kinds), unknown) {
		table = append(table, k.code)
	}
	for _, code := range c.Doc.Components.Schemas["ProblemCode"].Value.Enum {
		listed = append(listed, fmt.Sprint(code))
	}
	answered = []string{"method-not-allowed"} // no call's own: it is what there is in place of one
	for _, response := range c.Doc.Components.Responses {
		answered = append(answered, openapi.ProblemCodes(response)...)
	}
	for line := range strings.Lines(string(docs)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			headings = append(headings, strings.TrimSpace(heading))
		}
	}
	for name, codes := range map[string]struct{ got, want []string }{
		"openapi.yaml's ProblemCode": {listed, table},
		"openapi.yaml's responses":   {answered, table},
		"docs/problems.md":           {headings, slices.Concat(table, attemptCodes(t))},
	} {
		if got, want := sorted(codes.got), sorted(codes.want); !slices.Equal(got, want) {
			t.Errorf("%s has the codes\n%v, want\n%v", name, got, want)
		}
	}
}

// attemptCodes are the constants of package payment that attempts end in.
func attemptCodes(t *testing.T) (codes []string) {
	source, err := os.ReadFile("../payment/errors.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)^\tCode\w+ += "(.+?)"`).FindAllSubmatch(source, -1) {
		codes = append(codes, string(found[1]))
	}
	if len(codes) == 0 {
		t.Error("there are no codes in payment/errors.go")
	}
	return codes
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return slices.Compact(s)
}

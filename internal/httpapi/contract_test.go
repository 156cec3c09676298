package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/go-chi/chi/v5"

	"github.com/rowlock/ledger/api"
)

type loadedContract struct {
	doc    *openapi3.T
	router routers.Router
}

// theContract is openapi.yaml, valid, and here without tolerance: an answer may
// have no members that it does not know.
var theContract = sync.OnceValues(func() (*loadedContract, error) {
	doc, err := openapi3.NewLoader().LoadFromData(api.Contract)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	no := false
	for _, schema := range doc.Components.Schemas {
		if len(schema.Value.Properties) > 0 {
			schema.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: &no}
		}
	}
	router, err := legacy.NewRouter(doc)
	return &loadedContract{doc, router}, err
})

// checkContract holds an answer against the contract.
func checkContract(t testing.TB, at string, r *http.Request, a answer) {
	t.Helper()
	c, err := theContract()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	bare := r.Clone(context.Background())
	bare.URL.Host, bare.URL.Scheme, bare.Host = "", "", ""
	if r.Method == http.MethodHead {
		bare.Method = http.MethodGet
	}
	route, params, err := c.router.FindRoute(bare)
	if err != nil {
		// No such call: the answer must be a problem that says so.
		schema := c.doc.Components.Schemas["Problem"].Value
		if err := schema.VisitJSON(a.json, openapi3.EnableJSONSchema2020()); err != nil || a.status != 404 && a.status != 405 {
			t.Errorf("%s: %s %s is not in the contract and is answered with %d %s (%v)", at, r.Method, r.URL.Path, a.status, a.body, err)
		}
		return
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
		Status:                 a.status,
		Header:                 a.header,
		Body:                   io.NopCloser(strings.NewReader(string(a.body))),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: len(a.body) == 0 && r.Method == http.MethodHead},
	})
	if err != nil {
		t.Errorf("%s: %s %s: the answer breaks the contract: %v\n%s", at, r.Method, r.URL.Path, err, a.body)
		return
	}
	if code, ok := lookup(a.json, ".code"); ok && a.status >= 400 {
		promised := problemCodes(route.Operation.Responses.Status(a.status))
		if !slices.Contains(promised, fmt.Sprint(code)) {
			t.Errorf("%s: %s %s: problem %v, and the contract has only %v for %d", at, r.Method, r.URL.Path, code, promised, a.status)
		}
	}
}

// problemCodes are the codes that a response of the contract may have.
func problemCodes(response *openapi3.ResponseRef) []string {
	var codes []string
	if response == nil {
		return nil
	}
	list, _ := response.Value.Extensions["x-problem-codes"].([]any)
	for _, code := range list {
		codes = append(codes, fmt.Sprint(code))
	}
	return codes
}

func TestEveryRouteIsInTheContract(t *testing.T) {
	c, err := theContract()
	if err != nil {
		t.Fatal(err)
	}
	promised := map[string]bool{}
	for path, item := range c.doc.Paths.Map() {
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

// A code stands in four places: the table, the contract's list, the responses
// of its calls, and a heading of the documentation.
func TestEveryCodeIsDocumented(t *testing.T) {
	c, err := theContract()
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
	for _, code := range c.doc.Components.Schemas["ProblemCode"].Value.Enum {
		listed = append(listed, fmt.Sprint(code))
	}
	answered = []string{"method-not-allowed"} // no call's own: it is what there is in place of one
	for _, response := range c.doc.Components.Responses {
		answered = append(answered, problemCodes(response)...)
	}
	for line := range strings.Lines(string(docs)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			headings = append(headings, strings.TrimSpace(heading))
		}
	}
	want := sorted(table)
	for name, got := range map[string][]string{"openapi.yaml's ProblemCode": listed, "openapi.yaml's responses": answered, "docs/problems.md": headings} {
		if got := sorted(got); !slices.Equal(got, want) {
			t.Errorf("%s has the codes\n%v, want\n%v", name, got, want)
		}
	}
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return slices.Compact(s)
}

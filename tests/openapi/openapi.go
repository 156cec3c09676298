// Package openapi holds requests and answers against api/openapi.yaml, for the
// tests of the handlers and those of the whole process. Start reading at [Load].
package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/rowlock/ledger/api"
)

// A Contract is openapi.yaml, valid, and here without tolerance: an answer may
// have no members that it does not know.
type Contract struct {
	Doc    *openapi3.T
	router routers.Router
}

// Load returns the contract, which is read once.
var Load = sync.OnceValues(func() (*Contract, error) {
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
	return &Contract{doc, router}, err
})

// find returns the call that r is, or nil.
func (c *Contract) find(r *http.Request) (*routers.Route, map[string]string) {
	method, path := r.Method, r.URL.EscapedPath()
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if !slices.Contains([]string{"GET", "POST", "PATCH"}, method) || strings.HasSuffix(path, "/") {
		return nil, nil // of which the library thinks otherwise
	}
	route, params, err := c.router.FindRoute(&http.Request{Method: method, URL: &url.URL{Path: path}})
	if err != nil || strings.Count(route.Path, "/") != strings.Count(path, "/") { // it takes nothing for an id
		return nil, nil
	}
	return route, params
}

func input(r *http.Request, route *routers.Route, params map[string]string) *openapi3filter.RequestValidationInput {
	return &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route}
}

// CheckAnswer returns how an answer to r breaks the contract, or nil.
func (c *Contract) CheckAnswer(r *http.Request, status int, header http.Header, body []byte) error {
	var value any
	json.Unmarshal(body, &value) // its error: not everything is JSON
	route, params := c.find(r)
	if route == nil {
		if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			return errors.New("there is no such call")
		}
		return c.Doc.Components.Schemas["Problem"].Value.VisitJSON(value, openapi3.EnableJSONSchema2020())
	}
	err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input(r, route, params),
		Status:                 status,
		Header:                 header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil || status < 400 {
		return err
	}
	var problem struct{ Code string }
	json.Unmarshal(body, &problem) // it matched its schema
	if promised := ProblemCodes(route.Operation.Responses.Status(status)); !slices.Contains(promised, problem.Code) {
		return fmt.Errorf("the code is %v, and %d has only %v", problem.Code, status, promised)
	}
	return nil
}

// CheckRequest returns how a request with that body breaks the contract, or nil.
// A request that is no call of it breaks it, too.
func (c *Contract) CheckRequest(r *http.Request, body []byte) error {
	route, params := c.find(r)
	if route == nil {
		return errors.New("there is no such call")
	}
	r = r.Clone(context.Background())
	r.Body = io.NopCloser(bytes.NewReader(body))
	in := input(r, route, params)
	in.Options = &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}
	return openapi3filter.ValidateRequest(context.Background(), in)
}

// ProblemCodes are the codes that a response of the contract may have.
func ProblemCodes(response *openapi3.ResponseRef) []string {
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

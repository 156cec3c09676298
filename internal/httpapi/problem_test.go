package httpapi

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// domainErrors are the domain's errors and the codes that they are answered
// with.
var domainErrors = map[string]struct {
	err  error
	code string
}{
	"accounts.ErrNotFound":                {accounts.ErrNotFound, "not-found"},
	"accounts.ErrExists":                  {accounts.ErrExists, "account-exists"},
	"accounts.ErrClosed":                  {accounts.ErrClosed, "account-closed"},
	"accounts.ErrNotEmpty":                {accounts.ErrNotEmpty, "account-not-empty"},
	"accounts.ErrExternal":                {accounts.ErrExternal, "external-account"},
	"idempotency.ErrKeyReused":            {idempotency.ErrKeyReused, "idempotency-key-reused"},
	"payment.ErrNotFound":                 {payment.ErrNotFound, "not-found"},
	"retry.ErrCommitUnknown":              {retry.ErrCommitUnknown, "outcome-unknown"},
	"retry.ErrUnavailable":                {retry.ErrUnavailable, "unavailable"},
	"retry.ErrLockUnavailable":            {retry.ErrLockUnavailable, "lock-unavailable"},
	"retry.ErrConflict":                   {retry.ErrConflict, "contention"},
	"transfer.ErrSameAccount":             {transfer.ErrSameAccount, "same-account"},
	"transfer.ErrOverloaded":              {transfer.ErrOverloaded, "overloaded"},
	"transfer.ErrNotFound":                {transfer.ErrNotFound, "not-found"},
	"transfer.ErrPositionExpired":         {transfer.ErrPositionExpired, "cursor-expired"},
	"transfer.ErrAccountNotFound":         {transfer.ErrAccountNotFound, "account-not-found"},
	"transfer.ErrCurrencyMismatch":        {transfer.ErrCurrencyMismatch, "currency-mismatch"},
	"transfer.ErrAccountFrozen":           {transfer.ErrAccountFrozen, "account-frozen"},
	"transfer.ErrAccountClosed":           {transfer.ErrAccountClosed, "account-closed"},
	"transfer.ErrInsufficientFunds":       {transfer.ErrInsufficientFunds, "insufficient-funds"},
	"transfer.ErrHoldNotFound":            {transfer.ErrHoldNotFound, "not-found"},
	"transfer.ErrDebitsBlocked":           {transfer.ErrDebitsBlocked, "debits-blocked"},
	"transfer.ErrCreditsBlocked":          {transfer.ErrCreditsBlocked, "credits-blocked"},
	"transfer.ErrReferenceUsed":           {transfer.ErrReferenceUsed, "reference-used"},
	"transfer.ErrVersionMismatch":         {transfer.ErrVersionMismatch, "version-mismatch"},
	"transfer.ErrMaxBalanceExceeded":      {transfer.ErrMaxBalanceExceeded, "max-balance-exceeded"},
	"transfer.ErrHoldStatus":              {transfer.ErrHoldStatus, "hold-status"},
	"transfer.ErrCaptureExceedsHold":      {transfer.ErrCaptureExceedsHold, "capture-exceeds-hold"},
	"transfer.ErrReversalExceedsTransfer": {transfer.ErrReversalExceedsTransfer, "reversal-exceeds-transfer"},
	"transfer.ErrReversalOfReversal":      {transfer.ErrReversalOfReversal, "reversal-of-reversal"},
	"transfer.ErrLimitExceeded":           {transfer.ErrLimitExceeded, "limit-exceeded"},
}

func TestEveryDomainErrorHasALine(t *testing.T) {
	found := 0
	for _, dir := range []string{"accounts", "idempotency", "invalid", "money", "payment", "retry", "transfer"} {
		for _, name := range errorVariables(t, "../"+dir) {
			found++
			known, ok := domainErrors[dir+"."+name]
			if !ok {
				t.Errorf("%s.%s is not in this test: give it a line in the table of problem.go, and here", dir, name)
				continue
			}
			wrapped := fmt.Errorf("do something: %w", known.err)
			if got := kindOf(wrapped).code; got != known.code {
				t.Errorf("%s.%s is answered with %s, want %s", dir, name, got, known.code)
			}
		}
	}
	if found != len(domainErrors) {
		t.Errorf("found %d errors in the domain's source, and know %d", found, len(domainErrors))
	}
}

// errorVariables returns the exported Err* variables of the package in dir.
func errorVariables(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(dir + "/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			variables, ok := decl.(*ast.GenDecl)
			if !ok || variables.Tok != token.VAR {
				continue
			}
			for _, spec := range variables.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					if strings.HasPrefix(name.Name, "Err") {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

func TestTheFirstLineCounts(t *testing.T) {
	tests := []struct {
		err       error
		code      string
		retryable bool
	}{
		{&retry.ExhaustedError{Attempts: 20, Last: errors.New("ERROR: could not serialize (SQLSTATE 40001)")}, "contention", true},
		{&retry.ExhaustedError{Attempts: 1, Last: retry.ErrConflict}, "contention", true},
		{fmt.Errorf("%w: %w", retry.ErrUnavailable, retry.ErrConflict), "unavailable", true},
		{fmt.Errorf("%w: %w", retry.ErrCommitUnknown, retry.ErrUnavailable), "outcome-unknown", true},
		{fmt.Errorf("%w: %w", retry.ErrCommitUnknown, &retry.ExhaustedError{Last: retry.ErrConflict}), "outcome-unknown", true},
		{&invalid.Error{}, "invalid-request", false},
		{&payment.StatusError{Status: payment.Processing, Change: "cancel"}, "payment-status", false},
		{errors.New("ERROR: relation \"accounts\" does not exist (SQLSTATE 42P01)"), "internal", false},
	}
	for _, tt := range tests {
		p := describe(tt.err, "0199d5f0-9c01-7f6e-a1b2-c3d4e5f60718")
		if p.Code != tt.code || p.Retryable != tt.retryable {
			t.Errorf("%v is answered with %s, retryable %t; want %s, %t", tt.err, p.Code, p.Retryable, tt.code, tt.retryable)
		}
		if strings.Contains(p.Detail, "SQLSTATE") {
			t.Errorf("%v: the database's text is sent: %s", tt.err, p.Detail)
		}
	}
}

// Every line says something, and nothing is sent that the table does not say
// or a refusal or a fault does not bring.
func TestTheTableIsComplete(t *testing.T) {
	tells := []string{"invalid-request", "payment-status", "balance-out-of-limits", "reference-used", "version-mismatch", "hold-status"}
	for _, k := range kinds {
		bringsItsOwn := slices.Contains(tells, k.code) || k.status == http.StatusUnprocessableEntity
		if k.title == "" || k.detail == "" && !bringsItsOwn {
			t.Errorf("%s has no title or detail", k.code)
		}
		if k.retryable != (k.status == 503 || k.status == 408 || k.code == "lock-unavailable") {
			t.Errorf("%s: retryable is %t with status %d", k.code, k.retryable, k.status)
		}
	}
}

func TestTextOfCallersIsClippedAndClean(t *testing.T) {
	long := strings.Repeat("ключ", 100)
	for _, s := range []string{long, "a\xffb", "", strings.Repeat("x", 200)} {
		got := clip(s)
		if len(got) > 203 || strings.Contains(got, "\xff") {
			t.Errorf("clip(%q) = %q", s, got)
		}
	}
	w := do(bare(nil), "GET", "/v1/accounts?%ff"+strings.Repeat("x", 5000)+"=1", "")
	if w.Code != 400 || w.Body.Len() > 2000 {
		t.Errorf("got %d with %d bytes, want 400 with few", w.Code, w.Body.Len())
	}
}

func TestAPanicIsAnswered500AndLoggedOnce(t *testing.T) {
	var log strings.Builder
	var seen []Observation
	h := bare(func(c *Config) {
		c.Logger = slog.New(slog.NewJSONHandler(&log, nil))
		c.Observe = func(o Observation) { seen = append(seen, o) }
	})
	// There are no accounts behind this handler.
	w := do(h, "GET", "/v1/accounts/0199d5f0-4b7c-7c1e-9d8a-1f2e3d4c5b6a", "")
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"code":"internal"`) || strings.Contains(w.Body.String(), "nil pointer") {
		t.Errorf("got %d %s, want 500 internal without the panic's text", w.Code, w.Body)
	}
	if got := strings.Count(log.String(), "nil pointer"); got != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("the panic is in the log %d times, want once, in one line:\n%s", got, log.String())
	}
	want := Observation{Method: "GET", Route: "/v1/accounts/{id}", Status: 500, Code: "internal"}
	if len(seen) != 1 {
		t.Fatalf("observed %v, want one", seen)
	}
	if seen[0].Duration = 0; seen[0] != want {
		t.Errorf("observed %+v, want %+v", seen[0], want)
	}
}

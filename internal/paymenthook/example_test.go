package paymenthook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/paymenthook"
)

// decide allows payments of less than 10,000.
func decide(secret string) (http.HandlerFunc, error) {
	webhook, err := standardwebhooks.NewWebhook(secret) // whsec_...
	if err != nil {
		return nil, err
	}
	limit := decimal.NewFromInt(10_000)
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil || webhook.Verify(body, r.Header) != nil {
			http.Error(w, "this is not from our ledger", http.StatusUnauthorized)
			return
		}
		var question struct {
			Type string
			Data struct {
				ID     string
				Amount decimal.Decimal
			}
		}
		if err := json.Unmarshal(body, &question); err != nil || question.Type != "payment.due" {
			http.Error(w, "this is no question about a payment", http.StatusBadRequest)
			return
		}
		answer := map[string]any{"decision": "allow"}
		if question.Data.Amount.GreaterThanOrEqual(limit) {
			answer = map[string]any{"decision": "deny", "reason": "10,000 or more is paid by hand"}
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(answer)
	}, nil
}

func Example() {
	handler, err := decide(newSecret)
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()

	hook, err := paymenthook.New(paymenthook.Config{URL: server.URL, Secrets: []string{newSecret}, Timeout: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	p := due()
	for _, amount := range []string{"9999.99", "10000"} {
		p.Amount = decimal.RequireFromString(amount)
		decision, err := hook.Ask(context.Background(), p)
		fmt.Println(decision.Verdict == payment.Allow, decision.Reason, err)
	}
	// Output:
	// true  <nil>
	// false 10,000 or more is paid by hand <nil>
}

func TestDocsShowTheExample(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/payment-hook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(docs), "```go\n")
	example, _, _ = strings.Cut(example, "```")
	if !found || !strings.Contains(string(source), example) {
		t.Error("docs/payment-hook.md has another example than example_test.go")
	}
}

package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// policy is that of the tests: as in production, with shorter waits.
var policy = retry.Policy{
	Attempts: 10, MinPause: time.Millisecond, MaxPause: 20 * time.Millisecond,
	StatementTimeout: 5 * time.Second, LockTimeout: 300 * time.Millisecond, IdleTimeout: 10 * time.Second,
}

// configOn is a whole ledger on db, in the default mode.
func configOn(db *testdb.DB) Config {
	return Config{
		Accounts:  accounts.New(db, policy),
		Transfers: transfer.New(db, transfer.Pessimistic, transfer.Locking{}, policy),
		Payments:  payment.New(db, policy, nil),
		Ready:     func(ctx context.Context) error { return idempotency.Probe(ctx, db, policy) },
	}
}

// serve serves c over HTTP until t ends, and returns the base URL.
func serve(t testing.TB, c Config) string {
	t.Helper()
	server := httptest.NewServer(New(c))
	t.Cleanup(server.Close)
	return server.URL
}

// bare is a handler without a database, for what must not need one.
func bare(change func(*Config)) http.Handler {
	c := Config{}
	if change != nil {
		change(&c)
	}
	return New(c)
}

// do sends a request to h and returns its answer.
func do(h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body == "" {
		r.Body = http.NoBody
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// tokenFile writes a token file with one token for each name, and returns the
// tokens by name.
func tokenFile(t testing.TB, names ...string) (path string, tokens map[string]string) {
	t.Helper()
	path, tokens = filepath.Join(t.TempDir(), "tokens"), map[string]string{}
	var lines []string
	for _, name := range names {
		token, line, err := NewToken(name)
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = token
		lines = append(lines, line)
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, tokens
}

package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/verify"
)

// An Answer is what a call came to: a status, or the error that there was none.
type Answer struct {
	Status int
	Body   struct {
		ID        string
		Code      string
		Retryable bool
		Results   []struct { // of a batch
			Status   string
			Transfer struct{ ID string }
		}
	}
	Err error
}

// Final reports whether a repetition could say nothing else.
func (a Answer) Final() bool { return a.Err == nil && a.Status < 500 && !a.Body.Retryable }

func (a Answer) String() string {
	if a.Err != nil {
		return a.Err.Error()
	}
	return fmt.Sprintf("%d %s", a.Status, a.Body.Code)
}

// Post sends body as JSON, under a key.
func Post(client *http.Client, url, key string, body any) (a Answer) {
	text, err := json.Marshal(body)
	if err != nil {
		return Answer{Err: err}
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return Answer{Err: err}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response, err := client.Do(request)
	if err != nil {
		return Answer{Err: err}
	}
	defer response.Body.Close()
	a.Status = response.StatusCode
	text, err = io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &a.Body)
	}
	a.Err = err
	return a
}

// A Load is many callers who move money among a few accounts and insist: a
// call that has no final answer is made again, under the same key.
type Load struct {
	accounts []string
	credits  []string
	route    func() string // the root of the service to call now
	client   *http.Client

	stopped  atomic.Bool
	callers  sync.WaitGroup
	mu       sync.Mutex
	made     map[string]string // acknowledged transfers, by key
	refused  int
	Passing  map[string]int // answers that were not final, counted
	Answered map[string]int // answers of each service, final or not
	hopeless []string       // keys without a final answer in the end
}

// insistence is how long a caller goes on about one key.
const insistence = 30 * time.Second

// StartLoad opens accounts through the first service that route names, and
// starts the callers.
func StartLoad(t *testing.T, callers int, route func() string) *Load {
	t.Helper()
	l := &Load{
		route: route, made: map[string]string{}, Passing: map[string]int{}, Answered: map[string]int{},
		client: &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: callers}},
	}
	t.Cleanup(l.client.CloseIdleConnections)
	for range 6 {
		account := Post(l.client, route()+"/v1/accounts", uuid.NewString(), map[string]string{"currency": "EUR"})
		credit := Post(l.client, route()+"/v1/credits", uuid.NewString(),
			map[string]string{"account_id": account.Body.ID, "amount": "1000.00", "currency": "EUR"})
		if account.Status != 201 || credit.Status != 201 {
			t.Fatalf("open an account: %v; credit it: %v", account, credit)
		}
		l.accounts = append(l.accounts, account.Body.ID)
		l.credits = append(l.credits, credit.Body.ID)
	}
	for range callers {
		l.callers.Go(func() {
			for !l.stopped.Load() {
				l.move()
			}
		})
	}
	t.Cleanup(l.End)
	return l
}

// move makes one transfer, whatever it takes.
func (l *Load) move() {
	from, to := rand.IntN(len(l.accounts)), rand.IntN(len(l.accounts)-1)
	if to >= from {
		to++
	}
	key := uuid.NewString()
	body := map[string]string{
		"debit_account_id": l.accounts[from], "credit_account_id": l.accounts[to],
		"amount": fmt.Sprintf("%d.%02d", 1+rand.IntN(20), rand.IntN(100)), "currency": "EUR",
	}
	for end := time.Now().Add(insistence); ; time.Sleep(20 * time.Millisecond) {
		service := l.route()
		a := Post(l.client, service+"/v1/transfers", key, body)
		l.mu.Lock()
		if a.Err == nil {
			l.Answered[service]++
		}
		switch {
		case a.Final() && a.Status == 201:
			l.made[key] = a.Body.ID
		case a.Final() && a.Status == 422:
			l.refused++
		case a.Final() || time.Now().After(end):
			l.hopeless = append(l.hopeless, fmt.Sprintf("%s: %v", key, a))
		default:
			l.Passing[a.String()]++
			l.mu.Unlock()
			continue
		}
		l.mu.Unlock()
		return
	}
}

// Moved is how many transfers were acknowledged until now.
func (l *Load) Moved() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.made)
}

// WaitForMore waits until n more transfers were acknowledged.
func (l *Load) WaitForMore(t *testing.T, n int, within time.Duration) {
	t.Helper()
	want := l.Moved() + n
	for deadline := time.Now().Add(within); l.Moved() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %d more transfers within %v; what came instead: %v", n, within, l.Passing)
		}
	}
}

// WaitPassing waits until some caller was told that it must try again.
func (l *Load) WaitPassing(t *testing.T, within time.Duration) {
	t.Helper()
	noticed := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.Passing) > 0
	}
	for deadline := time.Now().Add(within); !noticed(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no caller noticed anything within %v: this test shows nothing", within)
		}
	}
}

// End stops the callers, each when it has its answer.
func (l *Load) End() {
	l.stopped.Store(true)
	l.callers.Wait()
}

// Check fails the test unless every caller got an answer, what was acknowledged
// is there, and no cent is lost.
func (l *Load) Check(t *testing.T, database string) Tally {
	t.Helper()
	t.Logf("%d transfers, %d refusals, passing answers: %v", len(l.made), l.refused, l.Passing)
	if len(l.hopeless) > 0 {
		t.Errorf("%d keys never had a final answer, such as %s", len(l.hopeless), l.hopeless[0])
	}
	db, err := postgres.Open(t.Context(), postgres.Config{URL: database, PoolSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	report, err := verify.Ledger(context.Background(), db, retry.Policy{Attempts: 3})
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	if !report.Clean() {
		var text strings.Builder
		report.WriteText(&text)
		t.Errorf("the ledger is damaged:\n%s", text.String())
	}
	return tally(t, database, "transfers", append(slices.Collect(maps.Values(l.made)), l.credits...))
}

// A Tally is what became of what was acknowledged.
type Tally struct{ Acknowledged, Lost, Doubled int }

// tally compares what was acknowledged, by its ids, with what a table has. It
// fails the test unless each is there, and nothing else.
func tally(t *testing.T, database, table string, acknowledged []string) Tally {
	t.Helper()
	if len(acknowledged) == 0 {
		t.Fatalf("no %s were acknowledged: this test shows nothing", table)
	}
	stored := Ask[int](t, database, "SELECT count(*)::int FROM "+table)
	found := Ask[int](t, database, "SELECT count(*)::int FROM "+table+" WHERE id IN ('"+strings.Join(acknowledged, "','")+"')")
	result := Tally{Acknowledged: len(acknowledged), Lost: len(acknowledged) - found, Doubled: stored - found}
	if result.Lost > 0 || result.Doubled > 0 {
		t.Errorf("%s: %d were acknowledged, %d of them are lost, and %d are there that nobody was told of", table, result.Acknowledged, result.Lost, result.Doubled)
	}
	return result
}

// WantPassing fails the test if callers were told something for a while that
// begins with none of these.
func (l *Load) WantPassing(t *testing.T, prefixes ...string) {
	t.Helper()
	for text, n := range l.Passing {
		if !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) }) {
			t.Errorf("callers were told %q %d times, want %v", text, n, prefixes)
		}
	}
}

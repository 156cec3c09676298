package operations_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

// An answer is what a call came to: a status, or the error that there was none.
type answer struct {
	status int
	body   struct {
		ID        string
		Code      string
		Retryable bool
		Results   []struct{ Status string } // of a batch
	}
	err error
}

// final reports whether a repetition could say nothing else.
func (a answer) final() bool { return a.err == nil && a.status < 500 && !a.body.Retryable }

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d %s", a.status, a.body.Code)
}

func post(client *http.Client, url, key string, body any) (a answer) {
	text, err := json.Marshal(body)
	if err != nil {
		return answer{err: err}
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return answer{err: err}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response, err := client.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	a.status = response.StatusCode
	text, err = io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &a.body)
	}
	a.err = err
	return a
}

// A load is many callers who move money among a few accounts and insist: a
// call that has no final answer is made again, under the same key.
type load struct {
	accounts []string
	route    func() string // the root of the service to call now
	client   *http.Client

	stopped  atomic.Bool
	callers  sync.WaitGroup
	mu       sync.Mutex
	made     map[string]string // acknowledged transfers, by key
	refused  int
	passing  map[string]int // answers that were not final, counted
	answered map[string]int // answers of each service, final or not
	hopeless []string       // keys without a final answer in the end
}

// insistence is how long a caller goes on about one key.
const insistence = 30 * time.Second

// startLoad opens accounts through the first service that route names, and
// starts the callers.
func startLoad(t *testing.T, callers int, route func() string) *load {
	t.Helper()
	l := &load{
		route: route, made: map[string]string{}, passing: map[string]int{}, answered: map[string]int{},
		client: &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: callers}},
	}
	t.Cleanup(l.client.CloseIdleConnections)
	for range 6 {
		account := post(l.client, route()+"/v1/accounts", uuid.NewString(), map[string]string{"currency": "EUR"})
		credit := post(l.client, route()+"/v1/credits", uuid.NewString(),
			map[string]string{"account_id": account.body.ID, "amount": "1000.00", "currency": "EUR"})
		if account.status != 201 || credit.status != 201 {
			t.Fatalf("open an account: %v; credit it: %v", account, credit)
		}
		l.accounts = append(l.accounts, account.body.ID)
	}
	for range callers {
		l.callers.Go(func() {
			for !l.stopped.Load() {
				l.move()
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

// move makes one transfer, whatever it takes.
func (l *load) move() {
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
		a := post(l.client, service+"/v1/transfers", key, body)
		l.mu.Lock()
		if a.err == nil {
			l.answered[service]++
		}
		switch {
		case a.final() && a.status == 201:
			l.made[key] = a.body.ID
		case a.final() && a.status == 422:
			l.refused++
		case a.final() || time.Now().After(end):
			l.hopeless = append(l.hopeless, fmt.Sprintf("%s: %v", key, a))
		default:
			l.passing[a.String()]++
			l.mu.Unlock()
			continue
		}
		l.mu.Unlock()
		return
	}
}

// moved is how many transfers were acknowledged until now.
func (l *load) moved() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.made)
}

// waitForMore waits until n more transfers were acknowledged.
func (l *load) waitForMore(t *testing.T, n int, within time.Duration) {
	t.Helper()
	want := l.moved() + n
	for deadline := time.Now().Add(within); l.moved() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %d more transfers within %v; what came instead: %v", n, within, l.passing)
		}
	}
}

// waitPassing waits until some caller was told that it must try again.
func (l *load) waitPassing(t *testing.T, within time.Duration) {
	t.Helper()
	noticed := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.passing) > 0
	}
	for deadline := time.Now().Add(within); !noticed(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no caller noticed anything within %v: this test shows nothing", within)
		}
	}
}

// end stops the callers, each when it has its answer.
func (l *load) end() {
	l.stopped.Store(true)
	l.callers.Wait()
}

// check fails the test unless every caller got an answer, what was acknowledged
// is there, and no cent is lost.
func (l *load) check(t *testing.T, database string) {
	t.Helper()
	t.Logf("%d transfers, %d refusals, passing answers: %v", len(l.made), l.refused, l.passing)
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
	stored := ask[int](t, database, "SELECT count(*)::int FROM transfers WHERE kind = 'transfer'")
	if stored != len(l.made) {
		t.Errorf("%d transfers are stored, %d were acknowledged: each key is one", stored, len(l.made))
	}
	if len(l.made) == 0 {
		t.Fatal("no transfer was acknowledged: this test shows nothing")
	}
	var ids []string
	for _, id := range l.made {
		ids = append(ids, "'"+id+"'")
	}
	if found := ask[int](t, database, "SELECT count(*)::int FROM transfers WHERE id IN ("+strings.Join(ids, ",")+")"); found != len(ids) {
		t.Errorf("%d of %d acknowledged transfers are there", found, len(ids))
	}
}

// wantPassing fails the test if callers were told something for a while that
// begins with none of these.
func (l *load) wantPassing(t *testing.T, prefixes ...string) {
	t.Helper()
	for text, n := range l.passing {
		if !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) }) {
			t.Errorf("callers were told %q %d times, want %v", text, n, prefixes)
		}
	}
}

package operations_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
)

// A mixedLoad does all that moves or reserves money, and insists: a call without
// a final answer is made again, under the same key.
type mixedLoad struct {
	client   *http.Client
	route    atomic.Pointer[string]
	accounts []string
	callers  sync.WaitGroup
	stopped  atomic.Bool

	mu        sync.Mutex
	holds     []string
	transfers []string
	made      int            // transfers that were acknowledged, members of batches included
	reserved  int            // holds that were
	answers   map[string]int // final ones, by route and code
	passing   int            // answers that were not final
	hopeless  []string
}

// body is that of a request.
type body map[string]any

func (l *mixedLoad) money() string { return fmt.Sprintf("%d.%02d", 1+rand.IntN(30), rand.IntN(100)) }

func (l *mixedLoad) transfer() body {
	from, to := rand.IntN(len(l.accounts)), rand.IntN(len(l.accounts)-1)
	if to >= from {
		to++
	}
	b := body{"debit_account_id": l.accounts[from], "credit_account_id": l.accounts[to], "amount": l.money(), "currency": "EUR"}
	if rand.IntN(3) == 0 {
		b["reference"] = fmt.Sprint("r", rand.IntN(1000)) // of which some are used already
	}
	return b
}

// one returns a random one of what calls before have made.
func (l *mixedLoad) one(of *[]string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(*of) == 0 {
		return uuid.NewString()
	}
	return (*of)[rand.IntN(len(*of))]
}

// request chooses what to ask for.
func (l *mixedLoad) request() (path string, b body) {
	switch rand.IntN(10) {
	case 0:
		return "/v1/credits", body{"account_id": l.accounts[rand.IntN(len(l.accounts))], "amount": l.money(), "currency": "EUR"}
	case 1:
		return "/v1/debits", body{"account_id": l.accounts[rand.IntN(len(l.accounts))], "amount": l.money(), "currency": "EUR"}
	case 2, 3:
		b := l.transfer()
		delete(b, "reference")
		b["expires_at"] = time.Now().Add(time.Duration(rand.IntN(4000)) * time.Millisecond).UTC().Format(time.RFC3339Nano)
		return "/v1/holds", b
	case 4, 5:
		return "/v1/holds/" + l.one(&l.holds) + "/capture", body{"amount": l.money(), "final": rand.IntN(3) == 0}
	case 6:
		return "/v1/transfers/" + l.one(&l.transfers) + "/reverse", body{"amount": l.money()}
	case 7:
		members := make([]body, 1+rand.IntN(8))
		for i := range members {
			members[i] = l.transfer()
		}
		return "/v1/transfers/batch", body{"atomic": rand.IntN(2) == 0, "transfers": members}
	}
	return "/v1/transfers", l.transfer()
}

// call makes one call until it has its answer.
func (l *mixedLoad) call() {
	key := uuid.NewString()
	path, b := l.request()
	for end := time.Now().Add(insistence); ; time.Sleep(20 * time.Millisecond) {
		a := post(l.client, *l.route.Load()+path, key, b)
		if a.final() || time.Now().After(end) {
			l.note(path, a)
			return
		}
		l.mu.Lock()
		l.passing++
		l.mu.Unlock()
	}
}

func (l *mixedLoad) note(path string, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !a.final() || a.status == 400 {
		l.hopeless = append(l.hopeless, fmt.Sprintf("%s: %v", path, a))
		return
	}
	parts := strings.Split(path, "/")
	l.answers[parts[len(parts)-1]+" "+a.String()]++
	switch {
	case a.status != 201:
	case path == "/v1/holds":
		l.reserved++
		l.holds = append(l.holds, a.body.ID)
	case path == "/v1/transfers/batch":
		for _, r := range a.body.Results {
			if r.Status == "made" {
				l.made++
			}
		}
	default:
		l.made++
		l.transfers = append(l.transfers, a.body.ID)
	}
}

// void ends a hold now and then, which needs no key.
func (l *mixedLoad) void() {
	request, err := http.NewRequest(http.MethodPost, *l.route.Load()+"/v1/holds/"+l.one(&l.holds)+"/void", nil)
	if err != nil {
		panic(err)
	}
	if response, err := l.client.Do(request); err == nil { // otherwise the service was killed
		response.Body.Close()
	}
}

// acknowledged waits until n more transfers are.
func (l *mixedLoad) acknowledged(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.made
	}
	want := count() + n
	for deadline := time.Now().Add(2 * time.Minute); count() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %d more transfers in two minutes; %d answers were not final", n, l.passing)
		}
	}
}

// kill -9 under all kinds of calls, in every safe mode: what was acknowledged is
// there, nothing is there twice, and the ledger is sound.
func testMixedLoadKilled(t *testing.T) {
	database := testdb.URL(t)
	l := &mixedLoad{
		client:  &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 12}},
		answers: map[string]int{},
	}
	t.Cleanup(l.client.CloseIdleConnections)
	t.Cleanup(func() { l.stopped.Store(true); l.callers.Wait() })
	begun := false
	for _, mode := range transfer.Modes() {
		if mode.LosesMoney {
			continue
		}
		for range 2 {
			p := serve(t, database, "--mode", mode.Name)
			l.route.Store(&p.url)
			if !begun {
				begun = true
				l.begin(t)
			}
			l.acknowledged(t, 60+rand.IntN(60))
			p.kill(t)
		}
	}
	p := serve(t, database)
	l.route.Store(&p.url)
	l.acknowledged(t, 50)
	l.waitForAll(t)
	l.stopped.Store(true)
	l.callers.Wait()
	l.check(t, database)
}

// begin opens accounts and starts the callers.
func (l *mixedLoad) begin(t *testing.T) {
	for range 6 {
		account := post(l.client, *l.route.Load()+"/v1/accounts", uuid.NewString(), body{"currency": "EUR"})
		credit := post(l.client, *l.route.Load()+"/v1/credits", uuid.NewString(), body{"account_id": account.body.ID, "amount": "300.00", "currency": "EUR"})
		if account.status != 201 || credit.status != 201 {
			t.Fatalf("open an account: %v; credit it: %v", account, credit)
		}
		l.accounts = append(l.accounts, account.body.ID)
		l.made++
	}
	for range 12 {
		l.callers.Go(func() {
			for !l.stopped.Load() {
				l.call()
				if rand.IntN(20) == 0 {
					l.void()
				}
			}
		})
	}
}

// waitForAll waits until every kind of call was acknowledged.
func (l *mixedLoad) waitForAll(t *testing.T) {
	t.Helper()
	missing := func() (none []string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, want := range []string{
			"transfers 201 ", "credits 201 ", "debits 201 ", "holds 201 ", "capture 201 ", "reverse 201 ", "batch 201 ", "transfers 409 reference-used",
		} {
			if l.answers[want] == 0 {
				none = append(none, want)
			}
		}
		return none
	}
	for deadline := time.Now().Add(2 * time.Minute); len(missing()) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no call ended as one of %q in two minutes", missing())
		}
	}
}

func (l *mixedLoad) check(t *testing.T, database string) {
	t.Helper()
	t.Logf("%d transfers, %d holds; answers: %v; %d passing", l.made, l.reserved, l.answers, l.passing)
	if len(l.hopeless) > 0 {
		t.Errorf("%d calls never had a final answer, or were invalid, such as %s", len(l.hopeless), l.hopeless[0])
	}
	if stored := ask[int](t, database, "SELECT count(*)::int FROM transfers"); stored != l.made {
		t.Errorf("%d transfers are stored, %d were acknowledged: each is one", stored, l.made)
	}
	if stored := ask[int](t, database, "SELECT count(*)::int FROM holds"); stored != l.reserved {
		t.Errorf("%d holds are stored, %d were acknowledged: each is one", stored, l.reserved)
	}
	wantVerified(t, database)
}

package harness

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
)

// A MixedLoad does all that moves or reserves money, and insists: a call without
// a final answer is made again, under the same key.
type MixedLoad struct {
	client   *http.Client
	route    atomic.Pointer[string]
	accounts []string
	callers  sync.WaitGroup
	stopped  atomic.Bool

	mu        sync.Mutex
	holds     []string       // that were acknowledged
	transfers []string       // the same, members of batches included
	answers   map[string]int // final ones, by route and code
	passing   int            // answers that were not final
	hopeless  []string
}

// Body is that of a request.
type Body map[string]any

// StartMixedLoad opens accounts through the service at url, and starts the
// callers.
func StartMixedLoad(t *testing.T, callers int, url string) *MixedLoad {
	t.Helper()
	l := &MixedLoad{
		client:  &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: callers}},
		answers: map[string]int{},
	}
	l.LeadTo(url)
	t.Cleanup(l.client.CloseIdleConnections)
	for range 6 {
		account := Post(l.client, url+"/v1/accounts", uuid.NewString(), Body{"currency": "EUR"})
		credit := Post(l.client, url+"/v1/credits", uuid.NewString(), Body{"account_id": account.Body.ID, "amount": "300.00", "currency": "EUR"})
		if account.Status != 201 || credit.Status != 201 {
			t.Fatalf("open an account: %v; credit it: %v", account, credit)
		}
		l.accounts = append(l.accounts, account.Body.ID)
		l.transfers = append(l.transfers, credit.Body.ID)
	}
	for range callers {
		l.callers.Go(func() {
			for !l.stopped.Load() {
				l.call()
				if rand.IntN(20) == 0 {
					l.void()
				}
			}
		})
	}
	t.Cleanup(l.End)
	return l
}

// LeadTo sends all further calls to the service at url.
func (l *MixedLoad) LeadTo(url string) { l.route.Store(&url) }

func (l *MixedLoad) money() string { return fmt.Sprintf("%d.%02d", 1+rand.IntN(30), rand.IntN(100)) }

func (l *MixedLoad) transfer() Body {
	from, to := rand.IntN(len(l.accounts)), rand.IntN(len(l.accounts)-1)
	if to >= from {
		to++
	}
	b := Body{"debit_account_id": l.accounts[from], "credit_account_id": l.accounts[to], "amount": l.money(), "currency": "EUR"}
	if rand.IntN(3) == 0 {
		b["reference"] = fmt.Sprint("r", rand.IntN(1000)) // of which some are used already
	}
	return b
}

// one returns a random one of what calls before have made.
func (l *MixedLoad) one(of *[]string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(*of) == 0 {
		return uuid.NewString()
	}
	return (*of)[rand.IntN(len(*of))]
}

// request chooses what to ask for.
func (l *MixedLoad) request() (path string, b Body) {
	switch rand.IntN(10) {
	case 0:
		return "/v1/credits", Body{"account_id": l.accounts[rand.IntN(len(l.accounts))], "amount": l.money(), "currency": "EUR"}
	case 1:
		return "/v1/debits", Body{"account_id": l.accounts[rand.IntN(len(l.accounts))], "amount": l.money(), "currency": "EUR"}
	case 2, 3:
		b := l.transfer()
		delete(b, "reference")
		b["expires_at"] = time.Now().Add(time.Duration(rand.IntN(4000)) * time.Millisecond).UTC().Format(time.RFC3339Nano)
		return "/v1/holds", b
	case 4, 5:
		return "/v1/holds/" + l.one(&l.holds) + "/capture", Body{"amount": l.money(), "final": rand.IntN(3) == 0}
	case 6:
		return "/v1/transfers/" + l.one(&l.transfers) + "/reverse", Body{"amount": l.money()}
	case 7:
		members := make([]Body, 1+rand.IntN(8))
		for i := range members {
			members[i] = l.transfer()
		}
		return "/v1/transfers/batch", Body{"atomic": rand.IntN(2) == 0, "transfers": members}
	}
	return "/v1/transfers", l.transfer()
}

// call makes one call until it has its answer.
func (l *MixedLoad) call() {
	key := uuid.NewString()
	path, b := l.request()
	for end := time.Now().Add(insistence); ; time.Sleep(20 * time.Millisecond) {
		a := Post(l.client, *l.route.Load()+path, key, b)
		if a.Final() || time.Now().After(end) {
			l.note(path, a)
			return
		}
		l.mu.Lock()
		l.passing++
		l.mu.Unlock()
	}
}

func (l *MixedLoad) note(path string, a Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !a.Final() || a.Status == 400 {
		l.hopeless = append(l.hopeless, fmt.Sprintf("%s: %v", path, a))
		return
	}
	parts := strings.Split(path, "/")
	l.answers[parts[len(parts)-1]+" "+a.String()]++
	switch {
	case a.Status != 201:
	case path == "/v1/holds":
		l.holds = append(l.holds, a.Body.ID)
	case path == "/v1/transfers/batch":
		for _, r := range a.Body.Results {
			if r.Status == "made" {
				l.transfers = append(l.transfers, r.Transfer.ID)
			}
		}
	default:
		l.transfers = append(l.transfers, a.Body.ID)
	}
}

// void ends a hold now and then, which needs no key.
func (l *MixedLoad) void() {
	request, err := http.NewRequest(http.MethodPost, *l.route.Load()+"/v1/holds/"+l.one(&l.holds)+"/void", nil)
	if err != nil {
		panic(err)
	}
	if response, err := l.client.Do(request); err == nil { // otherwise the service was killed
		response.Body.Close()
	}
}

// WaitForMore waits until n more transfers are.
func (l *MixedLoad) WaitForMore(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.transfers)
	}
	want := count() + n
	for deadline := time.Now().Add(2 * time.Minute); count() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %d more transfers in two minutes; %d answers were not final", n, l.passing)
		}
	}
}

// WaitForAll waits until every kind of call was acknowledged.
func (l *MixedLoad) WaitForAll(t *testing.T) {
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

// End stops the callers, each when it has its answer.
func (l *MixedLoad) End() {
	l.stopped.Store(true)
	l.callers.Wait()
}

// Check fails the test unless every caller got an answer, and the database has
// what was acknowledged, once, and nothing else. The load must have ended.
func (l *MixedLoad) Check(t *testing.T, database string) Tally {
	t.Helper()
	t.Logf("%d transfers, %d holds; answers: %v; %d not final", len(l.transfers), len(l.holds), l.answers, l.passing)
	if len(l.hopeless) > 0 {
		t.Errorf("%d calls never had a final answer, or were invalid, such as %s", len(l.hopeless), l.hopeless[0])
	}
	transfers, holds := tally(t, database, "transfers", l.transfers), tally(t, database, "holds", l.holds)
	WantVerified(t, database)
	return Tally{transfers.Acknowledged + holds.Acknowledged, transfers.Lost + holds.Lost, transfers.Doubled + holds.Doubled}
}

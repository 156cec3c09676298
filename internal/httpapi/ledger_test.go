package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/client"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
)

// openFunded opens an account in USD with an amount in it.
func openFunded(t *testing.T, h http.Handler, amount string) (id string) {
	t.Helper()
	var account struct{ ID string }
	w := do(h, "POST", "/v1/accounts", `{"currency":"USD"}`, "Content-Type: application/json")
	if err := json.Unmarshal(w.Body.Bytes(), &account); err != nil || w.Code != 201 {
		t.Fatalf("open an account: %d %s", w.Code, w.Body)
	}
	body := fmt.Sprintf(`{"account_id":%q,"amount":%q,"currency":"USD"}`, account.ID, amount)
	if w := do(h, "POST", "/v1/credits", body, "Content-Type: application/json"); w.Code != 201 {
		t.Fatalf("credit: %d %s", w.Code, w.Body)
	}
	return account.ID
}

// One global flag of the decimal library, which any dependency may set, makes
// its JSON numbers. No amount of ours is written by it.
func TestAmountsAreStringsWhateverTheLibrarySays(t *testing.T) {
	h := New(configOn(testdb.New(t)))
	id := openFunded(t, h, "9007199254740993.01")
	body := fmt.Sprintf(`{"account_id":%q,"amount":"9999999999999999.00","currency":"USD"}`, id)
	later := fmt.Sprintf(`{"debit_account_id":%q,"credit_account_id":"0199d5f0-0000-7000-8000-000000000001","amount":"9007199254740993.01","currency":"USD"}`, id)
	ask := func() (answers []string) {
		answers = append(answers, do(h, "POST", "/v1/payments", later, "Content-Type: application/json", "Idempotency-Key: later").Body.String())
		for _, target := range []string{"/v1/accounts/" + id, "/v1/accounts/" + id + "/entries", "/v1/transfers", "/v1/payments"} {
			answers = append(answers, do(h, "GET", target, "").Body.String())
		}
		return append(answers, do(h, "POST", "/v1/debits", body, "Content-Type: application/json", "Idempotency-Key: k").Body.String())
	}
	want := ask()
	decimal.MarshalJSONWithoutQuotes = true
	defer func() { decimal.MarshalJSONWithoutQuotes = false }()
	for i, got := range ask() {
		if got != want[i] {
			t.Errorf("the flag changed\n%s to\n%s", want[i], got)
		}
		if !strings.Contains(got, `"9007199254740993.01"`) {
			t.Errorf("the exact balance is not in %s", got)
		}
	}
}

// Every item comes once, though many transfers share a page's border.
func TestPagesMissNothingAndRepeatNothing(t *testing.T) {
	h := New(configOn(testdb.New(t)))
	id := openFunded(t, h, "1.00")
	const more = 60
	var wg sync.WaitGroup
	for range more {
		wg.Go(func() {
			body := fmt.Sprintf(`{"account_id":%q,"amount":"1.00","currency":"USD"}`, id)
			if w := do(h, "POST", "/v1/credits", body, "Content-Type: application/json"); w.Code != 201 {
				t.Errorf("credit: %d %s", w.Code, w.Body)
			}
		})
	}
	wg.Wait()
	awaitFeed(t, h, more+1)
	for _, target := range []string{
		"/v1/transfers?order=desc",
		"/v1/transfers?order=asc&account_id=" + id, "/v1/transfers?account_id=" + id,
		"/v1/accounts/" + id + "/entries?order=asc", "/v1/accounts/" + id + "/entries?order=desc",
	} {
		seen := map[string]bool{}
		pages := 0
		for cursor := ""; pages == 0 || cursor != ""; pages++ {
			var page struct {
				Items      []map[string]any
				NextCursor *string `json:"next_cursor"`
			}
			w := do(h, "GET", target+"&limit=7"+cursor, "")
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != 200 || pages > more {
				t.Fatalf("GET %s, page %d: %d %s", target, pages, w.Code, w.Body)
			}
			for _, item := range page.Items {
				key := fmt.Sprint(item["id"], item["version"])
				if seen[key] {
					t.Errorf("GET %s: %s comes twice", target, key)
				}
				seen[key] = true
			}
			if cursor = ""; page.NextCursor != nil {
				cursor = "&cursor=" + *page.NextCursor
			}
		}
		if len(seen) != more+1 || pages != 9 {
			t.Errorf("GET %s: %d items on %d pages, want %d on 9", target, len(seen), pages, more+1)
		}
	}
}

// awaitFeed waits until the feed of all transfers has n of them: it holds back
// what a transaction that is under way, in any database of the server, could
// get in front of.
func awaitFeed(t *testing.T, h http.Handler, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		w := do(h, "GET", "/v1/transfers?order=asc&limit=100", "")
		got := strings.Count(w.Body.String(), `"kind"`)
		if got == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the feed has %d transfers, want %d", got, n)
		}
	}
}

// Callers who leave, at any moment, leave nothing behind: no connection that
// is taken, no transaction that is open.
func TestCallersWhoLeaveLeaveThePoolClean(t *testing.T) {
	db := testdb.New(t)
	config := configOn(db)
	url := serve(t, config)
	a, b := openFunded(t, New(config), "1000.00"), openFunded(t, New(config), "1000.00")
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(30))*time.Millisecond)
			defer cancel()
			body := fmt.Sprintf(`{"debit_account_id":%q,"credit_account_id":%q,"amount":"1.00","currency":"USD"}`, a, b)
			if i%2 == 0 {
				body = fmt.Sprintf(`{"debit_account_id":%q,"credit_account_id":%q,"amount":"1.00","currency":"USD"}`, b, a)
			}
			r, _ := http.NewRequestWithContext(ctx, "POST", url+"/v1/transfers", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			if response, err := http.DefaultClient.Do(r); err == nil {
				response.Body.Close()
			}
		})
	}
	wg.Wait()
	const openSQL = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`
	taken, open := int32(1), 0
	for deadline := time.Now().Add(10 * time.Second); taken+int32(open) > 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err := db.QueryRow(t.Context(), openSQL).Scan(&open); err != nil {
			t.Fatal(err)
		}
		taken = db.Stat().AcquiredConns()
	}
	if taken != 0 || open != 0 {
		t.Errorf("%d connections are taken and %d transactions open, want none", taken, open)
	}
	if got := db.Stat().NewConnsCount(); got > 17 {
		t.Errorf("the pool of 16 made %d connections: leaving callers cut them", got)
	}
	w := do(New(config), "GET", "/v1/accounts/"+a, "")
	if w.Code != 200 {
		t.Errorf("the ledger answers %d %s afterwards", w.Code, w.Body)
	}
}

// A lock that somebody else holds, and a pool with nothing to spare, are never
// a refusal, and are worth another try.
func TestWhatTheDatabaseCannotDoIsNoRefusal(t *testing.T) {
	db := testdb.New(t)
	h := New(configOn(db))
	a, b := openFunded(t, h, "10.00"), openFunded(t, h, "10.00")
	body := fmt.Sprintf(`{"debit_account_id":%q,"credit_account_id":%q,"amount":"1.00","currency":"USD"}`, a, b)
	send := func(want int, code string) {
		t.Helper()
		w := do(h, "POST", "/v1/transfers", body, "Content-Type: application/json", "Idempotency-Key: k")
		if w.Code != want || !strings.Contains(w.Body.String(), code) {
			t.Errorf("got %d %s, want %d with %s", w.Code, w.Body, want, code)
		}
		if got := w.Header().Get("Retry-After"); (got == "") != (want == 201) {
			t.Errorf("%d has Retry-After %q", want, got)
		}
	}
	tx, err := db.BeginTx(t.Context(), transfer.Pessimistic.TxOptions)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM accounts WHERE id = $1 FOR UPDATE", a); err != nil {
		t.Fatal(err)
	}
	send(409, `"code":"lock-unavailable"`)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.AcquireTimeout = 50 * time.Millisecond
	var conns []interface{ Release() }
	for range db.Stat().MaxConns() {
		conn, err := db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	send(503, `"code":"unavailable"`)
	for _, conn := range conns {
		conn.Release()
	}
	send(201, `"amount":"1.00"`)
}

// The generated client understands what it is answered.
func TestTheClient(t *testing.T) {
	ledger, err := client.NewClientWithResponses(serve(t, configOn(testdb.New(t))))
	if err != nil {
		t.Fatal(err)
	}
	opened, err := ledger.OpenAccountWithResponse(t.Context(), nil, client.NewAccount{Currency: "USD"})
	if err != nil || opened.JSON201 == nil {
		t.Fatalf("open: %v %s", err, opened.Body)
	}
	account := *opened.JSON201
	if account.Balance != "0.00" || account.MinBalance == nil || *account.MinBalance != "0.00" || account.CreatedAt.IsZero() {
		t.Errorf("opened %+v", account)
	}
	for _, replayed := range []bool{false, true} {
		answer, err := ledger.CreateCreditWithResponse(t.Context(), &client.CreateCreditParams{IdempotencyKey: new("k")},
			client.NewCredit{AccountID: account.ID, Amount: "5.00", Currency: "USD"})
		if err != nil || answer.JSON201 == nil {
			t.Fatalf("credit: %v %s", err, answer.Body)
		}
		if got := answer.HTTPResponse.Header.Get("Idempotent-Replayed"); (got == "true") != replayed {
			t.Errorf("Idempotent-Replayed is %q, want %t", got, replayed)
		}
	}
	refused, err := ledger.CreateDebitWithResponse(t.Context(), nil, client.NewDebit{AccountID: account.ID, Amount: "5.01", Currency: "USD"})
	if err != nil || refused.ApplicationProblemJSON422 == nil {
		t.Fatalf("debit: %v %s", err, refused.Body)
	}
	if p := refused.ApplicationProblemJSON422; p.Code != client.ProblemCodeInsufficientFunds || p.Available != "5.00" || p.AccountID != account.ID {
		t.Errorf("refused with %+v", p)
	}
	// A maximum is set, stays where it is left out, and is removed by null.
	for _, tt := range []struct {
		max  **string
		want *string
	}{{new(new("7.00")), new("7.00")}, {nil, new("7.00")}, {new((*string)(nil)), nil}} {
		limits := client.NewLimits{MinBalance: "-1.00", MaxBalance: tt.max}
		changed, err := ledger.SetAccountLimitsWithResponse(t.Context(), account.ID, limits)
		if err != nil || changed.JSON200 == nil || !cmp.Equal(changed.JSON200.MaxBalance, tt.want) {
			t.Errorf("limits: %v %s", err, changed.Body)
		}
	}
	changed, err := ledger.UpdateAccountWithResponse(t.Context(), account.ID, client.AccountUpdate{Metadata: &client.Metadata{}})
	if err != nil || changed.JSON200 == nil || changed.JSON200.Debits != client.DirectionAllowed {
		t.Errorf("update: %v %s", err, changed.Body)
	}
	labels := map[string]string{"order": "a&b=c [d] +é"}
	labelled, err := ledger.CreateCreditWithResponse(t.Context(), nil, client.NewCredit{AccountID: account.ID, Amount: "1.00", Currency: "USD", Metadata: labels})
	if err != nil || labelled.JSON201 == nil {
		t.Fatalf("credit: %v %s", err, labelled.Body)
	}
	found, err := ledger.ListTransfersWithResponse(t.Context(), &client.ListTransfersParams{Metadata: labels, CreatedTo: new(time.Now().Add(time.Hour))})
	if err != nil || found.JSON200 == nil || len(found.JSON200.Items) != 1 || found.JSON200.Items[0].ID != labelled.JSON201.ID {
		t.Errorf("found by metadata: %v %s", err, found.Body)
	}
	listed, err := ledger.ListEntriesWithResponse(t.Context(), account.ID, &client.ListEntriesParams{Limit: new(10)})
	if err != nil || listed.JSON200 == nil || len(listed.JSON200.Items) != 2 || listed.JSON200.NextCursor != "" {
		t.Errorf("entries: %v %s", err, listed.Body)
	}
}

package fault_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/tests/harness"
	"github.com/rowlock/ledger/tests/openapi"
)

// requestsOfARound are enough that most calls of the contract succeed.
const requestsOfARound = 1000

// generatedRequests sends requests that are made of the contract, one after the
// other. None is answered with 500 or in a way that the contract does not allow,
// and one that is refused has changed nothing.
func generatedRequests(t *testing.T) {
	var total harness.Tally
	succeeded, outcomes := map[string]int{}, map[string]int{}
	for round := range *rounds {
		t.Run(fmt.Sprint("seed ", round+1), func(t *testing.T) {
			c := startCaller(t, uint64(round+1), succeeded, outcomes)
			for i := 0; i < requestsOfARound && len(c.faults) < 10; i++ {
				c.at = fmt.Sprint("request ", i)
				c.send(c.request())
			}
			for _, fault := range c.faults {
				t.Error(fault)
			}
			for table, ids := range map[string][]string{"transfers": c.transfers, "holds": c.holds, "payments": c.known["payment"]} {
				if len(ids) > 0 {
					tally := harness.WantStored(t, c.database, table, ids)
					total = harness.Tally{Acknowledged: total.Acknowledged + tally.Acknowledged, Lost: total.Lost + tally.Lost, Doubled: total.Doubled + tally.Doubled}
				}
			}
			harness.WantVerified(t, c.database)
		})
	}
	t.Logf("answers: %v", outcomes)
	for _, call := range newGenerator(0, theContract(t).Doc).calls {
		if succeeded[call.OperationID] == 0 && *rounds >= 3 && !t.Failed() {
			t.Errorf("%s never succeeded: this test shows nothing of it", call.OperationID)
		}
	}
	seen.add(line{fault: "requests made of the contract: valid, wrong in one place, hostile", rounds: *rounds, Tally: total})
}

func theContract(t *testing.T) *openapi.Contract {
	t.Helper()
	c, err := openapi.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A caller sends requests to a service and database of its own.
type caller struct {
	*generator
	t        *testing.T
	contract *openapi.Contract
	service  *harness.Process
	client   *http.Client
	database string
	conn     *pgx.Conn

	at                  string
	state               string // of all money, as the last answer left it
	faults              []string
	transfers, holds    []string       // that were acknowledged, batches' members included
	succeeded, outcomes map[string]int // by operation; by status and code
}

// startCaller starts a service without workers: what they do is no answer's.
func startCaller(t *testing.T, seed uint64, succeeded, outcomes map[string]int) *caller {
	t.Helper()
	c := &caller{t: t, contract: theContract(t), database: testdb.URL(t), succeeded: succeeded, outcomes: outcomes}
	c.generator = newGenerator(seed, c.contract.Doc)
	c.service = harness.Serve(t, c.database, "--workers", "0", "--account-lock", []string{"any", "row"}[seed%2])
	c.service.WaitReady(t, 200, 30*time.Second)
	c.client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(c.client.CloseIdleConnections)
	conn, err := pgx.Connect(t.Context(), c.database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	c.conn = conn
	for range 4 {
		c.at = "an account with money"
		c.post("/v1/accounts", map[string]any{"currency": "EUR", "min_balance": "-1000"})
		accounts := c.known["account"]
		c.post("/v1/credits", map[string]any{"account_id": accounts[len(accounts)-1], "amount": "500.00", "currency": "EUR"})
	}
	return c
}

// post sends a valid request.
func (c *caller) post(path string, body any) {
	i := slices.IndexFunc(c.calls, func(call call) bool { return call.path == path && call.method == http.MethodPost })
	c.send(&request{call: c.calls[i], method: http.MethodPost, path: path, header: http.Header{"Content-Type": {"application/json"}}, body: body})
}

// Every row of what a request may change, but for the keys.
const stateSQL = `
	SELECT (SELECT count(*) || ':' || coalesce(sum(hashtextextended(a::text, 0)), 0) FROM accounts a) || ' ' ||
	       (SELECT count(*) || ':' || coalesce(sum(hashtextextended(r::text, 0)), 0) FROM transfers r) || ' ' ||
	       (SELECT count(*) || ':' || coalesce(sum(hashtextextended(h::text, 0)), 0) FROM holds h) || ' ' ||
	       (SELECT count(*) || ':' || coalesce(sum(hashtextextended(p::text, 0)), 0) FROM payments p)`

func (c *caller) readState() (state string) {
	if err := c.conn.QueryRow(c.t.Context(), stateSQL).Scan(&state); err != nil {
		c.t.Fatal(err)
	}
	return state
}

// send sends r and judges its answer.
func (c *caller) send(r *request) {
	body := r.bytes()
	sent, err := http.NewRequest(r.method, c.service.URL+r.target(), bytes.NewReader(body))
	if err != nil {
		return // no client sends it
	}
	maps.Copy(sent.Header, r.header)
	fault := func(format string, args ...any) {
		c.faults = append(c.faults, fmt.Sprintf("%s: %s\n%s %.300s %.300v\n%.1000s", c.at, fmt.Sprintf(format, args...), r.method, r.target(), r.header, body))
	}
	response, err := c.client.Do(sent)
	if err != nil {
		fault("no answer: %v", err)
		return
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		fault("the answer breaks off: %v", err)
		return
	}
	var problem struct{ Code string }
	json.Unmarshal(answer, &problem) // its error: not everything is JSON
	c.outcomes[strings.TrimSpace(fmt.Sprint(response.StatusCode, " ", problem.Code))]++
	if response.StatusCode == http.StatusInternalServerError {
		fault("500: %s", answer)
	}
	if !outsideContract(r, response.StatusCode) {
		if err := c.contract.CheckAnswer(sent, response.StatusCode, response.Header, answer); err != nil {
			fault("the answer breaks the contract: %.500v\n%d %.1000s", err, response.StatusCode, answer)
		}
	}
	ok := response.StatusCode < 300
	before := c.state
	c.state = c.readState()
	if c.state != before && (!ok || r.method == http.MethodGet || r.method == http.MethodHead || r.rehearses()) {
		fault("%d, and the tables have changed: %s, before it %s", response.StatusCode, c.state, before)
	}
	if ok && !outsideContract(r, response.StatusCode) {
		if err := c.contract.CheckRequest(sent, body); err != nil {
			fault("%d, though the request breaks the contract: %.500v", response.StatusCode, err)
		}
	}
	if ok {
		c.note(r, response, answer)
	}
	c.learn(r, response.StatusCode, answer)
}

// outsideContract reports whether an answer is none of the contract's: it has no
// body, it is a part of the page to try it, or the header was not even read.
func outsideContract(r *request, status int) bool {
	return r.method == http.MethodHead || strings.HasPrefix(r.path, "/docs/") || status == http.StatusRequestHeaderFieldsTooLarge
}

// note keeps what was acknowledged.
func (c *caller) note(r *request, response *http.Response, body []byte) {
	if r.method == r.call.method {
		c.succeeded[r.OperationID]++
	}
	if r.method != http.MethodPost || r.rehearses() || response.Header.Get("Idempotent-Replayed") != "" {
		return
	}
	var answer harness.Answer
	json.Unmarshal(body, &answer.Body)
	for _, result := range answer.Body.Results {
		if result.Status == "made" {
			c.transfers = append(c.transfers, result.Transfer.ID)
		}
	}
	switch made[r.OperationID] {
	case "transfer":
		c.transfers = append(c.transfers, answer.Body.ID)
	case "hold":
		c.holds = append(c.holds, answer.Body.ID)
	}
}

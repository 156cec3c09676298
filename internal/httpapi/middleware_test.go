package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/accounts"
)

// A service that is full says so at once, and still answers those who run it.
func TestTooManyInFlightAreAnsweredEarly(t *testing.T) {
	db := make(stuckDB)
	url := serve(t, Config{
		MaxInFlight: 1, Accounts: accounts.New(db, policy),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "up 1\n") }),
	})
	get := func(target string) (status int, body string, header http.Header) {
		response, err := http.Get(url + target)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text), response.Header
	}
	until := func(want int) {
		t.Helper()
		deadline := time.Now().Add(5 * time.Second)
		for {
			status, body, header := get("/v1/accounts?x=1")
			if status == want {
				if want == 503 && (!strings.Contains(body, `"overloaded"`) || header.Get("Retry-After") == "") {
					t.Errorf("got %s with %v, want overloaded with Retry-After", body, header)
				}
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("got %d %s, want %d", status, body, want)
			}
			time.Sleep(time.Millisecond)
		}
	}
	// A request whose body never comes takes no place.
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /v1/accounts HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	until(400)

	stuck := make(chan struct{})
	go func() { // takes the only place, once none of the calls above has it
		defer close(stuck)
		for {
			if _, body, _ := get("/v1/accounts"); !strings.Contains(body, `"overloaded"`) {
				return
			}
		}
	}()
	until(503)
	for target, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 200, "/docs": 503} {
		if status, body, _ := get(target); status != want {
			t.Errorf("GET %s is answered with %d %s, want %d", target, status, body, want)
		}
	}
	close(db)
	<-stuck
	until(400) // the place is free again
}

// A stuckDB begins no transaction until it is closed, and then fails.
type stuckDB chan struct{}

func (db stuckDB) BeginWith(context.Context, *pgx.Batch) (pgx.Tx, error) {
	<-db
	return nil, io.ErrUnexpectedEOF
}

func TestBodiesOverTheLimitAreRefused(t *testing.T) {
	url := serve(t, Config{MaxBody: 1000})
	tests := []struct {
		name string
		body io.Reader
		want int
	}{
		{"at the limit", strings.NewReader("{" + strings.Repeat(" ", 998) + "}"), 400},
		{"over the limit", strings.NewReader("{" + strings.Repeat(" ", 999) + "}"), 413},
		{"in chunks", io.MultiReader(strings.NewReader("{"), strings.NewReader(strings.Repeat(" ", 5000))), 413},
		{"without an end", io.LimitReader(spaces{}, 1<<30), 413},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			response, err := http.Post(url+"/v1/accounts", "application/json", tt.body)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != tt.want {
				t.Errorf("got %d, want %d", response.StatusCode, tt.want)
			}
		})
	}
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// A body that does not arrive is cut off in time, and costs no more than that.
func TestSlowBodiesAreCutOff(t *testing.T) {
	url := serve(t, Config{RequestTimeout: 100 * time.Millisecond})
	for _, sent := range []string{"", `{"currency":`} {
		start := time.Now()
		answer := raw(t, url, "POST /v1/accounts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"+sent)
		if !strings.HasPrefix(answer, "HTTP/1.1 408 ") || !strings.Contains(answer, "Connection: close") {
			t.Errorf("got %q, want 408 on a connection that closes", answer)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	}
}

// raw sends text on a connection of its own and returns all that comes back.
func raw(t *testing.T, url, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	return string(answer)
}

func TestTheWorkOutlivesItsCallerAndHasADeadline(t *testing.T) {
	s := &server{Config: Config{RequestTimeout: time.Minute}}
	var worked bool
	h := s.identify(s.detach(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		worked = true
		r.Context().Value(http.ServerContextKey).(context.CancelFunc)() // the caller leaves
		if err := r.Context().Err(); err != nil {
			t.Errorf("the work's context ended with its caller: %v", err)
		}
		if deadline, ok := r.Context().Deadline(); !ok || time.Until(deadline) > time.Minute {
			t.Errorf("the work has the deadline %v, %t; want one within the minute", deadline, ok)
		}
	})))
	ctx, cancel := context.WithCancel(context.Background())
	r, _ := http.NewRequestWithContext(context.WithValue(ctx, http.ServerContextKey, cancel), "GET", "/", nil)
	h.ServeHTTP(nopWriter{}, r)
	if !worked {
		t.Fatal("the handler did not run")
	}

	// Now the caller has left before the work begins.
	worked = false
	defer func() {
		if v := recover(); v != http.ErrAbortHandler || worked {
			t.Errorf("recovered %v, worked %t; want an aborted request and no work", v, worked)
		}
	}()
	h.ServeHTTP(nopWriter{}, r)
}

type nopWriter struct{}

func (nopWriter) Header() http.Header         { return http.Header{} }
func (nopWriter) Write(p []byte) (int, error) { return len(p), nil }
func (nopWriter) WriteHeader(int)             {}

func TestEveryAnswerWarnsOfAnUnsafeMode(t *testing.T) {
	h := bare(func(c *Config) { c.UnsafeMode = "none" })
	for _, target := range []string{"/livez", "/v1/nothing", "/v1/accounts?x=1", "/docs"} {
		if got := do(h, "GET", target, "").Header().Get(UnsafeHeader); !strings.Contains(got, "mode none") {
			t.Errorf("GET %s: the warning is %q", target, got)
		}
	}
	if got := do(bare(nil), "GET", "/livez", "").Header(); got[UnsafeHeader] != nil {
		t.Errorf("a safe mode is warned of: %v", got)
	}
}

func TestObservationsAreBounded(t *testing.T) {
	var seen []Observation
	h := bare(func(c *Config) { c.Observe = func(o Observation) { o.Duration = 0; seen = append(seen, o) } })
	do(h, "GET", "/livez", "")
	do(h, "GET", "/some/path/of/a/scanner", "")
	do(h, "GET", "/v1/some/path", "")
	do(h, "BREW", "/v1/pots/17", "")
	do(h, "DELETE", "/v1/accounts", "")
	do(h, "GET", "/v1/accounts/1", "")
	want := []Observation{
		{Method: "GET", Route: "/livez", Status: 200},
		{Method: "GET", Route: "unmatched", Status: 404, Code: "not-found"},
		{Method: "GET", Route: "unmatched", Status: 404, Code: "not-found"},
		{Method: "OTHER", Route: "unmatched", Status: 404, Code: "not-found"},
		{Method: "DELETE", Route: "unmatched", Status: 405, Code: "method-not-allowed"},
		{Method: "GET", Route: "/v1/accounts/{id}", Status: 400, Code: "invalid-request"},
	}
	if got, want := fmt.Sprint(seen), fmt.Sprint(want); got != want {
		t.Errorf("observed\n%v, want\n%v", got, want)
	}
}

func TestReadinessAsksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		failure := errors.New("no connection to 10.0.0.7")
		h := bare(func(c *Config) {
			c.Ready = func(ctx context.Context) error {
				asked.Add(1)
				if _, ok := ctx.Deadline(); !ok {
					t.Error("the check has no deadline")
				}
				return failure
			}
		})
		for range 5 {
			w := do(h, "GET", "/readyz", "")
			if w.Code != 503 || strings.Contains(w.Body.String(), "10.0.0.7") || w.Header().Get("Retry-After") == "" {
				t.Errorf("got %d %s, want 503 without the check's text", w.Code, w.Body)
			}
		}
		if got := asked.Load(); got != 1 {
			t.Errorf("the check ran %d times, want once", got)
		}
		failure = nil
		time.Sleep(readyFresh)
		if w := do(h, "GET", "/readyz", ""); w.Code != 200 || asked.Load() != 2 {
			t.Errorf("got %d after %d checks, want 200 after 2", w.Code, asked.Load())
		}
	})
}

func TestAServiceThatStopsIsNotReadyAtOnce(t *testing.T) {
	stopping := make(chan struct{})
	h := bare(func(c *Config) { c.Stopping = stopping })
	if w := do(h, "GET", "/readyz", ""); w.Code != 200 {
		t.Fatalf("got %d before, want 200", w.Code)
	}
	close(stopping) // while the last answer is still fresh
	if w := do(h, "GET", "/readyz", ""); w.Code != 503 {
		t.Errorf("got %d, want 503", w.Code)
	}
	if w := do(h, "GET", "/livez", ""); w.Code != 200 {
		t.Errorf("livez: got %d, want 200", w.Code)
	}
}

package operations_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/tests/harness"
)

func testReplicasStartTogether(t *testing.T) {
	database := harness.EmptyURL(t)
	replicas := make([]*harness.Process, 8)
	var starts sync.WaitGroup
	for i := range replicas {
		starts.Go(func() { replicas[i] = harness.Serve(t, database, "--pool-size", "4") })
	}
	starts.Wait()
	for _, p := range replicas {
		p.WaitReady(t, 200, 10*time.Second)
	}
	twice := harness.Ask[int](t, database, "SELECT (count(version_id) - count(DISTINCT version_id))::int FROM goose_db_version")
	if twice != 0 {
		t.Errorf("%d migrations were applied twice", twice)
	}
}

func testWaitsUntilSomebodyMigrated(t *testing.T) {
	database := harness.EmptyURL(t)
	p := harness.Serve(t, database, "--migrate=false")
	p.WaitReady(t, 503, 2*time.Second)
	if status := p.Get("/livez"); status != 200 {
		t.Errorf("/livez is %d, want 200: waiting is no reason to be restarted", status)
	}
	if status, _ := harness.RunToEnd(t, "migrate", "status", "--database-url", database); status != 1 {
		t.Errorf("migrate status ended with %d, want 1 while migrations are pending", status)
	}
	if status, stderr := harness.RunToEnd(t, "migrate", "up", "--database-url", database); status != 0 {
		t.Fatalf("migrate up ended with %d: %s", status, stderr)
	}
	if status, stderr := harness.RunToEnd(t, "migrate", "status", "--database-url", database); status != 0 {
		t.Errorf("migrate status ended with %d, want 0: %s", status, stderr)
	}
	p.WaitReady(t, 200, 5*time.Second)
}

// What is refused is refused before anything is touched: there is no database
// at this address.
func testRefusals(t *testing.T) {
	const nowhere = "postgres://ledger@127.0.0.1:1/ledger?sslmode=disable"
	for _, test := range []struct {
		flags string
		want  []string // in the message
	}{
		{"--listen 0.0.0.0:0", []string{"--token-file", "--insecure-no-auth"}},
		{"--listen :0", []string{"--token-file", "--insecure-no-auth"}},
		{"--mode none", []string{"--allow-lost-updates"}},
		{"--mode bogus", []string{"--mode", "pessimistic", "none"}},
		{"--lock-timeout 6s", []string{"--statement-timeout", "--lock-timeout"}},
		{"--statement-timeout 10s", []string{"--request-timeout", "--statement-timeout"}},
		{"--acquire-timeout 10s", []string{"--acquire-timeout", "--request-timeout"}},
		{"--lock-timeout 0s --pool-size 0", []string{"--lock-timeout", "--pool-size"}},
		{"--row-lock no-key-update --mode atomic", []string{"--row-lock", "pessimistic"}},
	} {
		t.Run(test.flags, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			status, stderr := harness.RunToEnd(t, append([]string{"serve", "--database-url", nowhere}, strings.Fields(test.flags)...)...)
			if status != 1 && status != 2 {
				t.Errorf("status = %d, want that it refuses", status)
			}
			for _, part := range test.want {
				if !strings.Contains(stderr, part) {
					t.Errorf("it says %q, want %q named", stderr, part)
				}
			}
			if took := time.Since(begun); took > 10*time.Second {
				t.Errorf("it took %v to refuse", took)
			}
		})
	}
}

// As a load balancer does it: a replica that says it is not ready gets no more
// calls, and then nobody notices that it stops.
func testRollingRestartBehindBalancer(t *testing.T) {
	database := testdb.URL(t)
	first, second := harness.Serve(t, database, "--shutdown-delay", "2s"), harness.Serve(t, database)
	var away atomic.Bool
	l := harness.StartLoad(t, 16, func() string {
		if away.Load() {
			return second.URL
		}
		return first.URL
	})
	l.WaitForMore(t, 50, 20*time.Second)

	stopped := make(chan struct{})
	go func() { first.Stop(t); close(stopped) }()
	time.Sleep(50 * time.Millisecond)
	first.WaitReady(t, 503, 2*time.Second)
	away.Store(true)
	<-stopped
	l.WaitForMore(t, 50, 20*time.Second)
	l.End()
	l.Check(t, database)
	if len(l.Passing) > 0 {
		t.Errorf("callers noticed the restart: %v", l.Passing)
	}
	wantInOrder(t, first.Lines(), `"stopping"`, `"stopped"`)
}

// Without a balancer some calls find nobody: they are refused, or meet a
// connection that is closed because it was idle. Whatever was accepted is answered.
func testSIGTERMUnderLoad(t *testing.T) {
	database := testdb.URL(t)
	first, second := harness.Serve(t, database), harness.Serve(t, database)
	var calls atomic.Int64
	l := harness.StartLoad(t, 16, func() string { // a repetition meets the other replica
		return []string{first.URL, second.URL}[calls.Add(1)%2]
	})
	l.WaitForMore(t, 50, 20*time.Second)
	begun := time.Now()
	first.Stop(t)
	if took := time.Since(begun); took > 12*time.Second {
		t.Errorf("it took %v to stop, more than any request may last", took)
	}
	l.WaitForMore(t, 50, 20*time.Second)
	l.End()
	l.Check(t, database)
	for text := range l.Passing {
		if !strings.Contains(text, "connection refused") && !strings.Contains(text, "connection reset") && !strings.HasSuffix(text, ": EOF") {
			t.Errorf("a caller was told %q, want that nobody was there", text)
		}
	}
	accepted := strings.Count(strings.Join(first.Lines(), "\n"), `"route":"/v1/transfers"`)
	if answered := l.Answered[first.URL]; answered != accepted || accepted == 0 {
		t.Errorf("%d calls were answered, %d were accepted", answered, accepted)
	}
}

// The private server goes when nobody needs it any more, and keeps its data.
func testPrivateServerStopsLast(t *testing.T) {
	dir := harness.DataDir(t)
	harness.RequirePostgres(t, dir)
	p := harness.Start(t, "--data-dir", dir)
	l := harness.StartLoad(t, 8, func() string { return p.URL })
	l.WaitForMore(t, 20, 20*time.Second)
	l.End()
	p.Stop(t)
	wantInOrder(t, p.Lines(), `"stopping"`, `"stopped"`, `"postgres stopped"`)

	server := harness.StartPostgres(t, dir)
	t.Cleanup(func() { harness.StopPostgres(server) })
	l.Check(t, server.DSN())
}

func wantInOrder(t *testing.T, lines []string, parts ...string) {
	t.Helper()
	text := strings.Join(lines, "\n")
	for _, part := range parts {
		_, after, found := strings.Cut(text, part)
		if !found {
			t.Errorf("the log lacks %s, in the order %v:\n%s", part, parts, strings.Join(lines, "\n"))
			return
		}
		text = after
	}
}

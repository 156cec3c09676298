package operations_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/testdb"
)

func testReplicasStartTogether(t *testing.T) {
	database := emptyURL(t)
	replicas := make([]*process, 8)
	var starts sync.WaitGroup
	for i := range replicas {
		starts.Go(func() { replicas[i] = serve(t, database, "--pool-size", "4") })
	}
	starts.Wait()
	for _, p := range replicas {
		p.waitReady(t, 200, 10*time.Second)
	}
	twice := ask[int](t, database, "SELECT (count(version_id) - count(DISTINCT version_id))::int FROM goose_db_version")
	if twice != 0 {
		t.Errorf("%d migrations were applied twice", twice)
	}
}

func testWaitsUntilSomebodyMigrated(t *testing.T) {
	database := emptyURL(t)
	p := serve(t, database, "--migrate=false")
	p.waitReady(t, 503, 2*time.Second)
	if status := p.get("/livez"); status != 200 {
		t.Errorf("/livez is %d, want 200: waiting is no reason to be restarted", status)
	}
	if status, _ := runToEnd(t, "migrate", "status", "--database-url", database); status != 1 {
		t.Errorf("migrate status ended with %d, want 1 while migrations are pending", status)
	}
	if status, stderr := runToEnd(t, "migrate", "up", "--database-url", database); status != 0 {
		t.Fatalf("migrate up ended with %d: %s", status, stderr)
	}
	if status, stderr := runToEnd(t, "migrate", "status", "--database-url", database); status != 0 {
		t.Errorf("migrate status ended with %d, want 0: %s", status, stderr)
	}
	p.waitReady(t, 200, 5*time.Second)
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
			status, stderr := runToEnd(t, append([]string{"serve", "--database-url", nowhere}, strings.Fields(test.flags)...)...)
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
	first, second := serve(t, database, "--shutdown-delay", "2s"), serve(t, database)
	var away atomic.Bool
	l := startLoad(t, 16, func() string {
		if away.Load() {
			return second.url
		}
		return first.url
	})
	l.waitForMore(t, 50, 20*time.Second)

	stopped := make(chan struct{})
	go func() { first.stop(t); close(stopped) }()
	time.Sleep(50 * time.Millisecond)
	first.waitReady(t, 503, 2*time.Second)
	away.Store(true)
	<-stopped
	l.waitForMore(t, 50, 20*time.Second)
	l.end()
	l.check(t, database)
	if len(l.passing) > 0 {
		t.Errorf("callers noticed the restart: %v", l.passing)
	}
	wantInOrder(t, first.lines(), `"stopping"`, `"stopped"`)
}

// Without a balancer some calls find nobody: they are refused, or meet a
// connection that is closed because it was idle. Whatever was accepted is answered.
func testSIGTERMUnderLoad(t *testing.T) {
	database := testdb.URL(t)
	first, second := serve(t, database), serve(t, database)
	var calls atomic.Int64
	l := startLoad(t, 16, func() string { // a repetition meets the other replica
		return []string{first.url, second.url}[calls.Add(1)%2]
	})
	l.waitForMore(t, 50, 20*time.Second)
	begun := time.Now()
	first.stop(t)
	if took := time.Since(begun); took > 12*time.Second {
		t.Errorf("it took %v to stop, more than any request may last", took)
	}
	l.waitForMore(t, 50, 20*time.Second)
	l.end()
	l.check(t, database)
	for text := range l.passing {
		if !strings.Contains(text, "connection refused") && !strings.Contains(text, "connection reset") && !strings.HasSuffix(text, ": EOF") {
			t.Errorf("a caller was told %q, want that nobody was there", text)
		}
	}
	accepted := strings.Count(strings.Join(first.lines(), "\n"), `"route":"/v1/transfers"`)
	if answered := l.answered[first.url]; answered != accepted || accepted == 0 {
		t.Errorf("%d calls were answered, %d were accepted", answered, accepted)
	}
}

// The private server goes when nobody needs it any more, and keeps its data.
func testPrivateServerStopsLast(t *testing.T) {
	dir := dataDir(t)
	requirePostgres(t, dir)
	p := start(t, "--data-dir", dir)
	l := startLoad(t, 8, func() string { return p.url })
	l.waitForMore(t, 20, 20*time.Second)
	l.end()
	p.stop(t)
	wantInOrder(t, p.lines(), `"stopping"`, `"stopped"`, `"postgres stopped"`)

	server := startPostgres(t, dir)
	t.Cleanup(func() { stopPostgres(server) })
	l.check(t, server.DSN())
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

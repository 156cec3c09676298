package operations_test

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/localpg"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/tests/harness"
)

// PostgreSQL is killed under load, twice: the whole of it, and then one of its
// processes, upon which it restarts itself. The service goes on without a
// restart of its own, and says 503 meanwhile.
func testPostgresKilled(t *testing.T) {
	dir := harness.DataDir(t)
	harness.RequirePostgres(t, dir)
	server := harness.StartPostgres(t, dir)
	address := harness.NewAddress(t, server)
	p := harness.Serve(t, address.URL)
	l := harness.StartLoad(t, 12, func() string { return p.URL })
	l.WaitForMore(t, 50, 20*time.Second)

	harness.KillPID(t, harness.PostmasterOf(t, server))
	<-server.Exited()
	p.WaitReady(t, 503, 5*time.Second)
	if status := p.Get("/livez"); status != 200 {
		t.Errorf("/livez is %d, want 200: a restart of the service would not help", status)
	}
	l.WaitPassing(t, 30*time.Second) // a short outage is hidden by the service's own retries
	harness.StopPostgres(server)
	server = harness.StartPostgres(t, dir)
	t.Cleanup(func() { harness.StopPostgres(server) })
	address.LeadTo(t, server)
	p.WaitReady(t, 200, 10*time.Second)
	l.WaitForMore(t, 50, 20*time.Second)

	harness.KillPID(t, harness.Ask[int](t, server.DSN(), "SELECT min(pid) FROM pg_stat_activity WHERE application_name = 'ledger'"))
	l.WaitForMore(t, 50, 30*time.Second)
	p.WaitReady(t, 200, 10*time.Second)
	l.End()
	l.Check(t, server.DSN())
	l.WantPassing(t, "503 ")
}

// More connections are asked for than the server has: some calls find it full,
// which is a 503 and neither a refusal nor anybody's fault.
func testConnectionsExhausted(t *testing.T) {
	harness.RequirePostgres(t, "")
	server, err := localpg.Start(t.Context(), localpg.Options{
		Ephemeral: true, NoDownload: true, Settings: map[string]string{"max_connections": "20"},
	})
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	t.Cleanup(func() { harness.StopPostgres(server) })
	replicas := make([]*harness.Process, 4)
	for i := range replicas {
		replicas[i] = harness.Serve(t, server.DSN(), "--pool-size", "10", "--group-size", "1") // groups want few of them
	}
	var calls atomic.Int64
	l := harness.StartLoad(t, 40, func() string { return replicas[calls.Add(1)%4].URL })
	l.WaitForMore(t, 100, 30*time.Second)
	l.WaitPassing(t, 30*time.Second)
	l.End()
	for _, p := range replicas {
		p.Stop(t) // they hold all connections
	}
	l.Check(t, server.DSN())
	l.WantPassing(t, "503 unavailable")
}

// A replica freezes with rows locked, as a host does that is short of memory.
// The server ends its transactions, and the others go on.
func testReplicaFrozen(t *testing.T) {
	database := testdb.URL(t)
	flags := []string{"--lock-timeout", "300ms", "--statement-timeout", "700ms", "--idle-timeout", "1s"}
	first, second := harness.Serve(t, database, flags...), harness.Serve(t, database, flags...)
	var calls atomic.Int64
	var away atomic.Bool
	l := harness.StartLoad(t, 16, func() string {
		if away.Load() || calls.Add(1)%2 == 0 {
			return second.URL
		}
		return first.URL
	})
	l.WaitForMore(t, 50, 20*time.Second)
	away.Store(true)
	first.Cmd.Process.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { first.Cmd.Process.Signal(syscall.SIGCONT) })
	l.WaitForMore(t, 100, 10*time.Second)
	time.Sleep(2 * time.Second)
	// One that was aborted has lost its settings with its locks, and may stay.
	open := harness.Ask[int](t, database, `SELECT count(*)::int FROM pg_stat_activity
		WHERE datname = current_database() AND state = 'idle in transaction' AND state_change < now() - interval '1500 ms'`)
	if open > 0 {
		t.Errorf("%d transactions of the frozen replica are still open", open)
	}
	first.Cmd.Process.Signal(syscall.SIGCONT)
	away.Store(false)
	l.WaitForMore(t, 50, 20*time.Second)
	l.End()
	l.Check(t, database)
}

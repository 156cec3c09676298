package operations_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/localpg"
	"github.com/rowlock/ledger/internal/testdb"
)

// PostgreSQL is killed under load, twice: the whole of it, and then one of its
// processes, upon which it restarts itself. The service goes on without a
// restart of its own, and says 503 meanwhile.
func testPostgresKilled(t *testing.T) {
	dir := dataDir(t)
	requirePostgres(t, dir)
	server := startPostgres(t, dir)
	address := newAddress(t, server)
	p := serve(t, address.url)
	l := startLoad(t, 12, func() string { return p.url })
	l.waitForMore(t, 50, 20*time.Second)

	kill(t, postmasterOf(t, server))
	<-server.Exited()
	p.waitReady(t, 503, 5*time.Second)
	if status := p.get("/livez"); status != 200 {
		t.Errorf("/livez is %d, want 200: a restart of the service would not help", status)
	}
	l.waitPassing(t, 30*time.Second) // a short outage is hidden by the service's own retries
	stopPostgres(server)
	server = startPostgres(t, dir)
	t.Cleanup(func() { stopPostgres(server) })
	address.leadTo(t, server)
	p.waitReady(t, 200, 10*time.Second)
	l.waitForMore(t, 50, 20*time.Second)

	kill(t, ask[int](t, server.DSN(), "SELECT min(pid) FROM pg_stat_activity WHERE application_name = 'ledger'"))
	l.waitForMore(t, 50, 30*time.Second)
	p.waitReady(t, 200, 10*time.Second)
	l.end()
	l.check(t, server.DSN())
	l.wantPassing(t, "503 ")
}

// More connections are asked for than the server has: some calls find it full,
// which is a 503 and neither a refusal nor anybody's fault.
func testConnectionsExhausted(t *testing.T) {
	requirePostgres(t, "")
	server, err := localpg.Start(t.Context(), localpg.Options{
		Ephemeral: true, NoDownload: true, Settings: map[string]string{"max_connections": "20"},
	})
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	t.Cleanup(func() { stopPostgres(server) })
	replicas := make([]*process, 4)
	for i := range replicas {
		replicas[i] = serve(t, server.DSN(), "--pool-size", "10", "--group-size", "1") // groups want few of them
	}
	var calls atomic.Int64
	l := startLoad(t, 40, func() string { return replicas[calls.Add(1)%4].url })
	l.waitForMore(t, 100, 30*time.Second)
	l.waitPassing(t, 30*time.Second)
	l.end()
	for _, p := range replicas {
		p.stop(t) // they hold all connections
	}
	l.check(t, server.DSN())
	l.wantPassing(t, "503 unavailable")
}

// A replica freezes with rows locked, as a host does that is short of memory.
// The server ends its transactions, and the others go on.
func testReplicaFrozen(t *testing.T) {
	database := testdb.URL(t)
	flags := []string{"--lock-timeout", "300ms", "--statement-timeout", "700ms", "--idle-timeout", "1s"}
	first, second := serve(t, database, flags...), serve(t, database, flags...)
	var calls atomic.Int64
	var away atomic.Bool
	l := startLoad(t, 16, func() string {
		if away.Load() || calls.Add(1)%2 == 0 {
			return second.url
		}
		return first.url
	})
	l.waitForMore(t, 50, 20*time.Second)
	away.Store(true)
	first.cmd.Process.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { first.cmd.Process.Signal(syscall.SIGCONT) })
	l.waitForMore(t, 100, 10*time.Second)
	time.Sleep(2 * time.Second)
	// One that was aborted has lost its settings with its locks, and may stay.
	open := ask[int](t, database, `SELECT count(*)::int FROM pg_stat_activity
		WHERE datname = current_database() AND state = 'idle in transaction' AND state_change < now() - interval '1500 ms'`)
	if open > 0 {
		t.Errorf("%d transactions of the frozen replica are still open", open)
	}
	first.cmd.Process.Signal(syscall.SIGCONT)
	away.Store(false)
	l.waitForMore(t, 50, 20*time.Second)
	l.end()
	l.check(t, database)
}

// dataDir is a directory that PostgreSQL's user can enter.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ledger-outage-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "data")
}

// requirePostgres skips the test where there is none to start.
func requirePostgres(t *testing.T, dir string) {
	t.Helper()
	_, err := localpg.FindBinaries(localpg.Options{DataDir: dir, Ephemeral: dir == "", NoDownload: true})
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("this test needs a local PostgreSQL: %v", err)
	}
	if err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: this test needs a local PostgreSQL: %v", err)
	}
}

func startPostgres(t *testing.T, dir string) *localpg.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := localpg.Start(ctx, localpg.Options{DataDir: dir, NoDownload: true})
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	return server
}

// stopPostgres ends a server that may be dead, as its own error would say.
func stopPostgres(server *localpg.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	server.Stop(ctx)
}

func postmasterOf(t *testing.T, server *localpg.Server) int {
	t.Helper()
	file := filepath.Join(ask[string](t, server.DSN(), "SHOW data_directory"), "postmaster.pid")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// An address is where a service finds its database, though each start of a
// private server has a socket of its own: a relay that can be led elsewhere.
type address struct {
	url    string
	target atomic.Pointer[string] // path of a socket
}

func newAddress(t *testing.T, server *localpg.Server) *address {
	t.Helper()
	a := &address{}
	a.leadTo(t, server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go a.relay(conn)
		}
	}()
	a.url = "postgres://ledger@" + listener.Addr().String() + "/ledger?sslmode=disable"
	return a
}

func (a *address) leadTo(t *testing.T, server *localpg.Server) {
	t.Helper()
	u, err := url.Parse(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432")
	a.target.Store(&socket)
}

// relay ends a connection on both sides when either ends.
func (a *address) relay(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", *a.target.Load())
	if err != nil {
		return
	}
	defer server.Close()
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			io.Copy(pair[0], pair[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}

package harness

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
)

// DataDir is a directory that PostgreSQL's user can enter.
func DataDir(t *testing.T) string {
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

// RequirePostgres skips the test where there is none to start.
func RequirePostgres(t *testing.T, dir string) {
	t.Helper()
	_, err := localpg.FindBinaries(localpg.Options{DataDir: dir, Ephemeral: dir == "", NoDownload: true})
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("this test needs a local PostgreSQL: %v", err)
	}
	if err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: this test needs a local PostgreSQL: %v", err)
	}
}

// StartPostgres starts a server on dir, which is made where it is not there.
func StartPostgres(t *testing.T, dir string) *localpg.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := localpg.Start(ctx, localpg.Options{DataDir: dir, NoDownload: true})
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	return server
}

// StopPostgres ends a server that may be dead, as its own error would say.
func StopPostgres(server *localpg.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	server.Stop(ctx)
}

// PostmasterOf is the process id of the server's first process.
func PostmasterOf(t *testing.T, server *localpg.Server) int {
	t.Helper()
	file := filepath.Join(Ask[string](t, server.DSN(), "SHOW data_directory"), "postmaster.pid")
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

// KillPID ends a process as a loss of power does.
func KillPID(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// An Address is where a service finds its database, though each start of a
// private server has a socket of its own: a relay that can be led elsewhere.
type Address struct {
	URL    string
	target atomic.Pointer[string] // path of a socket
}

// NewAddress is an address that leads to server at first.
func NewAddress(t *testing.T, server *localpg.Server) *Address {
	t.Helper()
	a := &Address{}
	a.LeadTo(t, server)
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
	a.URL = "postgres://ledger@" + listener.Addr().String() + "/ledger?sslmode=disable"
	return a
}

// LeadTo sends the connections that come from now on to server.
func (a *Address) LeadTo(t *testing.T, server *localpg.Server) {
	t.Helper()
	u, err := url.Parse(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432")
	a.target.Store(&socket)
}

// relay ends a connection on both sides when either ends.
func (a *Address) relay(client net.Conn) {
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

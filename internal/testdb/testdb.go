// Package testdb gives each test a migrated database of its own.
//
// The one idea: one server for the process, one migrated template on it, a
// clone for each test. The server is the one that LEDGER_TEST_DATABASE_URL
// names, else a private one from local binaries, else a container;
// LEDGER_TEST_POSTGRES=container insists on the container.
//
// Start reading at [New]. A package that uses it has
//
//	func TestMain(m *testing.M) { testdb.Main(m) }
package testdb

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/peterldowns/pgtestdb"

	"github.com/rowlock/ledger/internal/postgres"
)

// DB is a pool on a test's own database.
type DB struct {
	*postgres.DB
	URL string // for further pools and for programs
}

// New returns a fresh migrated database of its own for t, dropped when t ends
// (kept, if t failed and the server outlives the test). Connections are made
// when they are needed, at most 16, so that many tests fit on one server.
//
// Where no server can be had it skips t, or fails it if CI=true or
// LEDGER_TEST_REQUIRE=1, or if a server was asked for by name.
func New(t testing.TB) *DB {
	t.Helper()
	url := URL(t)
	pool, err := postgres.Open(context.Background(), postgres.Config{URL: url})
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return &DB{DB: pool, URL: url}
}

// URL is [New] without the pool: for tests that start the real binary.
func URL(t testing.TB) string {
	t.Helper()
	s, err := shared.get()
	if err != nil {
		giveUp(t, err, os.Getenv)
	}
	clone := pgtestdb.Custom(t, s.config, migrator{})
	return withDatabase(s.url, clone.Database)
}

// closePool closes the pool, which waits for what is checked out. A test that
// forgot to give a connection back should say so and not hang.
func closePool(t testing.TB, pool *postgres.DB) {
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeGrace):
		t.Errorf("testdb: the test has ended and still holds %d connections", pool.Stat().AcquiredConns())
	}
}

const closeGrace = 10 * time.Second

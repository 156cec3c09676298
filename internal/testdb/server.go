package testdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/peterldowns/pgtestdb"

	"github.com/rowlock/ledger/internal/localpg"
)

// A server is where clones are made.
type server struct {
	url    string          // of a database on it
	config pgtestdb.Config // the same, for pgtestdb
	stop   func() error    // takes its own time, and not its start's
}

const (
	startTimeout = 3 * time.Minute // an image may have to be pulled
	stopTimeout  = 10 * time.Second
)

// shared is the server of this process.
var shared sharedServer

type sharedServer struct {
	mu      sync.Mutex
	started bool
	server  *server
	err     error
}

// get starts the server on the first call. All later calls have its result, a
// failure as well: where one test finds no server, the next would not, either.
func (s *sharedServer) get() (*server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started = true
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		s.server, s.err = start(ctx, os.Getenv)
	}
	return s.server, s.err
}

// stop stops the server, if there is one and it is ours.
func (s *sharedServer) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	err := s.server.stop()
	s.server, s.err = nil, errors.New("the server of this process has been stopped")
	return err
}

// Main runs the tests, stops the server that they shared, and exits. Call it
// from TestMain. Without it, or after a panic, a private server stays until the
// next one is started (localpg removes what its owner left), and a container
// until testcontainers' reaper or tests/containers/run.sh removes it.
func Main(m *testing.M) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		signal.Stop(interrupted) // a second one ends us at once
		reportStop(shared.stop())
		os.Exit(1)
	}()
	code := m.Run()
	if !reportStop(shared.stop()) && code == 0 {
		code = 1
	}
	os.Exit(code)
}

func reportStop(err error) (stopped bool) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "testdb: stop the server:", err)
	}
	return err == nil
}

// errNoServer says that none of the ways to a server works on this machine,
// which is the one failure that a laptop may have.
var errNoServer = errors.New("no PostgreSQL server for the tests")

// start finds or starts the server, and sees to it that clones can be made.
func start(ctx context.Context, getenv func(string) string) (*server, error) {
	s, err := choose(ctx, getenv)
	if err != nil {
		return nil, err
	}
	s.config, err = parse(s.url)
	if err == nil {
		err = checkRights(ctx, s.url)
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func choose(ctx context.Context, getenv func(string) string) (*server, error) {
	switch kind := getenv("LEDGER_TEST_POSTGRES"); kind {
	case "":
	case "container":
		return startContainer(ctx, getenv)
	default:
		return nil, fmt.Errorf(`LEDGER_TEST_POSTGRES is %q, want "container" or nothing`, kind)
	}
	if url := getenv("LEDGER_TEST_DATABASE_URL"); url != "" {
		return &server{url: url, stop: func() error { return nil }}, nil
	}
	local, localErr := startLocal(ctx)
	if localErr == nil {
		return local, nil
	}
	container, containerErr := startContainer(ctx, getenv)
	if containerErr == nil {
		return container, nil
	}
	return nil, fmt.Errorf("%w: %w", errNoServer, errors.Join(localErr, containerErr))
}

// startLocal downloads nothing: a test run does not go to the network for what
// a package manager installs.
func startLocal(ctx context.Context) (*server, error) {
	s, err := localpg.Start(ctx, localpg.Options{
		Ephemeral:  true,
		NoDownload: true,
		Settings:   settings,
	})
	if err != nil {
		return nil, fmt.Errorf("local binaries: %w", err)
	}
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		return s.Stop(ctx)
	}
	return &server{url: s.DSN(), stop: stop}, nil
}

// settings of the servers that are ours. Parallel tests with a pool of 16 each
// have use for more than PostgreSQL's 100 connections; and nothing on these
// servers has to survive a crash of the machine (what was committed survives a
// crash of the server all the same).
var settings = map[string]string{
	"max_connections": "300",
	"fsync":           "off",
}

// giveUp ends t, which has no server because of err.
func giveUp(t testing.TB, err error, getenv func(string) string) {
	t.Helper()
	if !errors.Is(err, errNoServer) || getenv("CI") == "true" || getenv("LEDGER_TEST_REQUIRE") == "1" {
		t.Fatalf("testdb: %v", err)
	}
	t.Skipf(`SKIPPED, NOTHING WAS TESTED: %v
Install PostgreSQL 14 or newer (Debian: apt-get install postgresql; macOS: brew install postgresql) or Docker,
or set LEDGER_TEST_DATABASE_URL to a server where the tests may make databases.`, err)
}

package postgres_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/postgres"
)

// migratorEnv makes the test binary a process that migrates the database that
// it names with slowSet, so that a test can kill it.
const migratorEnv = "LEDGER_POSTGRES_TEST_MIGRATE_URL"

// slowSet waits long for a table: as long as the test holds it.
var slowSet = fstest.MapFS{
	"00001_create_accounts.sql": {Data: []byte("-- +goose Up\nCREATE TABLE accounts (n int); INSERT INTO accounts VALUES (0);")},
	"00002_count_runs.sql": {Data: []byte("-- +goose Up\n" +
		"SET LOCAL lock_timeout = '20s';\nLOCK TABLE accounts;\nUPDATE accounts SET n = n + 1;")},
}

func migratorMain(url string) int {
	if err := postgres.MigrateFS(context.Background(), url, slowSet, quiet); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// holdAccounts is somebody who reads the table and leaves the transaction
// open, until release.
func holdAccounts(t *testing.T, url string) (release func()) {
	t.Helper()
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), "BEGIN; SELECT count(1) FROM accounts"); err != nil {
		t.Fatal(err)
	}
	return func() { conn.Close(context.Background()) }
}

// half applies the first of slowSet.
func half(t *testing.T, url string) {
	t.Helper()
	first := fstest.MapFS{"00001_create_accounts.sql": slowSet["00001_create_accounts.sql"]}
	if err := postgres.MigrateFS(t.Context(), url, first, quiet); err != nil {
		t.Fatal(err)
	}
}

func TestMigrateAfterKill(t *testing.T) {
	t.Parallel()
	ctx, url := testContext(t), emptyURL(t)
	half(t, url)
	release := holdAccounts(t, url)

	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), migratorEnv+"="+url)
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Process.Kill() })
	waitFor(t, url, someoneWaitsForTable)
	child.Process.Kill()
	child.Wait()

	begun := time.Now()
	done := make(chan error, 1)
	go func() { done <- postgres.MigrateFS(ctx, url, slowSet, quiet) }()
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > postgres.MigrationLease+5*time.Second {
		t.Errorf("a dead migrator cost %v, want little more than its lease", took)
	}
	wantEachVersionOnce(t, url, slowSet)
	if runs := ask[int](t, url, "SELECT n FROM accounts"); runs != 1 {
		t.Errorf("the migration took effect %d times, want once", runs)
	}
}

// A holder that is paused for longer than its lease goes on later, at the same
// time as the next one.
func TestMigrateWithStolenLease(t *testing.T) {
	t.Parallel()
	ctx, url := testContext(t), emptyURL(t)
	half(t, url)
	release := holdAccounts(t, url)
	done := make(chan error, 2)
	run := func() { done <- postgres.MigrateFS(ctx, url, slowSet, quiet) }

	go run()
	waitFor(t, url, someoneWaitsForTable)
	execSQL(t, url, "UPDATE goose_lock SET locked = false, locked_by = NULL")
	go run()
	waitFor(t, url, "SELECT count(1) = 2 FROM pg_locks WHERE NOT granted AND relation = 'accounts'::regclass AND mode = 'AccessExclusiveLock'")
	release()

	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	wantEachVersionOnce(t, url, slowSet)
	if runs := ask[int](t, url, "SELECT n FROM accounts"); runs != 1 {
		t.Errorf("the migration took effect %d times, want once", runs)
	}
}

func TestMigrateLetsReadersThrough(t *testing.T) {
	t.Parallel()
	ctx, url := testContext(t), emptyURL(t)
	if err := postgres.Migrate(ctx, url, quiet); err != nil {
		t.Fatal(err)
	}
	set := ours(t, 0, map[string]string{
		"00101_add_colour.sql": "SET LOCAL lock_timeout = '400ms';\nALTER TABLE accounts ADD COLUMN colour text;",
	})
	release := holdAccounts(t, url)
	var log logbook
	done := make(chan error, 3)
	for range cap(done) { // replicas: only one of them at a time may be in the readers' way
		go func() { done <- postgres.MigrateFS(ctx, url, set, log.logger()) }()
	}

	longest := readFor(t, url, 3*time.Second)
	if longest < 100*time.Millisecond {
		t.Errorf("no reader ever waited (%v at most): the migration was not tried", longest)
	}
	if longest > 2*time.Second {
		t.Errorf("a reader waited %v behind a migration that gives up after 400 ms", longest)
	}
	if tries := log.count("it will be tried again"); tries < 1 || tries > 4 {
		t.Errorf("%d tries in 3 s, want a few: the pauses between them are the readers'", tries)
	}
	release()
	for range cap(done) {
		if err := <-done; err != nil {
			t.Errorf("when the table was free: %v", err)
		}
	}
	wantEachVersionOnce(t, url, set)
}

// readFor reads a row again and again and returns the longest that it took.
func readFor(t *testing.T, url string, d time.Duration) (longest time.Duration) {
	t.Helper()
	conn := connect(t, url)
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		begun := time.Now()
		if _, err := conn.Exec(t.Context(), "SELECT count(1) FROM accounts", pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(begun))
	}
	return longest
}

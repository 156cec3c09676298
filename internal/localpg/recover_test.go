package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestASecondLedgerIsToldApartFromAnOrphan(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	h := startHelper(t, dir)
	writeNote(t, h.dsn, "before")

	_, err := Start(testContext(t), Options{DataDir: dir, NoDownload: true})
	if !errors.Is(err, ErrInUse) {
		t.Fatalf("error = %v, want ErrInUse", err)
	}
	wantInError(t, err, dir, fmt.Sprintf("process %d", h.cmd.Process.Pid))
	wantNote(t, h.dsn, "before") // it was left alone

	h.kill(t)
	if !isPostmaster(h.postmasterPID, filepath.Join(dir, pgdataName)) {
		t.Fatalf("no orphan: postgres %d ended with its ledger", h.postmasterPID)
	}
	writeNote(t, h.dsn, "orphaned") // it still serves

	s := start(t, Options{DataDir: dir})
	wantNote(t, s.DSN(), "before,orphaned")
	if isPostmaster(h.postmasterPID, s.pgdata()) {
		t.Errorf("the orphan %d still runs", h.postmasterPID)
	}
	wantMissing(t, h.socketDir)
}

func TestAnOrphanThatDoesNotStopEndsWithTheContext(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	h := startHelper(t, dir)
	h.kill(t)
	if err := syscall.Kill(h.postmasterPID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(h.postmasterPID, syscall.SIGCONT) })
	ctx, cancel := context.WithTimeout(testContext(t), 100*time.Millisecond)
	defer cancel()
	err := stopOrphan(ctx, filepath.Join(dir, pgdataName), syscall.SIGINT, slog.New(slog.DiscardHandler))
	wantInError(t, err, "wait for the orphaned server", strconv.Itoa(h.postmasterPID))

	if err := syscall.Kill(h.postmasterPID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	start(t, Options{DataDir: dir})
}

func TestBothKilledAtOnce(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	h := startHelper(t, dir)
	writeNote(t, h.dsn, "kept")
	// The helper first: it would reap and clean up.
	h.kill(t)
	if err := syscall.Kill(h.postmasterPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitDead(t, h.postmasterPID, filepath.Join(dir, pgdataName))
	if got := postmasterPID(filepath.Join(dir, pgdataName)); got != h.postmasterPID {
		t.Fatalf("postmaster.pid names %d, want the stale %d", got, h.postmasterPID)
	}
	s := start(t, Options{DataDir: dir})
	wantNote(t, s.DSN(), "kept")
	wantMissing(t, h.socketDir)
}

func TestStartWaitsForTheChildrenOfAKilledServer(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	s := start(t, Options{DataDir: dir})
	writeNote(t, s.DSN(), "kept")
	// A stopped child keeps the old shared memory attached until it is continued.
	child := int(connect(t, s.DSN()).PgConn().PID())
	if err := syscall.Kill(child, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.postmaster.pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Exited()
	stop(t, s)
	refused := false
	logger := slog.New(slog.NewTextHandler(writerFunc(func(line []byte) {
		if strings.Contains(string(line), "last processes of a killed server") {
			refused = true
			_ = syscall.Kill(child, syscall.SIGCONT)
		}
	}), nil))
	again := start(t, Options{DataDir: dir, Logger: logger})
	wantNote(t, again.DSN(), "kept")
	if !refused {
		t.Error("the child did not stand in the way: the test shows nothing")
	}
}

func TestStalePostmasterPIDOfAnotherProgram(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	s := start(t, Options{DataDir: dir})
	writeNote(t, s.DSN(), "kept")
	stop(t, s)
	// A program of the server's own user, which PostgreSQL takes for a server.
	innocent := s.account.command(testContext(t), "/", "/bin/sleep", "600")
	if err := innocent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = innocent.Process.Kill(); _ = innocent.Wait() })
	pidFile := filepath.Join(s.pgdata(), postmasterPIDName)
	write(t, pidFile, strconv.Itoa(innocent.Process.Pid)+"\n"+s.pgdata()+"\n", 0o600)
	if err := s.account.own(pidFile); err != nil {
		t.Fatal(err)
	}

	again := start(t, Options{DataDir: dir})
	wantNote(t, again.DSN(), "kept")
	if err := syscall.Kill(innocent.Process.Pid, 0); err != nil {
		t.Errorf("the other program was ended: %v", err)
	}
}

func TestAKilledInitdbLeavesNothingHalfMade(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	half := filepath.Join(dir, newPgdata+"123")
	write(t, filepath.Join(half, "PG_VERSION"), "15\n", 0o600)
	s := start(t, Options{DataDir: dir})
	writeNote(t, s.DSN(), "fine")
	wantMissing(t, half)
}

func TestAFailedInitdbLeavesNothing(t *testing.T) {
	t.Parallel()
	requirePostgres(t)
	dir := tempDir(t)
	bin := fakeBinaries(t, filepath.Join(dir, "bin"), "17.5")
	write(t, filepath.Join(bin, "initdb"), "#!/bin/sh\n[ $1 = --version ] && echo 'initdb (PostgreSQL) 17.5' && exit\necho 'disk is full' >&2\nexit 1\n", 0o755)
	data := filepath.Join(dir, "data")
	_, err := Start(testContext(t), Options{DataDir: data, BinDir: bin})
	wantInError(t, err, "initdb", "disk is full")
	entries, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), pgdataName) {
			t.Errorf("%s is left, want no data directory", e.Name())
		}
	}
}

func TestAKillBeforeTheDatabaseWasMade(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	s := start(t, Options{DataDir: dir})
	execSQL(t, dsn(s.socketDir, "postgres"), "DROP DATABASE ledger")
	stop(t, s)
	again := start(t, Options{DataDir: dir})
	if got := ask(t, again.DSN(), "SELECT current_database()"); got != "ledger" {
		t.Errorf("database = %q, want ledger", got)
	}
}

func TestAnEmptyPgdataIsTakenForNew(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	if err := os.Mkdir(filepath.Join(dir, pgdataName), 0o700); err != nil {
		t.Fatal(err)
	}
	start(t, Options{DataDir: dir})
}

func TestSweepRemovesWhatAKilledRunLeft(t *testing.T) {
	t.Parallel()
	parent := tempDir(t)
	// A server that keeps data, in a directory named like an ephemeral one, lives
	// on when its process is killed, whatever the system can do about the other
	// kind.
	abandoned := startHelper(t, filepath.Join(parent, ephemeralPrefix+"abandoned"))
	abandoned.kill(t)
	used := startHelper(t, filepath.Join(parent, ephemeralPrefix+"used"))
	beingMade := filepath.Join(parent, ephemeralPrefix+"being-made")
	neverMade := filepath.Join(parent, ephemeralPrefix+"never-made")
	for _, dir := range []string{beingMade, neverMade} {
		mkdir(t, dir)
	}
	long := time.Now().Add(-2 * abandonedAge)
	if err := os.Chtimes(neverMade, long, long); err != nil {
		t.Fatal(err)
	}
	unrelated := filepath.Join(parent, "unrelated")
	write(t, unrelated, "x", 0o600)

	sweep(testContext(t), parent, slog.New(slog.DiscardHandler))

	wantMissing(t, abandoned.dir)
	wantMissing(t, abandoned.socketDir)
	wantMissing(t, neverMade)
	if isPostmaster(abandoned.postmasterPID, filepath.Join(abandoned.dir, pgdataName)) {
		t.Errorf("the orphan %d still runs", abandoned.postmasterPID)
	}
	for _, path := range []string{used.dir, beingMade, unrelated} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%v, want that it is left alone", err)
		}
	}
	writeNote(t, used.dsn, "alive")
}

// Not parallel: it changes TMPDIR, so that no other test's sweep comes first.
func TestAnEphemeralServerIsGoneAfterTheNextOne(t *testing.T) {
	t.Setenv("TMPDIR", tempDir(t))
	h := startHelper(t, "")
	h.kill(t)
	if runtime.GOOS == "linux" {
		waitDead(t, h.postmasterPID, filepath.Join(h.dir, pgdataName)) // by itself
	}
	s := start(t, Options{Ephemeral: true})
	wantMissing(t, h.dir)
	wantMissing(t, h.socketDir)
	if isPostmaster(h.postmasterPID, filepath.Join(h.dir, pgdataName)) {
		t.Errorf("the server %d still runs", h.postmasterPID)
	}
	writeNote(t, s.DSN(), "alive")
}

func TestSocketDirsOfOthersAreNotRemoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "etc")
	write(t, filepath.Join(dir, "passwd"), "x", 0o600)
	if err := removeSocketDir(dir); err == nil {
		t.Error("a directory of another name was accepted")
	}
	named := filepath.Join(tempDir(t), socketPrefix+"1")
	write(t, filepath.Join(named, "passwd"), "x", 0o600)
	if err := removeSocketDir(named); err == nil {
		t.Error("a directory with other files in it was removed")
	}
	if _, err := os.Stat(filepath.Join(named, "passwd")); err != nil {
		t.Error(err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

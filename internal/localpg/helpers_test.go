package localpg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// helperEnv makes the test binary a process that runs a server on the directory
// that it names, so that a test can kill it.
const helperEnv = "LOCALPG_TEST_HELPER_DIR"

func TestMain(m *testing.M) {
	if dir, ok := os.LookupEnv(helperEnv); ok {
		os.Exit(helperMain(dir))
	}
	// The tightest that anyone works with: what another user must read or enter has
	// to be opened on purpose.
	syscall.Umask(0o077)
	os.Exit(m.Run())
}

// helperMain says where its server is, and stops it when its input ends: a test
// that dies leaves no helper behind.
func helperMain(dir string) int {
	ctx := context.Background()
	s, err := Start(ctx, Options{DataDir: dir, Ephemeral: dir == "", NoDownload: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Printf("%d\n%s\n%s\n%s\n", s.postmaster.pid(), s.dir, s.socketDir, s.DSN())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// helper is a running helper process.
type helper struct {
	cmd           *exec.Cmd
	postmasterPID int
	dir           string
	socketDir     string
	dsn           string
}

// startHelper starts a helper on dir, or on an ephemeral directory where dir is
// empty. Unless the test kills it, it is stopped in order at the test's end.
func startHelper(t *testing.T, dir string) *helper {
	t.Helper()
	requirePostgres(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the helper: %v", err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	var lines []string
	for scanner := bufio.NewScanner(out); len(lines) < 4; {
		if !scanner.Scan() {
			t.Fatalf("the helper said %q and ended", lines)
		}
		lines = append(lines, scanner.Text())
	}
	pid, err := strconv.Atoi(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	return &helper{cmd: cmd, postmasterPID: pid, dir: lines[1], socketDir: lines[2], dsn: lines[3]}
}

// kill is kill -9, and waits until the process is gone and its lock with it.
func (h *helper) kill(t *testing.T) {
	t.Helper()
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatalf("kill the helper: %v", err)
	}
	_ = h.cmd.Wait()
}

// requirePostgres skips a test on a machine without PostgreSQL, and fails it in
// CI, where a skipped test would pass for a green one.
func requirePostgres(t *testing.T) string {
	t.Helper()
	dir, err := FindBinaries(Options{Ephemeral: true})
	if err == nil {
		return dir
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("this test needs a local PostgreSQL: %v", err)
	}
	t.Skipf("SKIPPED, NOTHING WAS TESTED: this test needs a local PostgreSQL: %v", err)
	return ""
}

// tempDir is a directory that the server's user can enter, which t.TempDir, below
// a directory of mode 0700, is not. Its path is short enough for anything.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "localpg-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the test's directory: %v", err)
		}
	})
	return dir
}

// testContext bounds what would otherwise hang; no test expects to reach it.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start starts a server that is stopped at the test's end.
func start(t *testing.T, o Options) *Server {
	t.Helper()
	requirePostgres(t)
	o.NoDownload = o.DownloadURL == ""
	s, err := Start(testContext(t), o)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Stop(testContext(t)); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if pid := s.postmaster.pid(); isPostmaster(pid, s.pgdata()) {
		t.Errorf("postgres %d still runs after Stop", pid)
	}
	wantMissing(t, s.socketDir)
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	ctx := testContext(t)
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(ctx) })
	return conn
}

func execSQL(t *testing.T, dsn, sql string) {
	t.Helper()
	if _, err := connect(t, dsn).Exec(testContext(t), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func ask(t *testing.T, dsn, sql string) string {
	t.Helper()
	var answer string
	if err := connect(t, dsn).QueryRow(testContext(t), sql).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

// writeNote and readNote tell whether data survives.
func writeNote(t *testing.T, dsn, text string) {
	t.Helper()
	execSQL(t, dsn, "CREATE TABLE IF NOT EXISTS notes (text text); INSERT INTO notes VALUES ('"+text+"')")
}

func wantNote(t *testing.T, dsn, want string) {
	t.Helper()
	if got := ask(t, dsn, "SELECT string_agg(text, ',') FROM notes"); got != want {
		t.Errorf("notes = %q, want %q", got, want)
	}
}

func wantMissing(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: got %v, want that it is gone", path, err)
	}
}

func wantMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("mode of %s = %o, want %o", path, got, want)
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	mkdir(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// mkdir makes a directory and its parents such that the server's user can enter
// them.
func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := ensureDir(dir, &account{}); err != nil {
		t.Fatal(err)
	}
}

// waitDead waits for the end of a process that is not our child, and may stay a
// zombie.
func waitDead(t *testing.T, pid int, pgdata string) {
	t.Helper()
	ctx := testContext(t)
	for isPostmaster(pid, pgdata) {
		if ctx.Err() != nil {
			t.Fatalf("postgres %d did not end", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// fakeBinaries writes programs that report a version and do nothing else.
func fakeBinaries(t *testing.T, dir, version string) string {
	t.Helper()
	for _, p := range programs {
		write(t, filepath.Join(dir, p), "#!/bin/sh\necho '"+p+" (PostgreSQL) "+version+"'\n", 0o755)
	}
	return dir
}

// forwarding writes programs that run the real ones.
func forwarding(t *testing.T, dir, realDir string) string {
	t.Helper()
	for _, p := range programs {
		write(t, filepath.Join(dir, p), "#!/bin/sh\nexec "+shellQuote(filepath.Join(realDir, p))+" \"$@\"\n", 0o755)
	}
	return dir
}

func wantInError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("error = nil, want one that says %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error = %q, want that it says %q", err, p)
		}
	}
}

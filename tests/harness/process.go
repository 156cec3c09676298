// Package harness runs the real binary and moves money through it, for tests of
// the whole process: replicas, a database of their own, callers who insist.
package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/testdb"
)

var binary string

// Build builds the binary that Serve and its like run. It goes with the test.
func Build(t *testing.T) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "ledger")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/ledger").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

// Command is the binary with these arguments, without settings of the test's own environment.
func Command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LEDGER_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

// RunToEnd runs a command that ends by itself.
func RunToEnd(t *testing.T, args ...string) (status int, stderr string) {
	t.Helper()
	cmd := Command(t, args...)
	var text bytes.Buffer
	cmd.Stderr = &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
	defer late.Stop()
	cmd.Wait()
	return cmd.ProcessState.ExitCode(), text.String()
}

// A Process is a running `ledger serve` or `ledger work`.
type Process struct {
	URL  string
	Cmd  *exec.Cmd
	Done chan struct{} // closed when it has ended and its log is complete

	killed bool

	mu  sync.Mutex
	log []string
}

// Serve starts a replica on the database and returns when it listens.
func Serve(t *testing.T, database string, flags ...string) *Process {
	t.Helper()
	return Start(t, append([]string{"--database-url", database}, flags...)...)
}

// Start starts `ledger serve`, which is stopped, and must stop well, at the
// test's end at the latest.
func Start(t *testing.T, flags ...string) *Process {
	t.Helper()
	return StartCommand(t, Command(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...))
}

// Work starts `ledger Work` on the database. Its url has the metrics alone.
func Work(t *testing.T, database string, flags ...string) *Process {
	t.Helper()
	return StartCommand(t, Command(t, append([]string{"work", "--database-url", database, "--metrics-addr", "127.0.0.1:0"}, flags...)...))
}

// StartCommand starts a command that listens, as Start does.
func StartCommand(t *testing.T, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Done: make(chan struct{}), Cmd: cmd}
	stderr, err := p.Cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan string, 1)
	go p.follow(stderr, listening)
	t.Cleanup(func() {
		p.Stop(t)
		if t.Failed() {
			lines := p.Lines()
			t.Logf("the end of the log of %s:\n%s", p.URL, strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	})
	select {
	case address := <-listening:
		p.URL = "http://" + address
	case <-p.Done:
		t.Fatalf("the process ended at once:\n%s", strings.Join(p.Lines(), "\n"))
	case <-time.After(30 * time.Second):
		t.Fatal("the process does not listen")
	}
	return p
}

// follow keeps the log, and reports the address that it names.
func (p *Process) follow(stderr io.Reader, listening chan<- string) {
	defer close(p.Done)
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		p.mu.Lock()
		p.log = append(p.log, lines.Text())
		p.mu.Unlock()
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && (line.Msg == "listening" || line.Msg == "serving metrics") {
			listening <- line.Address
		}
	}
	p.Cmd.Wait()
}

// Lines are those of its log.
func (p *Process) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log[:len(p.log):len(p.log)]
}

// Stop asks the process to end, and fails the test unless it does with status
// 0 and in time. Further calls do nothing.
func (p *Process) Stop(t *testing.T) {
	t.Helper()
	select {
	case <-p.Done:
	default:
		p.Cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-p.Done:
		if status := p.Cmd.ProcessState.ExitCode(); status != 0 && !p.killed {
			t.Errorf("the process ended with status %d, want 0:\n%s", status, strings.Join(p.Lines(), "\n"))
		}
	case <-time.After(25 * time.Second):
		p.Cmd.Process.Kill()
		t.Error("the process did not end within 25 s of SIGTERM")
	}
}

// Kill ends the process as a loss of power does: it is told nothing.
func (p *Process) Kill(t *testing.T) {
	t.Helper()
	p.killed = true
	if err := p.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.Done
}

// Get returns the status of an answer, or 0 where there was none.
func (p *Process) Get(path string) (status int) {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(p.URL + path)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// WaitReady waits until /readyz answers want.
func (p *Process) WaitReady(t *testing.T, want int, within time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(within); p.Get("/readyz") != want; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s/readyz is %d after %v, want %d", p.URL, p.Get("/readyz"), within, want)
		}
	}
}

// EmptyURL is the URL of a database of the test's own with nothing in it.
func EmptyURL(t *testing.T) string {
	t.Helper()
	url := testdb.URL(t)
	Ask[string](t, url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public; SELECT ''::text")
	return url
}

// Ask returns the one value that the last statement of sql selects.
func Ask[T any](t *testing.T, url, sql string) (value T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	results, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	last := results[len(results)-1]
	if len(last.Rows) != 1 {
		t.Fatalf("%s: %d rows, want 1", sql, len(last.Rows))
	}
	if err := conn.TypeMap().Scan(last.FieldDescriptions[0].DataTypeOID, pgx.TextFormatCode, last.Rows[0][0], &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// WaitLogged waits for a line of the log that contains part.
func (p *Process) WaitLogged(t *testing.T, part string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(strings.Join(p.Lines(), "\n"), part) {
			return
		}
	}
	t.Fatalf("the log has no line with %q", part)
}

// WantVerified checks that `ledger verify` finds nothing.
func WantVerified(t *testing.T, database string) {
	t.Helper()
	if status, text := RunToEnd(t, "verify", "--database-url", database); status != 0 {
		t.Errorf("ledger verify: status %d, want 0: %s", status, text)
	}
}

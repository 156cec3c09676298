// Package operations_test runs the real binary as its operators do: replicas
// that start together, rolling restarts, a database that dies.
package operations_test

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

func TestMain(m *testing.M) { testdb.Main(m) }

// TestOperations is one test, so that one binary serves all of it and goes with
// it.
func TestOperations(t *testing.T) {
	binary = filepath.Join(t.TempDir(), "ledger")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/ledger").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, test := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"Refusals", testRefusals},
		{"ReplicasStartTogether", testReplicasStartTogether},
		{"WaitsUntilSomebodyMigrated", testWaitsUntilSomebodyMigrated},
		{"RollingRestartBehindBalancer", testRollingRestartBehindBalancer},
		{"SIGTERMUnderLoad", testSIGTERMUnderLoad},
		{"PrivateServerStopsLast", testPrivateServerStopsLast},
		{"PostgresKilled", testPostgresKilled},
		{"ConnectionsExhausted", testConnectionsExhausted},
		{"ReplicaFrozen", testReplicaFrozen},
		{"TokensAreReadAgain", testTokensAreReadAgain},
		{"SlowCallersAreCut", testSlowCallersAreCut},
		{"ALockedAccountHoldsUpNobodyElse", testALockedAccountHoldsUpNobodyElse},
		{"HintsAndVerify", testHintsAndVerify},
		{"UnsafeModeSaysSo", testUnsafeModeSaysSo},
		{"MigratesAsAnotherRole", testMigratesAsAnotherRole},
		{"KeysExpire", testKeysExpire},
		{"HoldsExpire", testHoldsExpire},
		{"HangupStops", testHangupStops},
		{"Lab", testLab},
		{"Walkthrough", testWalkthrough},
		{"MixedLoadKilled", testMixedLoadKilled},
		{"PaymentsAreMade", testPaymentsAreMade},
		{"WorkersKilled", testWorkersKilled},
		{"WorkerFrozen", testWorkerFrozen},
		{"WorkersStop", testWorkersStop},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}

var binary string

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LEDGER_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

// runToEnd runs a command that ends by itself.
func runToEnd(t *testing.T, args ...string) (status int, stderr string) {
	t.Helper()
	cmd := command(t, args...)
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

// A process is a running `ledger serve` or `ledger work`.
type process struct {
	url  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and its log is complete

	killed bool

	mu  sync.Mutex
	log []string
}

// serve starts a replica on the database and returns when it listens.
func serve(t *testing.T, database string, flags ...string) *process {
	t.Helper()
	return start(t, append([]string{"--database-url", database}, flags...)...)
}

// start starts `ledger serve`, which is stopped, and must stop well, at the
// test's end at the latest.
func start(t *testing.T, flags ...string) *process {
	t.Helper()
	return startCommand(t, command(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...))
}

// work starts `ledger work` on the database. Its url has the metrics alone.
func work(t *testing.T, database string, flags ...string) *process {
	t.Helper()
	return startCommand(t, command(t, append([]string{"work", "--database-url", database, "--metrics-addr", "127.0.0.1:0"}, flags...)...))
}

func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{done: make(chan struct{}), cmd: cmd}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan string, 1)
	go p.follow(stderr, listening)
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			lines := p.lines()
			t.Logf("the end of the log of %s:\n%s", p.url, strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	})
	select {
	case address := <-listening:
		p.url = "http://" + address
	case <-p.done:
		t.Fatalf("the process ended at once:\n%s", strings.Join(p.lines(), "\n"))
	case <-time.After(30 * time.Second):
		t.Fatal("the process does not listen")
	}
	return p
}

// follow keeps the log, and reports the address that it names.
func (p *process) follow(stderr io.Reader, listening chan<- string) {
	defer close(p.done)
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		p.mu.Lock()
		p.log = append(p.log, lines.Text())
		p.mu.Unlock()
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && (line.Msg == "listening" || line.Msg == "serving metrics") {
			listening <- line.Address
		}
	}
	p.cmd.Wait()
}

func (p *process) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log[:len(p.log):len(p.log)]
}

// stop asks the process to end, and fails the test unless it does with status
// 0 and in time. Further calls do nothing.
func (p *process) stop(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
	default:
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-p.done:
		if status := p.cmd.ProcessState.ExitCode(); status != 0 && !p.killed {
			t.Errorf("the process ended with status %d, want 0:\n%s", status, strings.Join(p.lines(), "\n"))
		}
	case <-time.After(25 * time.Second):
		p.cmd.Process.Kill()
		t.Error("the process did not end within 25 s of SIGTERM")
	}
}

// kill ends the process as a loss of power does: it is told nothing.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.killed = true
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
}

// get returns the status of an answer, or 0 where there was none.
func (p *process) get(path string) (status int) {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(p.url + path)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// waitReady waits until /readyz answers want.
func (p *process) waitReady(t *testing.T, want int, within time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(within); p.get("/readyz") != want; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s/readyz is %d after %v, want %d", p.url, p.get("/readyz"), within, want)
		}
	}
}

// emptyURL is the URL of a database of the test's own with nothing in it.
func emptyURL(t *testing.T) string {
	t.Helper()
	url := testdb.URL(t)
	ask[string](t, url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public; SELECT ''::text")
	return url
}

// ask returns the one value that the last statement of sql selects.
func ask[T any](t *testing.T, url, sql string) (value T) {
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

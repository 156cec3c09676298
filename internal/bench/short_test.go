package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// TestTheProgram runs everything once and shortly, as a user does: it is about
// what is measured at all, and not about how fast anything is.
func TestTheProgram(t *testing.T) {
	t.Parallel()
	p := program{path: filepath.Join(t.TempDir(), "ledger")}
	if out, err := exec.Command("go", "build", "-o", p.path, "../../cmd/ledger").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	for name, test := range map[string]func(*testing.T, program){
		"compare": testCompare, "workloads": testWorkloads, "open loop": testOpenLoop,
		"a running service": testRunningService, "interrupt": testInterrupt, "flags": testFlags, "batches": testBatches, "payments": testPayments,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := p
			p.url = testdb.URL(t)
			test(t, p)
			wantNoSchemas(t, p.url)
		})
	}
}

// A program is the binary and its database.
type program struct{ path, url string }

func (p program) command(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	cmd = exec.Command(p.path, append([]string{"bench"}, args...)...)
	cmd.Env = append(os.Environ(), "LEDGER_DATABASE_URL="+p.url)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// short makes one measurement a matter of an instant.
var short = []string{"--accounts=11", "--warmup=20ms", "--duration=150ms"}

// measure runs the program shortly and reads its JSON into v. Where the machine
// was so slow that nothing was answered, it measures for longer.
func (p program) measure(t *testing.T, v any, args ...string) {
	t.Helper()
	args = append(args, short...)
	for duration := 600 * time.Millisecond; ; duration *= 4 {
		stderr, err := p.try(t, v, args)
		if err == nil {
			return
		}
		if duration > time.Minute || !strings.Contains(stderr, "no transfer was answered") {
			t.Fatalf("%v: %v\n%s", args, err, stderr)
		}
		args = append(args, "--duration="+duration.String())
	}
}

// run is measure for what takes no time.
func (p program) run(t *testing.T, v any, args ...string) {
	t.Helper()
	if stderr, err := p.try(t, v, args); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, stderr)
	}
}

func (p program) try(t *testing.T, v any, args []string) (string, error) {
	t.Helper()
	cmd, stdout, stderr := p.command(t, append(args[:len(args):len(args)], "--format=json")...)
	if err := cmd.Run(); err != nil {
		return stderr.String(), err
	}
	return stderr.String(), json.Unmarshal(stdout.Bytes(), v)
}

func wantNoSchemas(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var left int
	const countSchemasSQL = `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'ledger\_%'`
	if err := conn.QueryRow(t.Context(), countSchemasSQL).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("%d schemas are left, want none", left)
	}
}

func testCompare(t *testing.T, p program) {
	dir := t.TempDir()
	results, page := filepath.Join(dir, "results.jsonl"), filepath.Join(dir, "page.html")
	args := []string{"compare", "--modes=pessimistic,none", "--group-sizes=default", "--workloads=uniform,hot", "--clients=2",
		"--preload=0,101", "--rounds=1", "--results=" + results, "--html=" + page, "--charts=" + dir}
	var first, again Summary
	p.measure(t, &first, args...)
	services := 0
	for _, r := range first.Rows {
		if r.PerSecond.Median <= 0 || r.Rounds != 1 || r.Failed > 0 {
			t.Errorf("%s, %s: %+v", r.Name(), r.Workload, r)
		}
		if r.Mode != "none" && len(r.Findings) > 0 {
			t.Errorf("%s, %s: %v", r.Name(), r.Workload, r.Findings)
		}
		if r.Kind == Service {
			services++
			if r.ToBase.Median <= 0 || r.WAL <= 0 || r.Latency.P50 <= 0 || r.PeakRSS <= 0 {
				t.Errorf("%s, %s: figures are missing: %+v", r.Name(), r.Workload, r)
			}
		}
	}
	if services != 8 || first.Machine.Settings["fsync"] == "" {
		t.Errorf("%d cells of services, machine %v; want 8 and its settings", services, first.Machine)
	}
	if text, err := os.ReadFile(page); err != nil || !bytes.Contains(text, []byte("<svg")) {
		t.Errorf("the page: %v, %.100s", err, text)
	}
	before, err := os.ReadFile(results)
	if err != nil {
		t.Fatal(err)
	}
	p.measure(t, &again, args...)
	if after, err := os.ReadFile(results); err != nil || !bytes.Equal(before, after) {
		t.Errorf("what was measured was measured again (%v)", err)
	}
	if len(again.Rows) != len(first.Rows) {
		t.Errorf("%d rows from the file, want %d", len(again.Rows), len(first.Rows))
	}
}

func testWorkloads(t *testing.T, p program) {
	for _, w := range Workloads() {
		var r Result
		args := []string{"run", "--workload=" + w.Name, "--clients=3"}
		if w.Locks { // or the test would wait with those who wait
			args = append(args, "--serve-flag=--lock-timeout=50ms")
		}
		p.measure(t, &r, args...)
		if r.Made == 0 || r.Failed() > 0 && !w.Locks || !r.Verdict.Verified || len(r.Verdict.Findings) > 0 {
			t.Errorf("%s: %d made, %v, %+v", w.Name, r.Made, r.Codes, r.Verdict)
		}
		if refused := r.Codes[refusedCode] > 0; refused != w.Declines {
			t.Errorf("%s: refused %d", w.Name, r.Codes[refusedCode])
		}
	}
}

func testBatches(t *testing.T, p program) {
	var r Result
	p.measure(t, &r, "run", "--batch=100", "--clients=2")
	if r.Made == 0 || r.Made%100 != 0 || r.Failed() > 0 || !r.Verdict.Verified || len(r.Verdict.Findings) > 0 {
		t.Errorf("%d made, %v, %+v, want whole batches of 100", r.Made, r.Codes, r.Verdict)
	}
}

func testOpenLoop(t *testing.T, p program) {
	var r Result
	p.measure(t, &r, "run", "--rate=100", "--clients=4", "--no-keys")
	// 15 are meant to begin while measured, and a late one is still one of them.
	if r.Answered() < 14 || r.Answered() > 16 || r.Keys {
		t.Errorf("%d answered, keys %v; want about 15 without keys", r.Answered(), r.Keys)
	}
}

func testRunningService(t *testing.T, p program) {
	b := &Bench{Binary: p.path, Serve: []string{"--migrate"}}
	s, err := b.startService(t.Context(), Cell{Mode: "atomic"}, p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	}()
	var r Result
	for range 2 { // its second ledger is the first one's
		p.measure(t, &r, "run", "--url="+s.url, "--clients=2")
		if r.Made == 0 || !r.Verdict.Verified || len(r.Verdict.Findings) > 0 {
			t.Errorf("%d made, %v, %+v", r.Made, r.Codes, r.Verdict)
		}
	}
	cmd, stdout, stderr := p.command(t, append([]string{"run", "--url=" + s.url, "--database-url=", "--clients=2"}, short...)...)
	if err := cmd.Run(); err != nil || !strings.Contains(stdout.String(), "not verified") {
		t.Errorf("without a database: %v\n%s%s", err, stdout, stderr)
	}
}

func testInterrupt(t *testing.T, p program) {
	results := filepath.Join(t.TempDir(), "results.jsonl")
	cmd, stdout, stderr := p.command(t, append([]string{"compare", "--modes=pessimistic", "--group-sizes=default", "--workloads=uniform",
		"--clients=2", "--rounds=1000", "--preload=11", "--results=" + results}, short...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if text, _ := os.ReadFile(results); bytes.Count(text, []byte("\n")) >= 4 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing was measured:\n%s", stderr)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("status %v, want 1\n%s", err, stderr)
	}
	if !strings.Contains(stdout.String(), "pgbench") {
		t.Errorf("what was measured is not told:\n%s\n%s", stdout, stderr)
	}
}

func testFlags(t *testing.T, p program) {
	for _, args := range [][]string{
		{"run", "--workload=nonsense"}, {"run", "--clients=0"}, {"run", "--group-size=many"}, {"run", "--accounts=1"},
		{"run", "--workload=declines", "--preload=10"}, {"run", "--duration=0s"}, {"run", "--rate=-1"}, {"run", "--setting=fsync=off"},
		{"run", "--serve-flag=--nonsense"}, {"compare", "--modes=nonsense"}, {"compare", "--clients=0"}, {"compare", "--rounds=0"},
		{"compare", "--preload=-1"}, {"compare", "--group-sizes=0"}, {"compare", "--share=1"},
	} {
		cmd, _, stderr := p.command(t, args...)
		if err := cmd.Run(); err == nil || stderr.Len() == 0 {
			t.Errorf("%v: %v, %q; want a failure that is told", args, err, stderr)
		}
	}
}

// Both queues make all payments, and a claim that holds vacuum back as well.
func testPayments(t *testing.T, p program) {
	for _, flags := range [][]string{{"--workers=1,3", "--groups=1,7"}, {"--queues=skip-locked", "--workers=2", "--groups=10", "--finished=50", "--snapshot"}} {
		charts := t.TempDir()
		var s PaymentSummary
		p.run(t, &s, append([]string{"payments", "--payments=60", "--accounts=11", "--rounds=2", "--charts=" + charts}, flags...)...)
		for _, r := range s.Rows {
			if r.Rounds != 2 || r.PerSecond.Min <= 0 || len(r.Findings) > 0 || (r.Claim > 0) != (r.Queue == SkipLocked) {
				t.Errorf("row = %+v", r)
			}
		}
		if want := map[bool]int{true: 8, false: 1}[len(flags) == 2]; len(s.Rows) != want {
			t.Errorf("%d rows, want %d", len(s.Rows), want)
		}
		if _, err := os.Stat(filepath.Join(charts, "queued-payments-by-workers.svg")); err != nil {
			t.Error(err)
		}
	}
}

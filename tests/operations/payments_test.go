package operations_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/tests/harness"
)

// twoAccounts opens two accounts and gives the first one money.
func twoAccounts(t *testing.T, p *harness.Process) (rich, poor string) {
	t.Helper()
	for i, id := range []*string{&rich, &poor} {
		account := harness.Post(http.DefaultClient, p.URL+"/v1/accounts", fmt.Sprint("open", i), map[string]string{"currency": "USD"})
		if account.Status != 201 {
			t.Fatalf("open an account: %v", account)
		}
		*id = account.Body.ID
	}
	credit := harness.Post(http.DefaultClient, p.URL+"/v1/credits", "fund", map[string]string{"account_id": rich, "amount": "1000000.00", "currency": "USD"})
	if credit.Status != 201 {
		t.Fatalf("fund an account: %v", credit)
	}
	return rich, poor
}

// enqueue asks for a payment of 1.00 and returns its id.
func enqueue(t *testing.T, p *harness.Process, key, debit, credit string) string {
	t.Helper()
	a := harness.Post(http.DefaultClient, p.URL+"/v1/payments", key,
		map[string]string{"debit_account_id": debit, "credit_account_id": credit, "amount": "1.00", "currency": "USD"})
	if a.Status != 202 {
		t.Fatalf("enqueue: %v, want 202", a)
	}
	return a.Body.ID
}

// until waits until the database answers sql with want.
func until(t *testing.T, database, sql string, want int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		got := harness.Ask[int](t, database, sql)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d after two minutes, want %d", sql, got, want)
		}
	}
}

const countDoneSQL = `SELECT count(*) FROM payments WHERE status = 'done'`

// By the service itself, and by a process of its own that hears of them.
func testPaymentsAreMade(t *testing.T) {
	database := testdb.URL(t)
	service := harness.Serve(t, database)
	rich, poor := twoAccounts(t, service)
	enqueue(t, service, "one", rich, poor)
	until(t, database, countDoneSQL, 1)
	service.Stop(t)

	idle := harness.Serve(t, database, "--workers", "0")
	worker := harness.Work(t, database, "--payment-poll", "1h")
	until(t, database, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'ledger-listener' AND state = 'idle'`, 1)
	enqueue(t, idle, "two", rich, poor)
	until(t, database, countDoneSQL, 2)
	if text := metricsOf(t, worker); !strings.Contains(text, `ledger_payment_attempts_total{code="done"} 1`) {
		t.Errorf("the worker's metrics do not have its payment:\n%s", text)
	}
	harness.WantVerified(t, database)
}

func metricsOf(t *testing.T, p *harness.Process) string {
	t.Helper()
	response, err := http.Get(p.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fillQueue queues n payments of 0.01.
func fillQueue(t *testing.T, database, debit, credit string, n int) {
	t.Helper()
	harness.Ask[string](t, database, fmt.Sprintf(`
		INSERT INTO payments (id, debit_account_id, credit_account_id, amount, currency, max_attempts, run_at, status, queued_at)
		SELECT gen_random_uuid(), '%s', '%s', 0.01, 'USD', 1, now(), 'queued', clock_timestamp() FROM generate_series(1, %d);
		SELECT ''::text`, debit, credit, n))
}

// kill -9 in the middle of the work: nothing is lost, nothing is made twice, and
// no attempt is counted.
func testWorkersKilled(t *testing.T) {
	database := testdb.URL(t)
	rich, poor := twoAccounts(t, harness.Serve(t, database, "--workers", "0"))
	const payments = 3000
	fillQueue(t, database, rich, poor, payments)
	for deadline := time.Now().Add(3 * time.Minute); harness.Ask[int](t, database, countDoneSQL) < payments && time.Now().Before(deadline); {
		worker := harness.Command(t, "work", "--database-url", database, "--workers", "4", "--payment-group", "5")
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300*time.Millisecond + rand.N(300*time.Millisecond))
		worker.Process.Kill()
		worker.Wait()
	}
	until(t, database, `SELECT count(*) FROM payments WHERE status <> 'done' OR attempts <> 1`, 0)
	until(t, database, `SELECT count(*) FROM payments p JOIN transfers t ON t.id = p.id`, payments)
	harness.WantVerified(t, database)
}

// A hook is a system that is asked about payments.
type hook struct {
	*httptest.Server
	flags []string // that make a worker ask it
	asked atomic.Int32
}

func newHook(t *testing.T, answer func(nth int32) (decision string)) *hook {
	t.Helper()
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		decision := answer(h.asked.Add(1))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"decision":%q}`, decision)
	}))
	t.Cleanup(h.Close)
	secrets := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(secrets, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.flags = []string{"--payment-hook", h.URL, "--payment-hook-secret-file", secrets, "--payment-lease", "3s",
		"--payment-hook-timeout", "1m", "--payment-min-pause", "100ms", "--payment-poll", "100ms"}
	return h
}

// A worker is stopped while it asks, for longer than its lease, and goes on when
// another one has made the payment.
func testWorkerFrozen(t *testing.T) {
	database := testdb.URL(t)
	service := harness.Serve(t, database, "--workers", "0")
	rich, poor := twoAccounts(t, service)
	asked, answer := make(chan struct{}), make(chan struct{})
	h := newHook(t, func(nth int32) string {
		if nth == 1 {
			close(asked)
			<-answer
		}
		return "allow"
	})
	frozen := harness.Work(t, database, append(h.flags, "--workers", "1")...)
	enqueue(t, service, "one", rich, poor)
	<-asked
	frozen.Cmd.Process.Signal(syscall.SIGSTOP)

	other := harness.Work(t, database, append(h.flags, "--workers", "1")...)
	until(t, database, countDoneSQL, 1)
	close(answer)
	frozen.Cmd.Process.Signal(syscall.SIGCONT)
	const lost = "ledger_payment_lease_losses_total 1"
	for deadline := time.Now().Add(time.Minute); !strings.Contains(metricsOf(t, frozen), lost); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the worker that was frozen does not notice that its lease is over:\n%s", metricsOf(t, frozen))
		}
	}
	if text := metricsOf(t, other); !strings.Contains(text, `ledger_payment_attempts_total{code="lease-expired"} 1`) {
		t.Errorf("nobody took the lease back:\n%s", text)
	}
	until(t, database, `SELECT count(*) FROM payments p JOIN transfers t ON t.id = p.id WHERE p.attempts = 2`, 1)
	harness.WantVerified(t, database)
}

// SIGTERM while the hook is asked: the payment is given back, and no attempt is
// burnt.
func testWorkersStop(t *testing.T) {
	database := testdb.URL(t)
	service := harness.Serve(t, database, "--workers", "0")
	rich, poor := twoAccounts(t, service)
	asked, answer := make(chan struct{}), make(chan struct{})
	h := newHook(t, func(nth int32) string {
		if nth == 1 {
			close(asked)
			<-answer
		}
		return "deny"
	})
	defer close(answer)
	stopped := harness.Work(t, database, append(h.flags, "--workers", "1")...)
	enqueue(t, service, "one", rich, poor)
	<-asked
	stopped.Stop(t)
	until(t, database, `SELECT count(*) FROM payments WHERE status = 'queued' AND attempts = 0`, 1)
	harness.Work(t, database, h.flags...)
	until(t, database, `SELECT count(*) FROM payments WHERE status = 'failed' AND last_code = 'payment-denied' AND attempts = 1`, 1)
	harness.WantVerified(t, database)
}

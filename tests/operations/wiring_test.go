package operations_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/tests/harness"
)

// What `ledger serve` prints to be pasted works as pasted, and `ledger verify`
// passes what it made, and not what was damaged afterwards.
func testHintsAndVerify(t *testing.T) {
	db := testdb.New(t)
	stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	cmd := harness.Command(t, "serve", "--listen", "127.0.0.1:0", "--database-url", db.URL)
	cmd.Stdout = stdout
	p := harness.StartCommand(t, cmd)
	p.WaitReady(t, http.StatusOK, 30*time.Second)
	printed, err := os.ReadFile(stdout.Name())
	if err != nil {
		t.Fatal(err)
	}
	_, calls, _ := strings.Cut(string(printed), "move some of it:")
	text, _, _ := strings.Cut(calls, "Look into the database")
	calls = ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "  ") {
			calls += line
		}
	}
	out, err := exec.Command("sh", "-c", calls).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte(`"credit_balance_after":"200.00"`)) {
		t.Fatalf("the printed calls gave %v:\n%s\n%s", err, calls, out)
	}

	until(t, db.URL, countDoneSQL, 1)

	verify := func() (status int, output string) {
		cmd := harness.Command(t, "verify", "--database-url", db.URL)
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
	if status, out := verify(); status != 0 || !strings.Contains(out, "every invariant holds") {
		t.Errorf("verify: status %d, want 0:\n%s", status, out)
	}
	if _, err := db.Exec(t.Context(), `UPDATE accounts SET balance = balance + 0.01 WHERE name = 'bob'`); err != nil {
		t.Fatal(err)
	}
	if status, out := verify(); status != 1 || !strings.Contains(out, "0.01") {
		t.Errorf("verify of a damaged ledger: status %d, want 1 and the amount:\n%s", status, out)
	}
}

func testUnsafeModeSaysSo(t *testing.T) {
	p := harness.Serve(t, testdb.URL(t), "--mode", "none", "--allow-lost-updates")
	response, err := http.Get(p.URL + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := response.Header.Get("Warning-Loses-Money"); !strings.Contains(got, "none") {
		t.Errorf("the header is %q, want a warning of mode none", got)
	}
	p.WaitLogged(t, "this mode loses money")
}

// The role that serves need not be the one that may make tables.
func testMigratesAsAnotherRole(t *testing.T) {
	database := harness.EmptyURL(t)
	const role = "ledger_serving_only"
	harness.Ask[string](t, database, `DO $$ BEGIN CREATE ROLE `+role+` LOGIN PASSWORD '`+role+`'; EXCEPTION WHEN duplicate_object THEN NULL; END $$; SELECT ''`)
	harness.Ask[string](t, database, `REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO `+role+`; ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO `+role+`; SELECT ''`)
	p := harness.Serve(t, withUser(t, database, role), "--migrate-database-url", database)
	p.WaitReady(t, http.StatusOK, 30*time.Second)
}

func withUser(t *testing.T, database, user string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, user)
	query := u.Query()
	query.Del("user")
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	return u.String()
}

// A key is free again when its time is over and the sweeper has been.
func testKeysExpire(t *testing.T) {
	p := harness.Serve(t, testdb.URL(t), "--idempotency-ttl", "1s")
	open := func() string {
		r, err := http.NewRequest("POST", p.URL+"/v1/accounts", strings.NewReader(`{"currency":"USD"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var account struct{ ID string }
		if err := json.NewDecoder(response.Body).Decode(&account); err != nil || account.ID == "" {
			t.Fatalf("opening an account: %d, error %v", response.StatusCode, err)
		}
		return account.ID
	}
	first := open()
	for deadline := time.Now().Add(time.Minute); open() == first; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the key still names the first account a minute after its time")
		}
	}
}

// An account shows what its expired holds kept as available, though nobody asks
// it for money.
func testHoldsExpire(t *testing.T) {
	database := testdb.URL(t)
	p := harness.Serve(t, database)
	client := &http.Client{}
	account := harness.Post(client, p.URL+"/v1/accounts", "a", harness.Body{"currency": "USD"}).Body.ID
	harness.Post(client, p.URL+"/v1/credits", "c", harness.Body{"account_id": account, "amount": "10.00", "currency": "USD"})
	soon := time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)
	for _, b := range []harness.Body{
		{"debit_account_id": account, "amount": "7.00", "currency": "USD", "expires_at": soon},
		{"debit_account_id": account, "amount": "2.00", "currency": "USD"},
	} {
		if a := harness.Post(client, p.URL+"/v1/holds", uuid.NewString(), b); a.Status != 201 {
			t.Fatalf("hold: %v", a)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		held := harness.Ask[string](t, database, "SELECT held::text FROM accounts WHERE held <> 0")
		if held == "2.00" {
			break
		}
		if held != "9.00" || time.Now().After(deadline) {
			t.Fatalf("%s is held, want 9.00 and, soon, 2.00", held)
		}
	}
	harness.WantVerified(t, database)
}

// Without a token file SIGHUP is what a closed terminal sends.
func testHangupStops(t *testing.T) {
	p := harness.Serve(t, testdb.URL(t))
	p.Cmd.Process.Signal(syscall.SIGHUP)
	select {
	case <-p.Done:
	case <-time.After(25 * time.Second):
		t.Error("ledger serve did not stop on SIGHUP")
	}
}

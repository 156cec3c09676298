package operations_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/tests/harness"
)

// newToken makes a token with `ledger token`, adds its line to file, and
// returns the token.
func newToken(t *testing.T, file, name string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := harness.Command(t, "token", name)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("ledger token: %v\n%s", err, stderr.String())
	}
	_, rest, found := strings.Cut(stderr.String(), "Bearer ")
	token, _, _ := strings.Cut(rest, `"`)
	if !found || token == "" || strings.Contains(stdout.String(), token) {
		t.Fatalf("ledger token printed %q and %q, want the token in the second alone", stdout.String(), stderr.String())
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(stdout.Bytes()); err != nil {
		t.Fatal(err)
	}
	return token
}

func statusFor(t *testing.T, p *harness.Process, token string) int {
	t.Helper()
	r, err := http.NewRequest("GET", p.URL+"/v1/accounts", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

func testTokensAreReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	alice := newToken(t, file, "alice")
	p := harness.Serve(t, testdb.URL(t), "--token-file", file)
	if got := statusFor(t, p, ""); got != http.StatusUnauthorized {
		t.Errorf("without a token: %d, want 401", got)
	}
	if got := statusFor(t, p, alice); got != http.StatusOK {
		t.Errorf("with a token of the file: %d, want 200", got)
	}
	bob := newToken(t, file, "bob")
	if got := statusFor(t, p, bob); got != http.StatusUnauthorized {
		t.Errorf("with a token that was added since: %d, want 401", got)
	}
	p.Cmd.Process.Signal(syscall.SIGHUP)
	p.WaitLogged(t, "token file read again")
	if got := statusFor(t, p, bob); got != http.StatusOK {
		t.Errorf("after SIGHUP: %d, want 200", got)
	}
	if err := os.WriteFile(file, []byte("alice not-a-hash\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Cmd.Process.Signal(syscall.SIGHUP)
	p.WaitLogged(t, "the tokens stay as they were")
	if got := statusFor(t, p, alice); got != http.StatusOK {
		t.Errorf("after SIGHUP with a broken file: %d, want 200", got)
	}
}

// Callers that say nothing, or stop half-way, are cut, and hold up nobody.
func testSlowCallersAreCut(t *testing.T) {
	p := harness.Serve(t, testdb.URL(t), "--request-timeout", "3s", "--statement-timeout", "2s", "--lock-timeout", "1s", "--max-in-flight", "20")
	address := strings.TrimPrefix(p.URL, "http://")
	const callers = 50
	var slow []net.Conn
	for i := range 3 * callers {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		says := []string{
			"",
			"POST /v1/transfers HTTP/1.1\r\nHost: ledger\r\n",
			"POST /v1/transfers HTTP/1.1\r\nHost: ledger\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
		}[i%3]
		if _, err := io.WriteString(conn, says); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	for range 20 {
		if got := statusFor(t, p, ""); got != http.StatusOK {
			t.Errorf("a request beside the slow ones: %d, want 200", got)
		}
	}
	for i, conn := range slow {
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Errorf("caller %d was not cut: %v", i, err)
		}
		if i%3 == 2 && !strings.HasPrefix(string(answer), "HTTP/1.1 408") {
			t.Errorf("caller %d, whose body does not come, was answered %q, want 408", i, answer)
		}
	}
}

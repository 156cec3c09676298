package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// The servers' sessions are fewer than the clients and taken in turn, so that
// the next transaction of a client almost never meets the session of its last.
func TestTransactionPooler(t *testing.T) {
	t.Parallel()
	direct := emptyURL(t)
	pooled := startPgBouncer(t, direct)
	ctx := testContext(t)

	together(t, 4, func(int) error { return postgres.Migrate(ctx, pooled, quiet) })
	open := func(p postgres.Pooler) *postgres.DB {
		return open(t, postgres.Config{URL: pooled, PoolSize: 16, AcquireTimeout: 20 * time.Second, Pooler: p})
	}
	db, other := open(postgres.TransactionPooler), open(postgres.TransactionPooler)
	if err := postgres.Migrated(ctx, db, policy); err != nil {
		t.Errorf("Migrated = %v, want nil", err)
	}
	b := newBank(t, db)
	const workers, moves = 50, 4
	for _, mode := range safeModes() {
		services := []*transfer.Service{service(db, mode), service(other, mode)}
		together(t, workers, func(i int) error {
			for range moves {
				if err := b.move(ctx, services[i%2]); err != nil {
					return fmt.Errorf("%s: %w", mode.Name, err)
				}
			}
			return nil
		})
		checkLedger(t, db)
	}
	if made := countTransfers(t, direct); made < workers*moves {
		t.Errorf("%d transfers were made, want most of %d", made, workers*moves*len(safeModes()))
	}
	wantNoLeftSettings(t, db)
	wantPreparedStatementsFail(t, open(postgres.NoPooler), b)
}

// wantNoLeftSettings: what a transaction sets must not be the next one's.
func wantNoLeftSettings(t *testing.T, db *postgres.DB) {
	t.Helper()
	for range 10 {
		settings, err := retry.Tx(t.Context(), db, pgx.TxOptions{}, retry.Policy{Attempts: 1}, func(ctx context.Context, tx pgx.Tx) (s string, err error) {
			err = tx.QueryRow(ctx, `SELECT concat_ws(' ', current_setting('lock_timeout'), current_setting('statement_timeout'),
				current_setting('idle_in_transaction_session_timeout'), current_setting('plan_cache_mode'))`).Scan(&s)
			return s, err
		})
		if err != nil || settings != "0 0 0 auto" {
			t.Errorf("a new transaction has the settings %q (error %v), want none", settings, err)
		}
	}
}

// wantPreparedStatementsFail is the control: were it not for the setting, this
// pooler would break us, and the test would see it.
func wantPreparedStatementsFail(t *testing.T, db *postgres.DB, b bank) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := service(db, transfer.Pessimistic)
	for range 200 {
		err := b.move(ctx, s)
		var pg *pgconn.PgError
		if errors.As(err, &pg) {
			t.Logf("without the setting: %s %s", pg.Code, pg.Message)
			return
		}
	}
	t.Error("with prepared statements nothing failed: the pooler did not mix the sessions, so this test shows nothing")
}

// startPgBouncer starts PgBouncer in transaction mode in front of the server
// of direct, and returns the URL of the same database through it.
func startPgBouncer(t *testing.T, direct string) string {
	t.Helper()
	program := findPgBouncer(t)
	config, err := pgx.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	// Short, for a socket's path is limited, and open to the user that it runs as.
	dir, err := os.MkdirTemp("/tmp", "ledger-pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ini := fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s %s
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = 5
max_client_conn = 200
server_round_robin = 1
`, config.Host, config.Port, config.User, passwordOf(config), dir)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(ini), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: notRoot(t, dir, file)}
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start PgBouncer: %v", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("PgBouncer's log:\n%s", log.String())
		}
	})
	pooled := fmt.Sprintf("postgres://%s@/%s?host=%s&port=6432", config.User, config.Database, dir)
	waitUntilServing(t, pooled)
	return pooled
}

func passwordOf(c *pgx.ConnConfig) string {
	if c.Password == "" {
		return ""
	}
	return "password='" + strings.ReplaceAll(c.Password, "'", "''") + "'"
}

func findPgBouncer(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	if os.Getenv("LEDGER_TEST_REQUIRE_PGBOUNCER") == "1" {
		t.Fatal("LEDGER_TEST_REQUIRE_PGBOUNCER=1, and there is no pgbouncer")
	}
	t.Skip("SKIPPED, NOTHING WAS TESTED: this test needs PgBouncer (Debian: apt-get install pgbouncer)")
	return ""
}

// notRoot is whom PgBouncer runs as, which refuses root: the user of the test
// server, who then owns the paths. Nil is ourselves.
func notRoot(t *testing.T, paths ...string) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatalf("as root this test needs a user for PgBouncer: %v", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := cmp.Or(err1, err2); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if err := os.Chown(path, int(uid), int(gid)); err != nil {
			t.Fatal(err)
		}
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func waitUntilServing(t *testing.T, url string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := pgx.Connect(t.Context(), url)
		if err == nil {
			conn.Close(t.Context())
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("PgBouncer does not serve: %v", err)
		}
	}
}

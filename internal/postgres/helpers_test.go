package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/migrations"
)

func TestMain(m *testing.M) {
	if url, ok := os.LookupEnv(migratorEnv); ok {
		os.Exit(migratorMain(url))
	}
	testdb.Main(m)
}

var quiet = slog.New(slog.DiscardHandler)

var policy = retry.Policy{
	Attempts: 20, MinPause: 5 * time.Millisecond, MaxPause: 200 * time.Millisecond,
	StatementTimeout: 20 * time.Second, LockTimeout: 15 * time.Second, IdleTimeout: 10 * time.Second,
}

// testContext bounds what would otherwise hang; no test expects to reach it.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// emptyURL is the URL of a database of the test's own with nothing in it.
func emptyURL(t *testing.T) string {
	t.Helper()
	url := testdb.URL(t)
	execSQL(t, url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
	return url
}

// withParameter is url with one more parameter.
func withParameter(t *testing.T, raw, name, value string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // where pgx reads a plus as a plus
	return u.String()
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func execSQL(t *testing.T, url, sql string) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// ask returns the one value that sql selects.
func ask[T any](t *testing.T, url, sql string, args ...any) (value T) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// waitFor waits until the condition that sql selects holds.
func waitFor(t *testing.T, url, sql string, args ...any) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var holds bool
		if err := conn.QueryRow(t.Context(), sql, args...).Scan(&holds); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		if holds {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", sql)
		}
	}
}

const someoneWaitsForTable = `
	SELECT EXISTS (SELECT FROM pg_locks
	                WHERE NOT granted
	                  AND relation = 'accounts'::regclass
	                  AND mode = 'AccessExclusiveLock'
	                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`

func open(t *testing.T, c postgres.Config) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(db.Close)
	return db
}

// ours are the real migrations but the last n, and what more adds.
func ours(t *testing.T, less int, more map[string]string) fs.FS {
	t.Helper()
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	set := fstest.MapFS{}
	for _, name := range names[:len(names)-less] {
		text, err := fs.ReadFile(migrations.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		set[name] = &fstest.MapFile{Data: text}
	}
	for name, text := range more {
		set[name] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + text)}
	}
	return set
}

// together runs n of f at once and fails the test for each error.
func together(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			if err := f(i); err != nil {
				t.Errorf("%d of %d: %v", i+1, n, err)
			}
		})
	}
	group.Wait()
}

// wantEachVersionOnce fails unless the database has exactly the versions of
// fsys, each once.
func wantEachVersionOnce(t *testing.T, url string, fsys fs.FS) {
	t.Helper()
	names, err := fs.Glob(fsys, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"0"} // goose's own
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		want = append(want, strings.TrimLeft(number, "0"))
	}
	got := ask[[]string](t, url, `SELECT array_agg(version_id::text ORDER BY version_id, id) FROM goose_db_version`)
	if !slices.Equal(got, want) {
		t.Errorf("versions = %v, want %v", got, want)
	}
}

// A logbook is a logger that can be read.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logbook) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// count returns how many lines hold text.
func (l *logbook) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func wantInError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(fmt.Sprint(err), part) {
			t.Errorf("error = %q, want that it says %q", fmt.Sprint(err), part)
		}
	}
}

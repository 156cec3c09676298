package testdb_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rowlock/ledger/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func TestClonesAreMigratedAndIsolated(t *testing.T) {
	t.Parallel()
	a, b := testdb.New(t), testdb.New(t)
	for _, db := range []*testdb.DB{a, b} {
		if !exists(t, db, `SELECT to_regclass('transfers') IS NOT NULL`) {
			t.Errorf("%s has no table transfers, want every migration applied", db.URL)
		}
	}
	if _, err := a.Exec(t.Context(), `CREATE TABLE only_in_a (id int)`); err != nil {
		t.Fatal(err)
	}
	if exists(t, b, `SELECT to_regclass('only_in_a') IS NOT NULL`) {
		t.Error("a table made in one clone is in the other")
	}
}

// The program under test has only the URL; it must lead to the same database.
func TestURLLeadsToTheClone(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var got, want string
	if err := conn.QueryRow(t.Context(), `SELECT current_database()`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow(t.Context(), `SELECT current_database()`).Scan(&want); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("the URL leads to %q, want %q", got, want)
	}
}

func TestClonesAreDroppedWithTheirTest(t *testing.T) {
	t.Parallel()
	var names []string
	var left *pgx.Conn // a session that outlives its test, as a killed program's does
	t.Run("uses two", func(t *testing.T) {
		db := testdb.New(t)
		var name string
		if err := db.QueryRow(t.Context(), `SELECT current_database()`).Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)

		var err error
		if left, err = pgx.Connect(t.Context(), testdb.URL(t)); err != nil {
			t.Fatal(err)
		}
		names = append(names, left.Config().Database)
	})
	if len(names) != 2 {
		t.Fatalf("got %d databases, want 2", len(names))
	}
	if err := left.Ping(t.Context()); err == nil {
		t.Error("a session outlives its database")
	}
	db := testdb.New(t)
	for _, name := range names {
		if exists(t, db, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name) {
			t.Errorf("database %s is still there", name)
		}
	}
}

func TestContainerIsUsedWhenAskedFor(t *testing.T) {
	if os.Getenv("LEDGER_TEST_POSTGRES") != "container" {
		t.Skip("LEDGER_TEST_POSTGRES is not container (make test-containers sets it)")
	}
	db := testdb.New(t)
	// Of the three servers only the container's has both: an address of its own,
	// and a main process that is the first.
	if !exists(t, db, `SELECT inet_server_addr() IS NOT NULL`) {
		t.Error("the connection is not TCP, want a container's")
	}
	if !exists(t, db, `SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1) = '1'`) {
		t.Error("the server is not process 1, want a container's")
	}
}

// exists runs a query that answers true or false.
func exists(t *testing.T, db *testdb.DB, sql string, args ...any) (answer bool) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/testdb"
)

func TestMigrated(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		less int // how many of our migrations the database lacks; -1: all
		more map[string]string
		want error
	}{
		{"empty", -1, nil, postgres.ErrNotMigrated},
		{"older", 1, nil, postgres.ErrNotMigrated},
		{"current", 0, nil, nil},
		{"newer", 0, map[string]string{"00101_create_news.sql": "CREATE TABLE news (id int);"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, url := testContext(t), emptyURL(t)
			if test.less >= 0 {
				if err := postgres.MigrateFS(ctx, url, ours(t, test.less, test.more), quiet); err != nil {
					t.Fatal(err)
				}
			}
			for _, pooler := range []postgres.Pooler{postgres.NoPooler, postgres.TransactionPooler} {
				db := open(t, postgres.Config{URL: url, Pooler: pooler})
				for range 2 { // a statement that failed once must not stay prepared, or not
					if err := postgres.Migrated(ctx, db, policy); !errors.Is(err, test.want) {
						t.Errorf("Migrated = %v, want %v", err, test.want)
					}
				}
			}
			if err := postgres.Migrate(ctx, url, quiet); err != nil {
				t.Errorf("Migrate: %v", err)
			}
			if err := postgres.Migrated(ctx, open(t, postgres.Config{URL: url}), policy); err != nil {
				t.Errorf("after Migrate: Migrated = %v, want nil", err)
			}
		})
	}
}

func TestMigratedWithoutServer(t *testing.T) {
	t.Parallel()
	db := open(t, postgres.Config{URL: "postgres://ledger@127.0.0.1:1/ledger?sslmode=disable"})
	err := postgres.Migrated(t.Context(), db, policy)
	if err == nil || errors.Is(err, postgres.ErrNotMigrated) {
		t.Errorf("Migrated = %v, want an error that does not say that anything is missing", err)
	}
}

func TestMigrations(t *testing.T) {
	t.Parallel()
	ctx, url := testContext(t), emptyURL(t)
	list := func() (applied, pending int) {
		t.Helper()
		states, err := postgres.Migrations(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range states {
			switch {
			case s.Version != int64(i+1) || s.Name == "":
				t.Errorf("migration %d of the list = %+v", i+1, s)
			case s.AppliedAt.IsZero():
				pending++
			case time.Since(s.AppliedAt).Abs() > time.Minute:
				t.Errorf("%s was applied at %v, want just now", s.Name, s.AppliedAt)
			default:
				applied++
			}
		}
		return applied, pending
	}

	applied, all := list()
	if applied != 0 || all == 0 {
		t.Errorf("of an empty database: %d applied, %d pending, want all of them pending", applied, all)
	}
	if tables := ask[int](t, url, "SELECT count(1) FROM pg_tables WHERE schemaname = 'public'"); tables != 0 {
		t.Errorf("the list made %d tables, want none", tables)
	}
	if err := postgres.MigrateFS(ctx, url, ours(t, 1, nil), quiet); err != nil {
		t.Fatal(err)
	}
	if applied, pending := list(); applied != all-1 || pending != 1 {
		t.Errorf("one version behind: %d applied, %d pending, want %d and 1", applied, pending, all-1)
	}
	// The time is an instant whatever the sessions' time zone is.
	url = withParameter(t, url, "TimeZone", "Pacific/Auckland")
	if err := postgres.Migrate(ctx, url, quiet); err != nil {
		t.Fatal(err)
	}
	states, err := postgres.Migrations(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	if at := states[all-1].AppliedAt; time.Since(at).Abs() > time.Minute {
		t.Errorf("in another time zone: applied at %v, want just now", at)
	}
}

// A ledger is a schema: two of them in one database know nothing of each other.
func TestMigrateSchemas(t *testing.T) {
	t.Parallel()
	ctx, url := testContext(t), emptyURL(t)
	execSQL(t, url, "CREATE SCHEMA a; CREATE SCHEMA b")
	a, b := withParameter(t, url, "search_path", "a"), withParameter(t, url, "search_path", "b")

	if err := postgres.MigrateFS(ctx, a, ours(t, 1, nil), quiet); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrated(ctx, open(t, postgres.Config{URL: b}), policy); !errors.Is(err, postgres.ErrNotMigrated) {
		t.Errorf("b when a was migrated: %v, want ErrNotMigrated", err)
	}
	together(t, 4, func(i int) error { return postgres.Migrate(ctx, []string{a, b}[i%2], quiet) })
	for _, url := range []string{a, b} {
		if err := postgres.Migrated(ctx, open(t, postgres.Config{URL: url}), policy); err != nil {
			t.Errorf("Migrated = %v, want nil", err)
		}
	}
	tables := ask[string](t, url, `SELECT string_agg(schemaname, ' ' ORDER BY schemaname) FROM pg_tables WHERE tablename = 'accounts'`)
	if tables != "a b" {
		t.Errorf("accounts are in schemas %q, want a and b", tables)
	}
	execSQL(t, a, "INSERT INTO accounts (id, currency) VALUES ('00000000-0000-7000-8000-000000000001', 'USD')")
	if n := ask[int](t, b, "SELECT count(1) FROM accounts"); n != 0 {
		t.Errorf("b sees %d accounts of a's", n)
	}
}

// A search path that goes on to the tables of another ledger must not make one
// of the two.
func TestMigrateDoesNotBorrowASchema(t *testing.T) {
	t.Parallel()
	ctx, url := testContext(t), testdb.URL(t)
	execSQL(t, url, "CREATE SCHEMA tenant")
	tenant := withParameter(t, url, "search_path", "tenant,public")
	db := open(t, postgres.Config{URL: tenant})
	if err := postgres.Migrated(ctx, db, policy); !errors.Is(err, postgres.ErrNotMigrated) {
		t.Errorf("Migrated = %v, want ErrNotMigrated: the tables that it found are public's", err)
	}
	if err := postgres.Migrate(ctx, tenant, quiet); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrated(ctx, db, policy); err != nil {
		t.Errorf("Migrated = %v, want nil", err)
	}
	if schema := ask[string](t, tenant, "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'accounts'::regclass"); schema != "tenant" {
		t.Errorf("accounts are %s's, want the tenant's own", schema)
	}
}

func TestMigrateWithoutSchema(t *testing.T) {
	t.Parallel()
	url := testdb.URL(t)
	before := ask[int](t, url, "SELECT count(1) FROM pg_tables")
	if err := postgres.Migrate(testContext(t), withParameter(t, url, "search_path", "missing"), quiet); err == nil {
		t.Error("Migrate = nil, want an error: the schema does not exist")
	}
	if after := ask[int](t, url, "SELECT count(1) FROM pg_tables"); after != before {
		t.Errorf("there are %d tables, want %d as before", after, before)
	}
}

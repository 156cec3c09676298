package racelab

import (
	"log/slog"
	"testing"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/verify"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func TestWithParameter(t *testing.T) {
	for _, tt := range []struct{ url, want string }{
		{"postgres://u:p%40ss@h:5432/d", "postgres://u:p%40ss@h:5432/d?search_path=s"},
		{"postgres:///d?host=%2Ftmp+x&search_path=theirs", "postgres:///d?search_path=s&host=%2Ftmp+x"},
		{"postgresql://h/d?", "postgresql://h/d?search_path=s"},
		{"host=h dbname=d", "host=h dbname=d search_path=s"},
	} {
		if got := withParameter(tt.url, "search_path", "s"); got != tt.want {
			t.Errorf("withParameter(%s) = %s, want %s", tt.url, got, tt.want)
		}
	}
}

const countSchemasSQL = `
	SELECT count(*), count(*) FILTER (WHERE nspname LIKE 'ledger\_race\_%')
	  FROM pg_namespace`

// The user's own ledger, in the same database, stays what it was.
func TestWithSchemaLeavesNothing(t *testing.T) {
	t.Parallel()
	db, ctx := testdb.New(t), t.Context()
	var before, all, ours int
	if err := db.QueryRow(ctx, countSchemasSQL).Scan(&before, &ours); err != nil {
		t.Fatal(err)
	}
	url, drop, err := WithSchema(ctx, db.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(ctx, url, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow(ctx, countSchemasSQL).Scan(&all, &ours); err != nil || ours != 1 {
		t.Errorf("schemas of ours = %d, %v, want 1", ours, err)
	}
	inside, err := postgres.Open(ctx, postgres.Config{URL: url, PoolSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inside.Exec(ctx, "INSERT INTO accounts (id, currency, balance) VALUES ('00000000-0000-7000-8000-000000000001', 'USD', 1)"); err != nil {
		t.Fatal(err)
	}
	if report, err := verify.Ledger(ctx, inside, labPolicy); err != nil || report.Clean() {
		t.Errorf("the schema's ledger: %v, %+v, want its damage", err, report)
	}
	inside.Close()
	if report, err := verify.Ledger(ctx, db, labPolicy); err != nil || !report.Clean() || report.Accounts != 0 {
		t.Errorf("the user's ledger: %v, %+v, want it empty", err, report)
	}
	if err := drop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow(ctx, countSchemasSQL).Scan(&all, &ours); err != nil || ours != 0 || all != before {
		t.Errorf("schemas = %d, ours %d, %v, want %d and none", all, ours, err, before)
	}
}

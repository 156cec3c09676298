package postgres_test

import (
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/migrations"
)

func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	for _, start := range []struct {
		name string
		less int // how many of our migrations the database lacks; -1: all
	}{{"empty", -1}, {"one version behind", 1}} {
		for round := range 3 {
			t.Run(fmt.Sprintf("%s, round %d", start.name, round+1), func(t *testing.T) {
				t.Parallel()
				ctx, url := testContext(t), emptyURL(t)
				if start.less >= 0 {
					if err := postgres.MigrateFS(ctx, url, ours(t, start.less, nil), quiet); err != nil {
						t.Fatal(err)
					}
				}
				begun := time.Now()
				together(t, 8, func(int) error { return postgres.Migrate(ctx, url, quiet) })
				t.Logf("8 migrators took %v", time.Since(begun).Round(time.Millisecond))
				wantEachVersionOnce(t, url, migrations.FS)
			})
		}
	}
}

func TestMigrateTwiceDoesNothing(t *testing.T) {
	t.Parallel()
	ctx, url := testContext(t), emptyURL(t)
	var log logbook
	for range 2 {
		if err := postgres.Migrate(ctx, url, log.logger()); err != nil {
			t.Fatal(err)
		}
	}
	names, _ := fs.Glob(migrations.FS, "*.sql")
	if got := log.count("msg=migrated"); got != len(names) {
		t.Errorf("logged %d migrations, want %d, each once", got, len(names))
	}
}

func TestMigrateFails(t *testing.T) {
	t.Parallel()
	ctx, url := testContext(t), emptyURL(t)
	set := func(second string) fs.FS {
		return ours(t, 0, map[string]string{
			"00101_create_goods.sql": "CREATE TABLE goods (id int);",
			"00102_create_halves.sql": "CREATE TABLE halves (id int);\n" +
				second,
			"00103_create_never.sql": "CREATE TABLE never (id int);",
		})
	}
	for range 2 { // the first failure leaves nothing that the second would trip over
		begun := time.Now()
		err := postgres.MigrateFS(ctx, url, set("INSERT INTO halves VALUES ('not a number');"), quiet)
		if retry.SQLState(err) != "22P02" {
			t.Fatalf("error = %v, want the second statement's", err)
		}
		wantInError(t, err, "00102_create_halves.sql", "nothing of it remains", "not a number")
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("it took %v to say so", took)
		}
		tables := ask[string](t, url, `SELECT concat_ws(' ', to_regclass('goods'), to_regclass('halves'), to_regclass('never'))`)
		if tables != "goods" {
			t.Errorf("tables = %q, want only those of the migrations before it", tables)
		}
		if version := ask[int64](t, url, `SELECT max(version_id) FROM goose_db_version`); version != 101 {
			t.Errorf("version = %d, want 101", version)
		}
	}
	if err := postgres.MigrateFS(ctx, url, set("INSERT INTO halves VALUES (1);"), quiet); err != nil {
		t.Errorf("after the repair: %v", err)
	}
}

// A table that is in the way is no contention: trying again does not help.
func TestMigrateRefusesForeignTables(t *testing.T) {
	t.Parallel()
	ctx, url := testContext(t), emptyURL(t)
	execSQL(t, url, "CREATE TABLE accounts (name text)")
	err := postgres.Migrate(ctx, url, quiet)
	if retry.SQLState(err) != "42P07" {
		t.Errorf("error = %v, want that the table exists", err)
	}
	wantInError(t, err, "00001_create_accounts.sql")
}

func TestMigrateConcurrentIndex(t *testing.T) {
	t.Parallel()
	ctx, url := testContext(t), emptyURL(t)
	set := ours(t, 0, map[string]string{
		"00101_index_names.sql": "-- +goose NO TRANSACTION\n" +
			"CREATE INDEX CONCURRENTLY IF NOT EXISTS accounts_name ON accounts (name);",
	})
	together(t, 2, func(int) error { return postgres.MigrateFS(ctx, url, set, quiet) })
	wantEachVersionOnce(t, url, set)
	if valid := ask[bool](t, url, `SELECT indisvalid FROM pg_index WHERE indexrelid = 'accounts_name'::regclass`); !valid {
		t.Error("the index is not valid")
	}
}

func TestMigrateEndsWithItsContext(t *testing.T) {
	t.Parallel()
	url := emptyURL(t)
	if err := postgres.MigrateFS(t.Context(), url, ours(t, 1, nil), quiet); err != nil {
		t.Fatal(err)
	}
	execSQL(t, url, `UPDATE goose_lock SET locked = true, locked_by = 'somebody', lease_expires_at = now() + interval '1 hour'`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var log logbook
	if err := postgres.Migrate(ctx, url, log.logger()); err == nil {
		t.Fatal("it migrated in spite of the lock")
	} else {
		wantInError(t, err, "wait for the migration lock", context.DeadlineExceeded.Error())
	}
	if got := log.count("another process migrates"); got != 1 {
		t.Errorf("it said %d times that it waits, want once", got)
	}
}

var fileName = regexp.MustCompile(`^\d{5}_[a-z]+_[a-z_]+\.sql$`)

// A file begins with its reason, and never waits long for a table's lock, for
// all readers of the table wait behind it.
func TestMigrationFiles(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(migrations.FS, "*")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		text, err := fs.ReadFile(migrations.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		if !fileName.MatchString(name) {
			t.Errorf("%s: want a name like 00042_verb_noun.sql", name)
		}
		if want := fmt.Sprintf("%05d_", i+1); !strings.HasPrefix(name, want) {
			t.Errorf("%s: want that it begins with %s: no gaps, no number twice", name, want)
		}
		for _, fault := range faultsOfMigration(string(text)) {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

var lockTimeout = regexp.MustCompile(`(?m)^SET LOCAL lock_timeout = '[1-3]s';$`)

func faultsOfMigration(text string) (faults []string) {
	text, concurrent := strings.CutPrefix(text, "-- +goose NO TRANSACTION\n")
	rest, ok := strings.CutPrefix(text, "-- +goose Up\n\n-- ")
	if !ok || strings.HasPrefix(rest, "+goose") {
		faults = append(faults, `want that it begins with "-- +goose Up" and a comment with its reason`)
	}
	if concurrent {
		return append(faults, faultsOfConcurrentMigration(text)...)
	}
	limit := lockTimeout.FindStringIndex(text)
	if limit == nil {
		return append(faults, "want SET LOCAL lock_timeout with 1 to 3 seconds")
	}
	for line := range strings.Lines(text[:limit[0]]) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			faults = append(faults, "want no statement before SET LOCAL lock_timeout: "+line)
		}
	}
	return faults
}

var buildIndex = regexp.MustCompile(`^CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+) ON `)

// Without a transaction, an interrupted try leaves some of its indexes, and
// perhaps one that is not valid: every index is removed before it is built.
func faultsOfConcurrentMigration(text string) (faults []string) {
	last := ""
	for statement := range strings.SplitSeq(comments.ReplaceAllString(text, ""), ";") {
		statement = strings.TrimSpace(statement)
		if m := buildIndex.FindStringSubmatch(statement); m != nil {
			if last != "DROP INDEX CONCURRENTLY IF EXISTS "+m[1] {
				faults = append(faults, "want that what is left of an earlier try is dropped just before: "+m[1])
			}
		} else if statement != "" && !strings.HasPrefix(statement, "DROP INDEX CONCURRENTLY IF EXISTS ") {
			faults = append(faults, "want nothing but indexes without a transaction: "+statement)
		}
		last = statement
	}
	return faults
}

var comments = regexp.MustCompile(`(?m)^--.*$`)

func TestFaultsOfMigration(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text   string
		faults int
	}{
		{"-- +goose Up\n\n-- Why.\nSET LOCAL lock_timeout = '2s';\n\nSELECT 1;\n", 0},
		{"-- +goose Up\nSET LOCAL lock_timeout = '2s';\n", 1},
		{"-- +goose Up\n\n-- Why.\nSELECT 1;\n", 1},
		{"-- +goose Up\n\n-- Why.\nSET LOCAL lock_timeout = '1h';\n", 1},
		{"-- +goose Up\n\n-- Why.\nSELECT 1;\nSET LOCAL lock_timeout = '2s';\n", 1},
		{"SELECT 1;\n", 2},
		{"-- +goose NO TRANSACTION\n-- +goose Up\n\n-- Why.\nDROP INDEX CONCURRENTLY IF EXISTS a;\nCREATE INDEX CONCURRENTLY a ON b (c);\n", 0},
		{"-- +goose NO TRANSACTION\n-- +goose Up\n\n-- Why.\nCREATE INDEX CONCURRENTLY a ON b (c);\n", 1},
		{"-- +goose NO TRANSACTION\n-- +goose Up\n\n-- Why.\nALTER TABLE b ADD COLUMN c int;\n", 1},
	} {
		if got := faultsOfMigration(test.text); len(got) != test.faults {
			t.Errorf("faults of %q = %q, want %d", test.text, got, test.faults)
		}
	}
}

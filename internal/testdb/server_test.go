package testdb

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
)

func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	db := New(t)
	// The database is this test's own; a role belongs to the whole server.
	var role string
	if err := db.QueryRow(t.Context(), `SELECT current_database() || ' "role"'`).Scan(&role); err != nil {
		t.Fatal(err)
	}
	role = role[max(0, len(role)-40):] // names end at 63 bytes
	const password = "p/?&#%+ w"
	quoted := pgx.Identifier{role}.Sanitize()
	for _, sql := range []string{
		`CREATE ROLE ` + quoted + ` LOGIN NOCREATEDB PASSWORD '` + password + `'`,
		`GRANT CONNECT ON DATABASE ` + pgx.Identifier{db.Config().ConnConfig.Database}.Sanitize() + ` TO ` + quoted,
	} {
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if _, err := db.Exec(t.Context(), `DROP OWNED BY `+quoted+`; DROP ROLE `+quoted, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Error(err)
		}
	}()

	u, q, err := split(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	q.Set("user", role)
	q.Set("password", password)
	u.RawQuery = encode(q)
	_, err = start(t.Context(), environment{"LEDGER_TEST_DATABASE_URL": u.String()}.get)
	if err == nil {
		t.Fatal("a role without rights is accepted")
	}
	for _, want := range []string{fmt.Sprintf("%q", role), "SUPERUSER", "ALTER ROLE " + quoted} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error = %q, want %q in it", err, want)
		}
	}
}

// What pgtestdb makes of a URL leads to the same server, as the same role.
func TestParseKeepsTheMeaningOfAURL(t *testing.T) {
	t.Setenv("PGPASSWORD", "from the environment")
	for _, raw := range []string{
		"postgres:///ledger?host=/tmp/a%20b&user=ledger",
		"postgres:///ledger?host=/tmp/x&port=5433&user=ledger&search_path=a+b",
		"postgres://ledger@/ledger?host=/tmp/x",
		"postgres://ledger:secret@db.example:5433/ledger?sslmode=disable",
		"postgresql://ledger:p%2F%3F%40%3A@127.0.0.1/ledger",
		"postgres://ledger@[::1]:5433/ledger?sslmode=require",
		"postgres://ledger@localhost/?dbname=ledger",
		"postgres://le%40dger@localhost/ledger",
	} {
		t.Run(raw, func(t *testing.T) {
			want, err := pgx.ParseConfig(raw)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			parsed.User = parsed.TestRole.Username // as pgtestdb does for clones
			cloned := parsed
			cloned.Database = "clone"
			for url, database := range map[string]string{
				parsed.URL():               "ledger",
				cloned.URL():               "clone",
				withDatabase(raw, "clone"): "clone",
			} {
				got, err := pgx.ParseConfig(url)
				if err != nil {
					t.Fatal(err)
				}
				if got.Host != want.Host || got.Port != want.Port || got.User != want.User || got.Password != want.Password ||
					(got.TLSConfig == nil) != (want.TLSConfig == nil) || got.RuntimeParams["search_path"] != want.RuntimeParams["search_path"] {
					t.Errorf("%s means another server or role than %s", url, raw)
				}
				if got.Database != database {
					t.Errorf("%s: database = %q, want %q", url, got.Database, database)
				}
			}
		})
	}
}

func TestParseRefusesWhatIsNoURL(t *testing.T) {
	for _, raw := range []string{"host=/tmp user=ledger password=secret", "postgres://ledger:secret@host:port/x", "mysql://u:secret@h/d"} {
		_, err := parse(raw)
		if err == nil {
			t.Errorf("parse(%q) = nil, want an error", raw)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("parse(%q) = %q, which has the password", raw, err)
		}
	}
}

func TestHashChangesWithEveryFile(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	seen := map[string]string{}
	for name, fsys := range map[string]fstest.MapFS{
		"base":       {"1_a.sql": file("a"), "2_b.sql": file("b")},
		"content":    {"1_a.sql": file("a"), "2_b.sql": file("c")},
		"name":       {"1_a.sql": file("a"), "3_b.sql": file("b")},
		"added":      {"1_a.sql": file("a"), "2_b.sql": file("b"), "3_c.sql": file("")},
		"moved text": {"1_a.sql": file("ab"), "2_b.sql": file("")},
	} {
		h, err := hash(fsys)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		seen[h] = name
	}
}

func TestChoiceRefusesAnUnknownKind(t *testing.T) {
	_, err := choose(t.Context(), environment{"LEDGER_TEST_POSTGRES": "docker"}.get)
	if err == nil || errors.Is(err, errNoServer) || !strings.Contains(err.Error(), `"docker"`) {
		t.Errorf("error = %v, want one that names the value and is no reason to skip", err)
	}
}

// Whoever names a server means that one: no other is tried, and nothing skipped.
func TestNamedServerThatDoesNotAnswer(t *testing.T) {
	_, err := start(t.Context(), environment{"LEDGER_TEST_DATABASE_URL": "postgres://ledger@127.0.0.1:1/ledger"}.get)
	if err == nil || errors.Is(err, errNoServer) {
		t.Errorf("error = %v, want one that is no reason to skip", err)
	}
}

func TestSkipsOnlyOnALaptop(t *testing.T) {
	none := fmt.Errorf("%w: no binaries, no Docker", errNoServer)
	for _, tt := range []struct {
		name     string
		err      error
		env      environment
		wantSkip bool
	}{
		{name: "laptop", err: none, wantSkip: true},
		{name: "CI", err: none, env: environment{"CI": "true"}},
		{name: "required", err: none, env: environment{"LEDGER_TEST_REQUIRE": "1"}},
		{name: "broken", err: errors.New("connect: refused")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r recorder
			done := make(chan struct{})
			go func() {
				defer close(done)
				giveUp(&r, tt.err, tt.env.get)
			}()
			<-done
			if skipped := r.skip != ""; skipped != tt.wantSkip || skipped == (r.fatal != "") {
				t.Errorf("skip = %q, fatal = %q, want skip: %t", r.skip, r.fatal, tt.wantSkip)
			}
			if message := r.skip + r.fatal; !strings.Contains(message, tt.err.Error()) {
				t.Errorf("message = %q, want the reason in it", message)
			}
			if tt.wantSkip && !strings.Contains(r.skip, "apt-get install postgresql") {
				t.Errorf("message = %q, want what to install in it", r.skip)
			}
		})
	}
}

type environment map[string]string

func (e environment) get(name string) string { return e[name] }

// recorder is a test that only remembers how it ended.
type recorder struct {
	testing.TB
	skip, fatal string
}

func (r *recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) {
	r.skip = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

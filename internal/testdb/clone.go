package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/peterldowns/pgtestdb"
	"github.com/peterldowns/pgtestdb/migrators/common"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/migrations"
)

// parse makes the URL of a database what pgtestdb needs to know of it.
//
// pgtestdb joins its parts to a URL without escaping them, and has no part for
// a socket's directory. All of them therefore travel in the query, where pgx
// lets them win over what stands before it.
func parse(raw string) (pgtestdb.Config, error) {
	_, q, err := split(raw)
	if err != nil {
		return pgtestdb.Config{}, err
	}
	c, err := pgx.ParseConfig(raw)
	if err != nil {
		return pgtestdb.Config{}, fmt.Errorf("read the database URL: %w", err)
	}
	q.Del("dbname") // it would win over a clone's name, too
	q.Set("host", c.Host)
	q.Set("port", strconv.Itoa(int(c.Port)))
	q.Set("user", c.User)
	q.Set("password", c.Password)
	return pgtestdb.Config{
		DriverName: "pgx",
		Database:   c.Database,
		Options:    encode(q),
		// The role that we are, so that none has to be made and left behind.
		TestRole: &pgtestdb.Role{Username: c.User},
		// A test may kill -9 a program, whose sessions end a little later.
		ForceTerminateConnections: true,
	}, nil
}

// withDatabase is the URL raw, which [parse] has read, for another database.
func withDatabase(raw, name string) string {
	u, q, err := split(raw)
	if err != nil {
		panic(err)
	}
	q.Del("dbname")
	u.Path, u.RawQuery = "/"+name, encode(q)
	return u.String()
}

// split and encode read and write queries as libpq and pgx do, for whom a plus
// is a plus.
func split(raw string) (*url.URL, url.Values, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		// err is kept back: it quotes the password.
		return nil, nil, errors.New("the database URL is not a URL that begins with postgres://")
	}
	q, err := url.ParseQuery(strings.ReplaceAll(u.RawQuery, "+", "%2B"))
	if err != nil {
		return nil, nil, errors.New("the database URL has a malformed query")
	}
	return u, q, nil
}

func encode(q url.Values) string { return strings.ReplaceAll(q.Encode(), "+", "%20") }

const selectRightsSQL = `
	SELECT rolname, rolsuper
	  FROM pg_roles
	 WHERE rolname = current_user`

// checkRights says what the role of url lacks, before pgtestdb fails halfway
// with a bare "permission denied". CREATEDB would be enough for the clones; to
// mark the template pgtestdb updates pg_database, which takes a superuser.
func checkRights(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	var role string
	var isSuperuser bool
	if err := conn.QueryRow(ctx, selectRightsSQL).Scan(&role, &isSuperuser); err != nil {
		return fmt.Errorf("read the role's rights: %w", err)
	}
	if !isSuperuser {
		return fmt.Errorf("role %q lacks SUPERUSER, without which no template can be made: ALTER ROLE %s SUPERUSER",
			role, pgx.Identifier{role}.Sanitize())
	}
	return nil
}

// A migrator makes the template, by our own migrations.
type migrator struct{}

// Hash names the template.
func (migrator) Hash() (string, error) { return hash(migrations.FS) }

// hash covers names and contents: a migration may be renumbered unchanged.
func hash(fsys fs.FS) (string, error) {
	names, err := fs.Glob(fsys, "*.sql")
	if err != nil {
		return "", err
	}
	h := common.NewRecursiveHash()
	for _, name := range names {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return "", err
		}
		h.AddField(name, string(text))
	}
	return h.String(), nil
}

// Migrate migrates the template.
func (migrator) Migrate(ctx context.Context, _ *sql.DB, template pgtestdb.Config) error {
	return postgres.Migrate(ctx, template.URL(), slog.New(slog.DiscardHandler))
}

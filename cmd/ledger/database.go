package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/rowlock/ledger/internal/localpg"
	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
)

// binaryFlags say where the programs of a private PostgreSQL server are.
type binaryFlags struct {
	PostgresBin  string `help:"Directory of PostgreSQL's programs. Default: PATH, then /usr/lib/postgresql, then a download." placeholder:"DIR"`
	PostgresUser string `help:"System user for the private server when run as root, where the data directory has no owner of its own and there is no user postgres." placeholder:"NAME"`
}

// databaseFlags say which database.
type databaseFlags struct {
	DatabaseURL string `help:"PostgreSQL to use, as a URL or DSN. Without it, a private server on --data-dir." placeholder:"URL"`
	DataDir     string `help:"Data directory of the private server. Default: /var/lib/ledger for root, else the user's data directory." placeholder:"DIR"`
	binaryFlags
}

// A database is where a ledger is kept.
type database struct {
	url    string
	server *localpg.Server // nil where it is not ours
}

// stopTimeout bounds the private server's shutdown: it writes a checkpoint.
const stopTimeout = 30 * time.Second

// open returns the database of the flags, starting the private server where
// none is named.
func (f databaseFlags) open(ctx context.Context, logger *slog.Logger) (*database, error) {
	if f.DatabaseURL != "" {
		return &database{url: f.DatabaseURL}, nil
	}
	server, err := localpg.Start(ctx, localpg.Options{
		DataDir: f.DataDir, BinDir: f.PostgresBin, User: f.PostgresUser, Logger: logger,
	})
	if errors.Is(err, localpg.ErrInUse) {
		return nil, fmt.Errorf("%w: name that server's database with --database-url, as \"ledger serve\" printed it", err)
	}
	if err != nil {
		return nil, fmt.Errorf("start a private PostgreSQL server: %w", err)
	}
	return &database{url: server.DSN(), server: server}, nil
}

// openOrStart returns the database at url or, where that is "", a private
// server that goes away with the command.
func (f binaryFlags) openOrStart(ctx context.Context, logger *slog.Logger, url string) (*database, error) {
	if url != "" {
		return &database{url: url}, nil
	}
	return f.startEphemeral(ctx, logger, nil)
}

// startEphemeral starts a private server with no data, which goes away with it.
func (f binaryFlags) startEphemeral(ctx context.Context, logger *slog.Logger, settings map[string]string) (*database, error) {
	server, err := localpg.Start(ctx, localpg.Options{
		Ephemeral: true, BinDir: f.PostgresBin, User: f.PostgresUser, Settings: settings, Logger: logger,
	})
	if err != nil {
		return nil, fmt.Errorf("start a private PostgreSQL server: %w", err)
	}
	return &database{url: server.DSN(), server: server}, nil
}

// close stops a private server.
func (d *database) close(logger *slog.Logger) error {
	if d.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := d.server.Stop(ctx); err != nil {
		return fmt.Errorf("stop the private PostgreSQL server: %w", err)
	}
	logger.Info("private PostgreSQL server stopped")
	return nil
}

// exited is closed when a private server has ended by itself.
func (d *database) exited() <-chan struct{} {
	if d.server == nil {
		return nil
	}
	return d.server.Exited()
}

// psql is the command that opens the database for a person.
func (d *database) psql() string {
	if d.server != nil {
		return d.server.PsqlCommand()
	}
	return "psql " + d.argument()
}

// argument is the database as a word for a shell. One with a password, or that
// is no URL, is not repeated on the screen: it is where the operator has it.
func (d *database) argument() string {
	if redact(d.url) != d.url {
		return `"$LEDGER_DATABASE_URL"`
	}
	return "'" + strings.ReplaceAll(d.url, "'", `'\''`) + "'"
}

// redact removes the password from a URL. A DSN of key=value pairs is not
// shown at all: its quoting is not ours to parse.
func redact(databaseURL string) string {
	u, err := url.Parse(databaseURL)
	if err != nil || u.Scheme == "" {
		return "(a DSN)"
	}
	if query := u.Query(); query.Has("password") {
		query.Set("password", "xxxxx")
		u.RawQuery = query.Encode()
	}
	return u.Redacted()
}

// withPool runs fn with a pool on the flags' database, for the tools that need
// no more than a few connections and all the time in the world.
func (f databaseFlags) withPool(ctx context.Context, logger *slog.Logger, fn func(db *postgres.DB, policy retry.Policy) error) (err error) {
	d, err := f.open(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(logger)) }()
	db, err := postgres.Open(ctx, postgres.Config{URL: d.url, PoolSize: 2, AcquireTimeout: 10 * time.Second, ApplicationName: "ledger-tool"})
	if err != nil {
		return err
	}
	defer db.Close()
	return fn(db, retry.Policy{Attempts: 3, MinPause: 100 * time.Millisecond, MaxPause: time.Second, LockTimeout: 10 * time.Second})
}

// isTerminal reports whether f is a person's screen.
func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Package postgres opens the database: the pool with its types and limits, and
// the schema's migrations. Start reading at [Open] and [Migrate].
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"

	pgxdecimal "github.com/jackc/pgx-shopspring-decimal"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rowlock/ledger/internal/retry"
)

// DB is the pool that every query and transaction goes through.
type DB = retry.Pool

// Config says which database, and how to hold connections to it.
type Config struct {
	URL             string        // a URL or a DSN, several hosts allowed
	PoolSize        int           // connections at most; 0 means 16
	AcquireTimeout  time.Duration // the wait for one of them; 0 means 1 s
	Pooler          Pooler        // what stands between us and the server
	ApplicationName string        // seen in pg_stat_activity; "" means "ledger"
}

// Pooler is what kind of connection pooler stands in front of the server.
type Pooler string

// NoPooler talks to the server itself, with prepared statements that live as
// long as the connection. TransactionPooler is for PgBouncer and its kind in
// transaction mode, where the next transaction may meet another session: no
// prepared statement outlives its use.
const (
	NoPooler          Pooler = "none"
	TransactionPooler Pooler = "transaction"
)

// Open makes a pool. It connects when a connection is first needed, so the
// error is about c alone.
func Open(ctx context.Context, c Config) (*DB, error) {
	config, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, urlError(err)
	}
	config.MaxConns = int32(cmp.Or(c.PoolSize, 16))
	config.MinConns = 0
	config.HealthCheckPeriod = 15 * time.Second
	config.PingTimeout = time.Second
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		registerTypes(conn)
		if c.Pooler == TransactionPooler { // whose server process is not ours
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		return KeepMemory(ctx, conn)
	}
	conn := config.ConnConfig
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = connectTimeout
	}
	if c.Pooler == TransactionPooler {
		conn.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = cmp.Or(c.ApplicationName, "ledger")
	}
	retry.WatchWarnings(&conn.Config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the pool: %w", err)
	}
	return &DB{Pool: pool, AcquireTimeout: cmp.Or(c.AcquireTimeout, time.Second)}, nil
}

// connectTimeout is for each host, where the URL does not say otherwise.
const connectTimeout = 5 * time.Second

// errURL says what a database URL is instead of what was given, which may hold
// a password: pgx masks it only where it can tell where it begins and ends.
var errURL = errors.New("the database URL cannot be read: it is neither like postgres://user:password@host:port/database?sslmode=verify-full " +
	"(special characters percent-encoded) nor a list of key=value")

// urlError is the error for a URL that pgx could not read because of err.
func urlError(err error) error {
	var file *fs.PathError // of a certificate, or a service file
	if errors.As(err, &file) {
		return fmt.Errorf("%w, or one of its files is missing: %w", errURL, file)
	}
	return errURL
}

// registerTypes teaches a connection to read and write our types in binary.
func registerTypes(conn *pgx.Conn) {
	pgxuuid.Register(conn.TypeMap())
	pgxdecimal.Register(conn.TypeMap())
}

// KeepMemory makes the server process of conn keep up to 4 MB that it has freed.
//
// By default glibc gives memory at the end of the heap back to the system as
// soon as 128 KiB of it are free, and a server process may then fetch it page
// by page in every transaction. Whoever once frees a larger piece that was
// mapped apart raises that limit to twice its size, for good (mallopt(3),
// M_TRIM_THRESHOLD and M_MMAP_THRESHOLD).
func KeepMemory(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, keepMemorySQL, pgx.QueryExecModeExec); err != nil {
		return fmt.Errorf("warm up the connection: %w", err)
	}
	return nil
}

const keepMemorySQL = `SELECT length(repeat('x', 2000000))`

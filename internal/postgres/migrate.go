package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/migrations"
)

// ErrNotMigrated says that the database's schema is older than this program's.
var ErrNotMigrated = errors.New("the database is not migrated")

// A MigrationState is one migration and when it was applied.
type MigrationState struct {
	Version   int64
	Name      string
	AppliedAt time.Time // zero when it is pending
}

// Migrate applies the migrations that the database at url lacks. Many may call
// it at once: a lease in a table lets one work at a time, and ends by itself
// where its holder died. A migration that cannot get its table lock within its
// lock_timeout lets everybody else go on, and is tried again until ctx ends.
// Each migration is one transaction together with its version: after an error
// the ones before it stay, and nothing of it remains.
func Migrate(ctx context.Context, url string, logger *slog.Logger) error {
	for {
		err := migrateOnce(ctx, url, logger)
		if err == nil || !contended(err) {
			return err
		}
		logger.WarnContext(ctx, "migration waits for a lock; it will be tried again", "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(migrateRetryPause + rand.N(migrateRetryPause)):
		}
	}
}

const migrateRetryPause = 500 * time.Millisecond

// contended reports whether another try may succeed: a table's lock was not to
// be had in time, or several processes created the same thing at once
// (PostgreSQL reports CREATE TABLE IF NOT EXISTS racing itself by a duplicate
// row in its catalog).
func contended(err error) bool {
	switch retry.SQLState(err) {
	case "55P03", "40P01", "40001", "23505", "42P07", "42710":
		return true
	}
	return false
}

func migrateOnce(ctx context.Context, url string, logger *slog.Logger) error {
	provider, db, err := newProvider(url, logger)
	if err != nil {
		return err
	}
	defer db.Close()
	results, err := provider.Up(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	for _, r := range results {
		logger.InfoContext(ctx, "migrated", "version", r.Source.Version, "name", r.Source.Path, "duration", r.Duration)
	}
	return nil
}

// Migrations lists all migrations, in order, with what url's database has of
// them. It changes nothing, save that goose makes its version table.
func Migrations(ctx context.Context, url string) ([]MigrationState, error) {
	provider, db, err := newProvider(url, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	statuses, err := provider.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the migrations' state: %w", err)
	}
	var states []MigrationState
	for _, s := range statuses {
		states = append(states, MigrationState{Version: s.Source.Version, Name: s.Source.Path, AppliedAt: s.AppliedAt})
	}
	return states, nil
}

func newProvider(url string, logger *slog.Logger) (*goose.Provider, *sql.DB, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, nil, fmt.Errorf("read the database URL: %w", err)
	}
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableLockTimeout(200*time.Millisecond, 600),
		lock.WithTableUnlockTimeout(200*time.Millisecond, 50),
		lock.WithTableRetryPolicy(func(err error) bool { return retry.SQLState(err) == "" || contended(err) }),
		lock.WithTableLogger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("make the migration lock: %w", err)
	}
	// Simple protocol: nothing to prepare, so a pooler may stand between.
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(3) // the lock's heartbeat has its own
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
		goose.WithLocker(locker), goose.WithSlog(logger), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		db.Close()
		return nil, nil, fmt.Errorf("read the migrations: %w", err)
	}
	return provider, db, nil
}

// Migrated returns nil when db has every migration of this program, or more
// (a newer program may have gone ahead), and [ErrNotMigrated] when one is
// missing.
func Migrated(ctx context.Context, db retry.Beginner, policy retry.Policy) error {
	applied, err := retry.Tx(ctx, db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, policy, selectVersion)
	if retry.SQLState(err) == "42P01" { // no such table
		return fmt.Errorf("%w: it has none of version %d", ErrNotMigrated, latest())
	}
	if err == nil && applied < latest() {
		return fmt.Errorf("%w: it is at version %d of %d", ErrNotMigrated, applied, latest())
	}
	return err
}

const selectVersionSQL = `
	SELECT coalesce(max(version_id), 0)
	  FROM goose_db_version
	 WHERE is_applied`

func selectVersion(ctx context.Context, tx pgx.Tx) (version int64, err error) {
	err = tx.QueryRow(ctx, selectVersionSQL).Scan(&version)
	return version, err
}

// latest is the number of the newest migration that this program has.
func latest() int64 {
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil || len(names) == 0 {
		panic("no migrations are embedded")
	}
	version, err := goose.NumericComponent(names[len(names)-1])
	if err != nil {
		panic(err)
	}
	return version
}

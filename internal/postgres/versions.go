package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

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

// Migrations lists all migrations of this program, in order, with what url's
// database has of them. It changes nothing.
func Migrations(ctx context.Context, url string) ([]MigrationState, error) {
	m, err := newMigrator(url, migrations.FS, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer m.db.Close()
	return m.states(ctx)
}

func (m *migrator) states(ctx context.Context) ([]MigrationState, error) {
	provider, err := m.newProvider()
	if err != nil {
		return nil, err
	}
	versions, err := m.versions(ctx)
	if err != nil {
		return nil, err
	}
	var states []MigrationState
	for _, s := range provider.ListSources() {
		states = append(states, MigrationState{Version: s.Version, Name: s.Path, AppliedAt: versions[s.Version]})
	}
	return states, nil
}

// pending reports whether the database lacks a migration.
func (m *migrator) pending(ctx context.Context) (bool, error) {
	states, err := m.states(ctx)
	for _, s := range states {
		if s.AppliedAt.IsZero() {
			return true, nil
		}
	}
	return false, err
}

// The table is the current schema's own: where that one is a tenant's and has
// none yet, the search path may lead to another's. goose writes the time
// without a zone, in the session's.
const selectVersionsSQL = `
	SELECT version_id, tstamp::timestamptz
	  FROM goose_db_version
	 WHERE is_applied
	   AND tableoid = to_regclass(quote_ident(current_schema()) || '.goose_db_version')`

// versions returns the versions that the database has, and since when.
func (m *migrator) versions(ctx context.Context) (map[int64]time.Time, error) {
	versions := map[int64]time.Time{}
	rows, err := m.db.QueryContext(ctx, selectVersionsSQL)
	if retry.SQLState(err) == undefinedTable {
		return versions, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the migrations' state: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var version int64
		var at time.Time
		if err := rows.Scan(&version, &at); err != nil {
			return nil, fmt.Errorf("read the migrations' state: %w", err)
		}
		versions[version] = at
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the migrations' state: %w", err)
	}
	return versions, nil
}

const undefinedTable = "42P01"

// Migrated returns nil when db has every migration of this program, or more
// (a newer program may have gone ahead), and [ErrNotMigrated] when one is
// missing. Other errors are package retry's.
func Migrated(ctx context.Context, db retry.Beginner, policy retry.Policy) error {
	applied, err := retry.Tx(ctx, db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, policy, selectVersion)
	if err != nil && retry.SQLState(err) != undefinedTable {
		return err
	}
	if applied < latest() {
		return fmt.Errorf("%w: it is at version %d of %d", ErrNotMigrated, applied, latest())
	}
	return nil
}

const selectVersionSQL = `
	SELECT coalesce(max(version_id), 0)
	  FROM goose_db_version
	 WHERE is_applied
	   AND tableoid = to_regclass(quote_ident(current_schema()) || '.goose_db_version')`

// Not prepared: a prepared statement would stay with the table that it found
// first, were it another ledger's.
func selectVersion(ctx context.Context, tx pgx.Tx) (version int64, err error) {
	err = tx.QueryRow(ctx, selectVersionSQL, pgx.QueryExecModeExec).Scan(&version)
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

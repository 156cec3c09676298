package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/migrations"
)

// Migrate applies the migrations that the database at url lacks. Many may call
// it at once: a lease in a table lets one work while the others wait, and ends
// by itself a few seconds after its holder died. A migration that cannot get
// its table lock within its lock_timeout lets the readers through, and is tried
// again until ctx ends.
//
// Each migration is one transaction together with its version: after an error,
// which names it, nothing of it remains, and the ones before it stay.
func Migrate(ctx context.Context, url string, logger *slog.Logger) error {
	return migrate(ctx, url, migrations.FS, logger)
}

func migrate(ctx context.Context, url string, fsys fs.FS, logger *slog.Logger) error {
	m, err := newMigrator(url, fsys, logger)
	if err != nil {
		return err
	}
	defer m.db.Close()
	pending, err := m.pending(ctx)
	if err != nil || !pending {
		return err
	}
	locker, err := m.newLocker()
	if err != nil {
		return err
	}
	if err := locker.Lock(ctx, m.db); err != nil {
		return fmt.Errorf("wait for the migration lock: %w", err)
	}
	// The lease is held over all tries: otherwise every waiting replica would
	// have a turn at the table's lock, and the readers behind them none.
	defer func() {
		if err := locker.Unlock(ctx, m.db); err != nil {
			logger.WarnContext(ctx, "the migration lock was not released; its lease ends by itself", "error", err)
		}
	}()
	return m.up(ctx)
}

// A migrator is a set of migrations and the database they are for.
type migrator struct {
	db     *sql.DB
	fsys   fs.FS
	logger *slog.Logger
}

func newMigrator(url string, fsys fs.FS, logger *slog.Logger) (*migrator, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, urlError(err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	// Simple protocol: nothing to prepare, so a pooler may stand between.
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(2) // one that works, one for the lock and its heartbeat
	return &migrator{db: db, fsys: fsys, logger: logger}, nil
}

// A holder that is killed costs the others migrationLease. One that is merely
// paused for as long may lose its lease and go on: that is harmless, because
// no version can be stored twice.
const (
	migrationLease     = 5 * time.Second // goose rounds to seconds
	migrationHeartbeat = time.Second
	migrationLockPoll  = 200 * time.Millisecond
)

func (m *migrator) newLocker() (lock.Locker, error) {
	var waits sync.Once
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableLeaseDuration(migrationLease),
		lock.WithTableHeartbeatInterval(migrationHeartbeat),
		lock.WithTableLockTimeout(migrationLockPoll, math.MaxUint64), // ctx is the limit
		lock.WithTableUnlockTimeout(migrationLockPoll, 5),
		lock.WithTableLogger(slog.New(slog.DiscardHandler)),
		lock.WithTableRetryPolicy(func(err error) bool {
			// goose has no sentinel for a lock that somebody else holds, but it
			// is the one error that does not wrap another.
			held := errors.Unwrap(err) == nil
			if held {
				waits.Do(func() { m.logger.Info("another process migrates; waiting for it") })
			}
			return held || contended(err)
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("make the migration lock: %w", err)
	}
	return locker, nil
}

// up applies what is pending, again and again while others are in the way.
func (m *migrator) up(ctx context.Context) error {
	for pause := minMigratePause; ; pause = min(2*pause, maxMigratePause) {
		err := m.upOnce(ctx)
		if err == nil || !m.mayRepeat(ctx, err) {
			return err
		}
		m.logger.WarnContext(ctx, "a migration waits for a lock; it will be tried again", "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(pause + rand.N(pause)):
		}
	}
}

// The pause between two tries is the readers': while a migration waits for a
// table, they wait behind it.
const (
	minMigratePause = 500 * time.Millisecond
	maxMigratePause = 8 * time.Second
)

func (m *migrator) upOnce(ctx context.Context) error {
	provider, err := m.newProvider()
	if err != nil {
		return err
	}
	applied, err := provider.Up(ctx)
	var partial *goose.PartialError
	if errors.As(err, &partial) {
		applied = partial.Applied
		err = fmt.Errorf("migration %s: nothing of it remains, and the ones before it stay: %w", partial.Failed.Source.Path, err)
	} else if err != nil {
		err = fmt.Errorf("migrate: %w", err)
	}
	for _, r := range applied {
		m.logger.InfoContext(ctx, "migrated", "version", r.Source.Version, "name", r.Source.Path, "duration", r.Duration)
	}
	return err
}

// mayRepeat reports whether another try may succeed after err: a lock was not
// to be had in time, or somebody whose lease had ended was quicker.
func (m *migrator) mayRepeat(ctx context.Context, err error) bool {
	if contended(err) {
		return true
	}
	var partial *goose.PartialError
	if !errors.As(err, &partial) {
		return false
	}
	versions, err := m.versions(ctx)
	_, applied := versions[partial.Failed.Source.Version]
	return err == nil && applied
}

func contended(err error) bool {
	switch retry.SQLState(err) {
	case "55P03", "40P01", "40001":
		return true
	}
	return false
}

func (m *migrator) newProvider() (*goose.Provider, error) {
	store, err := database.NewStore(goose.DialectPostgres, goose.DefaultTablename)
	if err != nil {
		return nil, fmt.Errorf("make the version store: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectCustom, m.db, m.fsys,
		goose.WithStore(onceStore{store.(database.StoreExtender)}),
		goose.WithSlog(m.logger), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	return provider, nil
}

// A onceStore is goose's table of versions with a guard that goose lacks: of
// two who apply the same migration, one fails and leaves nothing. A lease alone
// cannot promise that.
type onceStore struct{ database.StoreExtender }

const createVersionIndexSQL = `CREATE UNIQUE INDEX goose_db_version_once ON goose_db_version (version_id)`

func (s onceStore) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	if err := s.StoreExtender.CreateVersionTable(ctx, db); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, createVersionIndexSQL)
	return err
}

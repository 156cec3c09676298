package retry_test

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rowlock/ledger/internal/retry"
)

// A fakeDB begins transactions that end as the test wants. Each attempt takes
// the next error of each list; past the end there is none.
type fakeDB struct {
	beginErrs, commitErrs []error

	begun      []*pgx.Batch
	begunAt    []time.Time
	commits    int
	rollbacks  int
	rollbackOK bool // the last rollback's context was alive, and bounded
}

func (db *fakeDB) BeginWith(_ context.Context, begin *pgx.Batch) (pgx.Tx, error) {
	db.begun = append(db.begun, begin)
	db.begunAt = append(db.begunAt, time.Now())
	if n := len(db.begun); n <= len(db.beginErrs) && db.beginErrs[n-1] != nil {
		return nil, db.beginErrs[n-1]
	}
	return &fakeTx{db: db}, nil
}

// A fakeTx has no connection.
type fakeTx struct {
	pgx.Tx
	db *fakeDB
}

func (tx *fakeTx) Conn() *pgx.Conn { return nil }

func (tx *fakeTx) Commit(context.Context) error {
	tx.db.commits++
	if n := tx.db.commits; n <= len(tx.db.commitErrs) {
		return tx.db.commitErrs[n-1]
	}
	return nil
}

func (tx *fakeTx) Rollback(ctx context.Context) error {
	_, bounded := ctx.Deadline()
	tx.db.rollbacks++
	tx.db.rollbackOK = bounded && ctx.Err() == nil
	return nil
}

// fails returns an fn that fails with errs, one an attempt, and then returns
// the number of the attempt.
func fails(errs ...error) func(context.Context, pgx.Tx) (int, error) {
	attempt := 0
	return func(context.Context, pgx.Tx) (int, error) {
		attempt++
		if attempt <= len(errs) {
			return -1, errs[attempt-1]
		}
		return attempt, nil
	}
}

// always returns an fn that fails with err in every attempt.
func always(err error) func(context.Context, pgx.Tx) (int, error) {
	return func(context.Context, pgx.Tx) (int, error) { return -1, err }
}

func pgError(severity, code string) error {
	return &pgconn.PgError{Severity: "localised", SeverityUnlocalized: severity, Code: code, Message: "told by a test"}
}

var (
	serialization = pgError("ERROR", "40001")
	deadlock      = pgError("ERROR", "40P01")
	reset         = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
)

// cannotConnect is what pgx returns when there is no server.
func cannotConnect(t *testing.T) error {
	t.Helper()
	_, err := pgconn.Connect(t.Context(), "postgres://nobody@/nothing?host=/no/such/directory")
	if err == nil {
		t.Fatal("connected to a server that is not there")
	}
	return err
}

// watched is p, and what its OnConflict has seen.
func watched(p retry.Policy) (retry.Policy, *[]retry.Conflict) {
	var seen []retry.Conflict
	p.OnConflict = func(c retry.Conflict) { seen = append(seen, c) }
	return p, &seen
}

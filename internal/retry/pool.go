package retry

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Pool begins transactions on pooled connections. It waits for a connection
// no longer than AcquireTimeout, so that a full pool is an early answer and
// not a queue.
type Pool struct {
	*pgxpool.Pool
	AcquireTimeout time.Duration // 0 waits as long as the context
}

// BeginWith returns a transaction on a connection of its own, which goes back
// to the pool with the transaction's Rollback.
func (p *Pool) BeginWith(ctx context.Context, begin *pgx.Batch) (pgx.Tx, error) {
	conn, err := p.acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire a connection: %w", err)
	}
	return &pooledTx{conn: conn, begin: begin}, nil
}

func (p *Pool) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if p.AcquireTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.AcquireTimeout)
		defer cancel()
	}
	return p.Pool.Acquire(ctx)
}

// A pooledTx begins with its first statements, in one message with them. It
// gives its connection back in Rollback alone, which try calls even after a
// commit: until then the connection's warnings are its own. What is not
// written here works once it has begun.
type pooledTx struct {
	pgx.Tx // nil until it has begun
	conn   *pgxpool.Conn
	begin  *pgx.Batch
}

func (t *pooledTx) Conn() *pgx.Conn { return t.conn.Conn() }

func (t *pooledTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.Tx != nil {
		return t.Tx.SendBatch(ctx, b)
	}
	preamble := t.begin.Len()
	t.begin.QueuedQueries = append(t.begin.QueuedQueries, b.QueuedQueries...)
	results := t.conn.SendBatch(ctx, t.begin)
	t.Tx = results.Tx()
	for range preamble { // where one fails, the results fail
		results.Exec()
	}
	return results
}

// start begins on its own, for statements that are not in a batch.
func (t *pooledTx) start(ctx context.Context) error {
	if t.Tx != nil {
		return nil
	}
	return t.SendBatch(ctx, &pgx.Batch{}).Close()
}

func (t *pooledTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.start(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.Tx.Exec(ctx, sql, args...)
}

func (t *pooledTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.start(ctx); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	return t.Tx.Query(ctx, sql, args...)
}

func (t *pooledTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.start(ctx); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	return t.Tx.QueryRow(ctx, sql, args...)
}

func (t *pooledTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	return t.Tx.Begin(ctx)
}

func (t *pooledTx) Commit(ctx context.Context) error {
	if t.Tx == nil { // nothing was done
		return nil
	}
	return t.Tx.Commit(ctx)
}

func (t *pooledTx) Rollback(ctx context.Context) error {
	defer t.conn.Release()
	if t.Tx == nil {
		return nil
	}
	return t.Tx.Rollback(ctx)
}

// WatchWarnings makes config's connections remember the server's warnings, for
// one of them changes what a commit means: when the wait for a synchronous
// standby is cut short, COMMIT still succeeds, on this server alone, and a
// warning is all that tells.
func WatchWarnings(config *pgconn.Config) {
	next := config.OnNotice
	config.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.SeverityUnlocalized == "WARNING" {
			conn.CustomData()[warningKey] = notice
		}
		if next != nil {
			next(conn, notice)
		}
	}
}

const warningKey = "github.com/rowlock/ledger/internal/retry.warning"

// warnings returns what the connection of tx has been warned of, or nil for a
// transaction without a connection, as tests have it.
func warnings(tx pgx.Tx) map[string]any {
	if conn := tx.Conn(); conn != nil {
		return conn.PgConn().CustomData()
	}
	return nil
}

// warned returns [ErrCommitUnknown] when COMMIT came with a warning.
func warned(data map[string]any) error {
	if notice, ok := data[warningKey].(*pgconn.Notice); ok {
		return fmt.Errorf("%w: %s", ErrCommitUnknown, notice.Message)
	}
	return nil
}

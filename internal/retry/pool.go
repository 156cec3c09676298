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

// BeginTx begins a transaction on a connection of its own, which goes back to
// the pool with the transaction's Rollback.
func (p *Pool) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	conn, err := p.acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire a connection: %w", err)
	}
	tx, err := conn.BeginTx(ctx, opts)
	if err != nil {
		conn.Release()
		return nil, err
	}
	return &pooledTx{Tx: tx, conn: conn}, nil
}

func (p *Pool) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if p.AcquireTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.AcquireTimeout)
		defer cancel()
	}
	return p.Pool.Acquire(ctx)
}

// A pooledTx gives its connection back in Rollback alone, which try calls even
// after a commit: until then the connection's warnings are its own.
type pooledTx struct {
	pgx.Tx
	conn *pgxpool.Conn
}

func (t *pooledTx) Rollback(ctx context.Context) error {
	defer t.conn.Release()
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

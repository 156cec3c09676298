package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/rowlock/ledger/internal/postgres"
)

// BaseConnections is how many connections *base* has where it is not measured
// at one.
const BaseConnections = 32

// The statements of *base*, which is pinned: what a careful program sends for a
// transfer without a service in front, without keys, groups or retries, in six
// round trips: begin, lock, debit, credit, insert, commit. They write our own
// tables with all their indexes and checks; funds are left to the tables'
// CHECK, so base does less than the service, and its figures flatter nobody.
const (
	baseBeginSQL  = "BEGIN"
	baseCommitSQL = "COMMIT"

	baseLockSQL = `
	SELECT id, balance, min_balance, version
	  FROM accounts
	 WHERE id IN ($1, $2)
	 ORDER BY id
	   FOR UPDATE`

	baseDebitSQL = `
	UPDATE accounts
	   SET balance = balance - $2,
	       version = version + 1,
	       last_entry_at = clock_timestamp()
	 WHERE id = $1
	RETURNING balance, version`

	baseCreditSQL = `
	UPDATE accounts
	   SET balance = balance + $2,
	       version = version + 1,
	       last_entry_at = clock_timestamp()
	 WHERE id = $1
	RETURNING balance, version`

	baseInsertSQL = `
	INSERT INTO transfers (id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	                       debit_balance_after, credit_balance_after, debit_version, credit_version, created_at)
	VALUES ($1, 'transfer', $2, $3, $4, 'USD', '', '{}', $5, $6, $7, $8, clock_timestamp())`

	// What the second flush sends, it must know from the first.
	basePipelinedInsertSQL = `
	INSERT INTO transfers (id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	                       debit_balance_after, credit_balance_after, debit_version, credit_version, created_at)
	VALUES ($1, 'transfer', $2, $3, $4, 'USD', '', '{}', $5::numeric - $4, $6::numeric + $4, $7, $8, clock_timestamp())`
)

// A baseCaller makes transfers on one connection to the database. Parameters
// are of pgx's own types, which it encodes in binary without reflection.
type baseCaller struct {
	conn      *pgx.Conn
	ids       []pgtype.UUID
	amount    pgtype.Numeric
	pipelined bool
}

// newBaseCaller connects. The context of what it sends later is one that never
// ends: pgx would watch any other in a goroutine for each statement.
func newBaseCaller(ctx context.Context, url string, ids []uuid.UUID, pipelined bool) (*baseCaller, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	if err := postgres.KeepMemory(ctx, conn); err != nil { // as the service's connections do
		return nil, errors.Join(err, conn.Close(ctx))
	}
	c := &baseCaller{conn: conn, pipelined: pipelined}
	// Prepared by hand, since pgx would send those without parameters as text.
	for _, sql := range []string{baseBeginSQL, baseLockSQL, baseDebitSQL, baseCreditSQL, baseInsertSQL, basePipelinedInsertSQL, baseCommitSQL} {
		if _, err := conn.Prepare(ctx, sql, sql); err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
	}
	for _, id := range ids {
		c.ids = append(c.ids, native(id))
	}
	if err := c.amount.Scan(amount); err != nil {
		return nil, err
	}
	return c, nil
}

func native(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

func (c *baseCaller) close() { c.conn.Close(context.Background()) }

// A baseRow is an account as a statement returns it.
type baseRow struct {
	id      pgtype.UUID
	balance pgtype.Numeric
	least   pgtype.Numeric
	version int64
}

// errAccounts says that a transfer did not find its two accounts.
var errAccounts = errors.New("the accounts are not there")

func (c *baseCaller) call(pairs []pair) (code string, err error) {
	send := c.sixTrips
	if c.pipelined {
		send = c.twoTrips
	}
	for _, p := range pairs {
		id, err := uuid.NewV7()
		if err != nil {
			return "", err
		}
		if err := send(context.Background(), native(id), c.ids[p.debit], c.ids[p.credit]); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (c *baseCaller) sixTrips(ctx context.Context, id, debit, credit pgtype.UUID) error {
	if _, err := c.conn.Exec(ctx, baseBeginSQL); err != nil {
		return err
	}
	rows, err := c.conn.Query(ctx, baseLockSQL, debit, credit)
	if err != nil {
		return err
	}
	if _, err := scanLocked(rows); err != nil {
		return err
	}
	var d, cr baseRow
	if err := c.conn.QueryRow(ctx, baseDebitSQL, debit, c.amount).Scan(&d.balance, &d.version); err != nil {
		return err
	}
	if err := c.conn.QueryRow(ctx, baseCreditSQL, credit, c.amount).Scan(&cr.balance, &cr.version); err != nil {
		return err
	}
	if _, err := c.conn.Exec(ctx, baseInsertSQL, id, debit, credit, c.amount, d.balance, cr.balance, d.version, cr.version); err != nil {
		return err
	}
	_, err = c.conn.Exec(ctx, baseCommitSQL)
	return err
}

// twoTrips is *base pipelined*: the same statements in two flushes.
func (c *baseCaller) twoTrips(ctx context.Context, id, debit, credit pgtype.UUID) error {
	var locked [2]baseRow
	first := &pgx.Batch{}
	first.Queue(baseBeginSQL)
	first.Queue(baseLockSQL, debit, credit).Query(func(rows pgx.Rows) (err error) {
		locked, err = scanLocked(rows)
		return err
	})
	if err := c.conn.SendBatch(ctx, first).Close(); err != nil {
		return err
	}
	d, cr := locked[0], locked[1]
	if d.id != debit {
		d, cr = cr, d
	}
	second := &pgx.Batch{}
	second.Queue(baseDebitSQL, debit, c.amount)
	second.Queue(baseCreditSQL, credit, c.amount)
	second.Queue(basePipelinedInsertSQL, id, debit, credit, c.amount, d.balance, cr.balance, d.version+1, cr.version+1)
	second.Queue(baseCommitSQL)
	return c.conn.SendBatch(ctx, second).Close()
}

func scanLocked(rows pgx.Rows) (locked [2]baseRow, err error) {
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		if n == len(locked) {
			return locked, errAccounts
		}
		r := &locked[n]
		if err := rows.Scan(&r.id, &r.balance, &r.least, &r.version); err != nil {
			return locked, err
		}
	}
	if err := rows.Err(); err != nil {
		return locked, err
	}
	if n != len(locked) {
		return locked, errAccounts
	}
	return locked, nil
}

// runBase measures *base*, or *base pipelined*.
func (b *Bench) runBase(ctx context.Context, l *ledger, w Workload, r *Result) error {
	var callers []caller
	for range r.Clients {
		c, err := newBaseCaller(ctx, l.url, l.ids, r.Kind == Pipelined)
		if err != nil {
			closeAll(callers)
			return fmt.Errorf("connect: %w", err)
		}
		callers = append(callers, c)
	}
	return b.drive(ctx, l, w, callers, "", r)
}

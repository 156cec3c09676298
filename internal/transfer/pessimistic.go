package transfer

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// Pessimistic locks every row before it reads it. Two transfers between the
// same accounts in opposite directions lock in the same order, so neither can
// hold what the other waits for.
var Pessimistic = &Mode{
	Name:      "pessimistic",
	Doc:       "SELECT ... ORDER BY id FOR UPDATE: never a lost update, never a deadlock; waits in a queue.",
	TxOptions: pgx.TxOptions{IsoLevel: pgx.ReadCommitted},
	move: func(ctx context.Context, tx pgx.Tx, b *pgx.Batch, l Locking, ms []*move) (*pgx.Batch, error) {
		read := queueRead(b, ms, &l)
		if l.statementTimeout > 0 {
			b.Queue(setStatementTimeoutSQL, strconv.FormatInt(l.statementTimeout.Milliseconds(), 10))
		}
		if err := send(ctx, tx, b, "lock accounts"); err != nil {
			return nil, err
		}
		if err := read.judge(ctx, tx, ms); err != nil {
			return nil, err
		}
		b = &pgx.Batch{}
		if l.EachRow {
			read.queueUnchanged(b)
			return b, nil
		}
		return b, read.queueHeld(b)
	},
}

// The locks are held, so what follows need not hurry as they did.
const setStatementTimeoutSQL = `SELECT set_config('statement_timeout', $1, true)`

// Locking is how the pessimistic mode takes its row locks. The zero value is
// FOR UPDATE, and waits.
type Locking struct {
	NoKeyUpdate bool // FOR NO KEY UPDATE: lets foreign keys of other tables be checked
	NoWait      bool // answer at once where somebody else holds a row

	// EachRow gives each row a statement of its own, in the same messages: for
	// engines that refuse to lock several rows in one, as sharded ones do. What
	// bounds a statement then bounds the wait for one row, and not for all of them.
	EachRow bool

	// statementTimeout, where not zero, is the limit of the statements after
	// the locks: a group that must not wait long for them begins with a shorter one.
	statementTimeout time.Duration
}

// suffix is the lock of a SELECT; nil takes none.
func (l *Locking) suffix() string {
	switch {
	case l == nil:
		return ""
	case l.NoWait:
		return l.strength() + " NOWAIT"
	}
	return l.strength()
}

func (l Locking) strength() string {
	if l.NoKeyUpdate {
		return " FOR NO KEY UPDATE"
	}
	return " FOR UPDATE"
}

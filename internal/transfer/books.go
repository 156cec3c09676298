package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/retry"
)

// books are what a transaction knows of the ledger: what some moves need, as
// it read it, and then as they leave it.
type books struct {
	locking    *Locking // how it locks what it reads; nil: not at all
	accounts   map[uuid.UUID]*balance
	holds      map[uuid.UUID]*Hold
	references map[reference]uuid.UUID       // to the transfers that have them
	reversed   map[uuid.UUID]decimal.Decimal // sums, by the transfers that are taken back
	at         time.Time                     // when they were read, by the database's clock; never below an entry of any account

	transfers []*Transfer // made here, in order
	opened    []*Hold     // the same
	poor      []uuid.UUID // accounts that could not pay while holds kept some of their money
}

// needs are what some moves need, besides their accounts.
type needs struct {
	holds, reversed []uuid.UUID
	references      []reference
}

// accountIDs returns the accounts of ms, each once, in the order in which they
// are locked and written everywhere.
func accountIDs(ms []*move) []uuid.UUID {
	if len(ms) == 1 {
		return ms[0].accounts
	}
	ids := make([]uuid.UUID, 0, 2*len(ms))
	for _, m := range ms {
		ids = append(ids, m.accounts...)
	}
	return inOrder(ids)
}

// inOrder sorts ids and removes what is there twice.
func inOrder(ids []uuid.UUID) []uuid.UUID {
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// compareIDs is PostgreSQL's order of uuid: the order of the bytes.
func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// A statement of its own: it runs when the one before has all its locks.
const selectClockSQL = `SELECT clock_timestamp()`

// queueRead queues the reading of all that ms need, with locks unless l is nil:
// first the holds, then the accounts, in the order of their ids.
// What depends on the accounts' locks is read by statements behind them. The
// result is there when the batch has run.
func queueRead(b *pgx.Batch, ms []*move, l *Locking) *books {
	var n needs
	for _, m := range ms {
		for _, s := range m.steps {
			s.need(&n)
		}
	}
	read := &books{locking: l, accounts: map[uuid.UUID]*balance{}}
	if len(n.holds) > 0 {
		read.queueHolds(b, inOrder(n.holds))
	}
	read.queueBalances(b, accountIDs(ms))
	if len(n.references) > 0 {
		read.queueReferences(b, n.references)
	}
	if len(n.reversed) > 0 {
		read.queueReversed(b, inOrder(n.reversed))
	}
	b.Queue(selectClockSQL).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&read.at); err != nil {
			return err
		}
		for _, a := range read.accounts {
			if a.lastEntryAt.After(read.at) { // the clock was set back
				read.at = a.lastEntryAt
			}
		}
		return nil
	})
	return read
}

// judge judges those of ms that are this attempt's to make, in their order.
// Where one would be refused for want of funds while expired holds keep money of
// its account, it releases those holds, in tx, and judges that move again.
func (b *books) judge(ctx context.Context, tx pgx.Tx, ms []*move) error {
	for _, m := range ms {
		if m.mine() {
			b.judgeMove(m)
		}
	}
	for len(b.poor) > 0 {
		poor := b.poor
		b.poor = nil
		if released, err := b.expire(ctx, tx, poor); err != nil || released == 0 {
			return err
		}
		for _, m := range ms {
			if m.mine() && m.lacksFunds(poor) {
				b.judgeMove(m)
			}
		}
	}
	return nil
}

// judgeMove does what m asks for in memory, or sets why not.
func (b *books) judgeMove(m *move) {
	m.refusal = nil
	if m.batch != nil {
		m.refusal = b.judgeBatch(m)
	} else if refusal := m.steps[0].judge(b); refusal != nil {
		refusal.TransferID = m.id
		m.refusal = refusal
	}
}

// queueWrite queues the writing of every changed account, once each and in the
// order of their ids, as sql says, with the parameters that args makes of an
// account. SQL raises the version, and written sees what it raised it to, or
// pgx.ErrNoRows where sql's condition did not hold.
func (b *books) queueWrite(batch *pgx.Batch, sql string, args func(a *balance) []any, written func(a *balance, version int64, err error) error) {
	for _, a := range slices.SortedFunc(maps.Values(b.accounts), func(a, b *balance) int { return compareIDs(a.id, b.id) }) {
		if !a.changed() {
			continue
		}
		batch.Queue(sql, args(a)...).QueryRow(func(row pgx.Row) error {
			var version int64
			err := row.Scan(&version)
			return written(a, version, err)
		})
	}
}

// All that a judgement depends on is compared: the version for the balance, and
// what changes without an entry. The limits are the table's CHECKs'.
const updateBalanceSQL = `
	UPDATE accounts
	   SET balance = $2,
	       held = $3,
	       version = version + $4,
	       last_entry_at = CASE WHEN $4 > 0 THEN $5 ELSE last_entry_at END
	 WHERE id = $1
	   AND version = $6
	   AND held = $7
	   AND status = $8
	   AND debits_blocked = $9
	   AND credits_blocked = $10
	RETURNING version`

// readThenWrite reads the accounts without a lock, judges in memory, and leaves
// to be written what it judged, if every account is then still as it was read.
// The error matches [retry.ErrConflict] otherwise.
func readThenWrite(ctx context.Context, tx pgx.Tx, b *pgx.Batch, ms []*move) (*pgx.Batch, error) {
	read := queueRead(b, ms, nil)
	if err := send(ctx, tx, b, "read accounts"); err != nil {
		return nil, err
	}
	if err := read.judge(ctx, tx, ms); err != nil {
		return nil, err
	}
	b = &pgx.Batch{}
	read.queueUnchanged(b)
	return b, nil
}

// queueUnchanged queues the writing of what was judged, row by row, where every
// account is still as it was read. Where all of them are held, it is.
func (b *books) queueUnchanged(batch *pgx.Batch) {
	b.queueChangedHolds(batch)
	b.queueWrite(batch, updateBalanceSQL, func(a *balance) []any {
		return []any{a.id, a.amount, a.held, a.entries, b.at, a.version - a.entries, a.heldThen, a.status, a.debitsBlocked, a.creditsBlocked}
	}, func(a *balance, _ int64, err error) error {
		if errors.Is(err, pgx.ErrNoRows) || retry.SQLState(err) == checkViolation {
			return fmt.Errorf("%w: account %s", retry.ErrConflict, a.id)
		}
		return err
	})
	b.queueInserts(batch)
}

// checkViolation is what a balance that was judged without a lock ends in where
// the account's limits have changed meanwhile.
const checkViolation = "23514"

// send sends a batch in one message and runs its callbacks. An empty one is
// not sent.
func send(ctx context.Context, tx pgx.Tx, b *pgx.Batch, doing string) error {
	if b.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

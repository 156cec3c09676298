package transfer

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rowlock/ledger/internal/retry"
)

// Atomic changes each balance in one conditional statement and reads nothing
// before it. It learns why a condition did not hold by a look afterwards.
//
// It is a technique for one transfer: the members of a slice run one after the
// other, each in the order of its own two ids, which is no order among them.
var Atomic = &Mode{
	Name:      "atomic",
	Doc:       "UPDATE ... SET balance = balance - $n WHERE balance - $n >= min_balance: two statements, no prior read.",
	TxOptions: pgx.TxOptions{IsoLevel: pgx.ReadCommitted},
	move: func(ctx context.Context, tx pgx.Tx, b *pgx.Batch, _ Locking, ms []*move) error {
		for _, m := range ms {
			if err := moveAtomic(ctx, tx, b, m); err != nil {
				return err
			}
			b = &pgx.Batch{}
		}
		return nil
	},
}

// A refusal, and a key that is somebody else's, undo the updates and keep the
// claim: hence the savepoint after it.
func moveAtomic(ctx context.Context, tx pgx.Tx, b *pgx.Batch, m *move) error {
	b.Queue("SAVEPOINT claimed")
	matched := queueUpdates(b, m)
	made := queueInsertAfterUpdates(b, m)
	if err := send(ctx, tx, b, "update balances"); err != nil {
		return err
	}
	if m.mine() && *matched == 2 {
		if made.ID != m.id {
			return fmt.Errorf("transfer %s, or an entry in its place, exists", m.id)
		}
		m.transfer = *made
		return nil
	}
	b = &pgx.Batch{}
	b.Queue("ROLLBACK TO SAVEPOINT claimed")
	read := queueRead(b, []*move{m}, "")
	if err := send(ctx, tx, b, "look why no balance matched"); err != nil {
		return err
	}
	if !m.mine() {
		return nil
	}
	read.judge(m)
	if m.refusal == nil {
		// What stood in the way a moment ago is gone.
		return fmt.Errorf("%w: the update matched no row, and now it would", retry.ErrConflict)
	}
	return nil
}

const debitBalanceSQL = `
	UPDATE accounts
	   SET balance = balance - $2,
	       version = version + 1,
	       last_entry_at = greatest(last_entry_at, coalesce((SELECT last_entry_at FROM accounts WHERE id = $4), clock_timestamp()))
	 WHERE id = $1
	   AND currency = $3
	   AND status = 'open'
	   AND (min_balance IS NULL OR balance - $2 >= min_balance)
	   AND balance - $2 > -1e28`

const creditBalanceSQL = `
	UPDATE accounts
	   SET balance = balance + $2,
	       version = version + 1,
	       last_entry_at = greatest(last_entry_at, coalesce((SELECT last_entry_at FROM accounts WHERE id = $4), clock_timestamp()))
	 WHERE id = $1
	   AND currency = $3
	   AND status = 'open'
	   AND balance + $2 < 1e28`

// queueUpdates queues both updates, the lower id first whichever side it is,
// so that opposite transfers cannot deadlock. The second takes its time from
// the first ($4), so that both sides have the same one. The result counts the
// rows that matched, when the batch has run.
func queueUpdates(b *pgx.Batch, m *move) *int64 {
	matched := new(int64)
	count := func(tag pgconn.CommandTag) error {
		*matched += tag.RowsAffected()
		return nil
	}
	if compareIDs(m.DebitAccountID, m.CreditAccountID) < 0 {
		b.Queue(debitBalanceSQL, m.DebitAccountID, m.Amount, m.Currency, nil).Exec(count)
		b.Queue(creditBalanceSQL, m.CreditAccountID, m.Amount, m.Currency, m.DebitAccountID).Exec(count)
	} else {
		b.Queue(creditBalanceSQL, m.CreditAccountID, m.Amount, m.Currency, nil).Exec(count)
		b.Queue(debitBalanceSQL, m.DebitAccountID, m.Amount, m.Currency, m.CreditAccountID).Exec(count)
	}
	return matched
}

// Where both updates matched, both rows are this transaction's own, and say
// what the transfer left them at. Where one did not, this may insert a wrong
// row, or find that it is there already, and the savepoint takes it back.
const insertTransferAfterUpdatesSQL = `
	INSERT INTO transfers (id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	                       debit_balance_after, credit_balance_after, debit_version, credit_version, created_at)
	SELECT $1, $2, d.id, c.id, $5, $6, $7, $8, d.balance, c.balance, d.version, c.version,
	       greatest(d.last_entry_at, c.last_entry_at)
	  FROM accounts d, accounts c
	 WHERE d.id = $3
	   AND c.id = $4
	   AND d.version > 0
	   AND c.version > 0
	ON CONFLICT DO NOTHING
	RETURNING id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	          debit_balance_after, credit_balance_after, debit_version, credit_version, created_at, tx_id`

// Only where another transfer got between the two updates is the lower
// account's time behind the transfer's.
const updateLastEntrySQL = `
	UPDATE accounts a
	   SET last_entry_at = t.created_at
	  FROM transfers t
	 WHERE t.id = $1
	   AND a.id = $2
	   AND a.last_entry_at < t.created_at`

// queueInsertAfterUpdates queues the insertion of the transfer. The result is
// there when the batch has run, if both updates matched.
func queueInsertAfterUpdates(b *pgx.Batch, m *move) *Transfer {
	made := &Transfer{}
	b.Queue(insertTransferAfterUpdatesSQL, m.id, m.Kind, m.DebitAccountID, m.CreditAccountID,
		m.Amount, m.Currency, m.Description, orEmpty(m.Metadata)).Query(func(rows pgx.Rows) error {
		t, err := pgx.CollectExactlyOneRow(rows, scanTransfer)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // then an update has not matched
		}
		*made = t
		return err
	})
	low := m.DebitAccountID
	if compareIDs(m.CreditAccountID, low) < 0 {
		low = m.CreditAccountID
	}
	b.Queue(updateLastEntrySQL, m.id, low)
	return made
}

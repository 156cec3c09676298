package transfer

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

// Atomic changes each balance in one conditional statement and reads nothing
// before it. It learns why a condition did not hold by a look afterwards.
//
// It is a technique for one transfer that depends on nothing but its accounts.
// The members of a slice run one after the other, each in the order of its own
// two ids, which is no order among them. All else (holds, reversals, batches,
// references) takes its locks first, as the pessimistic mode does.
var Atomic = &Mode{
	Name:      "atomic",
	Doc:       "UPDATE ... SET balance = balance - $n WHERE balance - $n >= min_balance: two updates, no prior read.",
	TxOptions: pgx.TxOptions{IsoLevel: pgx.ReadCommitted},
	move: func(ctx context.Context, tx pgx.Tx, b *pgx.Batch, l Locking, ms []*move) (*pgx.Batch, error) {
		for _, m := range ms {
			if t, ok := m.steps[0].(*making); !ok || m.batch != nil || !t.plain() {
				return Pessimistic.move(ctx, tx, b, l, ms)
			}
		}
		for _, m := range ms {
			var err error
			if b, err = moveAtomic(ctx, tx, b, l, m); err != nil {
				return nil, err
			}
		}
		return b, nil
	},
}

// A refusal, and a key that is somebody else's, undo the updates and keep the
// claim: hence the savepoint after it.
func moveAtomic(ctx context.Context, tx pgx.Tx, b *pgx.Batch, l Locking, m *move) (*pgx.Batch, error) {
	t := m.steps[0].(*making)
	b.Queue("SAVEPOINT claimed")
	made := queueMove(b, t)
	if err := send(ctx, tx, b, "update balances"); err != nil {
		return nil, err
	}
	if m.mine() && made.ID == t.id {
		t.transfer = *made
		return &pgx.Batch{}, nil
	}
	b = &pgx.Batch{}
	b.Queue("ROLLBACK TO SAVEPOINT claimed")
	read := queueRead(b, []*move{m}, nil)
	if err := send(ctx, tx, b, "look why no balance matched"); err != nil {
		return nil, err
	}
	if !m.mine() {
		return &pgx.Batch{}, nil
	}
	read.judgeMove(m)
	switch {
	case len(read.poor) > 0: // holds that have expired may stand in the way: that is seen behind the locks
		return Pessimistic.move(ctx, tx, &pgx.Batch{}, l, []*move{m})
	case m.refusal != nil:
		return &pgx.Batch{}, nil
	}
	// What stood in the way a moment ago is gone.
	return nil, fmt.Errorf("%w: the update matched no row, and now it would", retry.ErrConflict)
}

// Each update holds its row when it decides. The higher id waits for the lower
// one, whichever side that is, so that opposite transfers cannot deadlock; where
// the lower one does not match, the higher one is not even locked. The transfer
// exists only where both matched.
//
// The higher account's time is never below the lower one's: it is the transfer's.
//
// The id can be there only where the key is not this attempt's: an attempt
// before it, whose commit went unanswered, made the transfer.
const moveBalancesSQL = `
	WITH low AS (
	  UPDATE accounts
	     SET balance = balance + $9,
	         version = version + 1,
	         last_entry_at = greatest(last_entry_at, clock_timestamp())
	   WHERE id = least($3::uuid, $4)
	     AND currency = $6
	     AND status = 'open'
	     AND CASE WHEN $9::numeric > 0
	              THEN NOT credits_blocked AND (max_balance IS NULL OR balance + $9 <= max_balance)
	              ELSE NOT debits_blocked AND (min_balance IS NULL OR balance - held + $9 >= min_balance) END
	     AND balance + $9 > -1e28
	     AND balance + $9 < 1e28
	  RETURNING id, balance, version, last_entry_at
	), high AS (
	  UPDATE accounts
	     SET balance = balance - $9,
	         version = version + 1,
	         last_entry_at = greatest(last_entry_at, clock_timestamp(), (SELECT last_entry_at FROM low))
	   WHERE id = greatest($3::uuid, $4)
	     AND EXISTS (SELECT FROM low)
	     AND currency = $6
	     AND status = 'open'
	     AND CASE WHEN $9::numeric < 0
	              THEN NOT credits_blocked AND (max_balance IS NULL OR balance - $9 <= max_balance)
	              ELSE NOT debits_blocked AND (min_balance IS NULL OR balance - held - $9 >= min_balance) END
	     AND balance - $9 > -1e28
	     AND balance - $9 < 1e28
	  RETURNING id, balance, version, last_entry_at
	), moved AS (
	  SELECT id, balance, version, last_entry_at FROM low
	   UNION ALL
	  SELECT id, balance, version, last_entry_at FROM high
	)
	INSERT INTO transfers (id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	                       debit_balance_after, credit_balance_after, debit_version, credit_version, created_at)
	SELECT $1, $2, d.id, c.id, $5, $6, $7, $8, d.balance, c.balance, d.version, c.version,
	       greatest(d.last_entry_at, c.last_entry_at)
	  FROM moved d, moved c
	 WHERE d.id = $3
	   AND c.id = $4
	ON CONFLICT (id) DO NOTHING
	RETURNING id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	          debit_balance_after, credit_balance_after, debit_version, credit_version, created_at, tx_id,
	          hold_id, reverses_transfer_id, batch_id, reference`

// Only where another transfer got between the two updates is the lower
// account's time behind the transfer's. It is this transaction's row: the
// transfer exists.
const updateLastEntrySQL = `
	UPDATE accounts a
	   SET last_entry_at = t.created_at
	  FROM transfers t
	 WHERE t.id = $1
	   AND a.id = least(t.debit_account_id, t.credit_account_id)
	   AND a.last_entry_at < t.created_at`

// queueMove queues both updates and the insertion of the transfer. The result
// is there when the batch has run, if both updates matched.
func queueMove(b *pgx.Batch, t *making) *Transfer {
	made := &Transfer{}
	change := t.Amount // of the lower id's balance
	if compareIDs(t.DebitAccountID, t.CreditAccountID) < 0 {
		change = change.Neg()
	}
	b.Queue(moveBalancesSQL, t.id, t.Kind, t.DebitAccountID, t.CreditAccountID, t.Amount, t.Currency,
		t.Description, t.Metadata, change).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectExactlyOneRow(rows, scanTransfer)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // then an update has not matched
		}
		*made = found
		return err
	})
	b.Queue(updateLastEntrySQL, t.id)
	return made
}

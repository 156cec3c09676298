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
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/money"
	"github.com/rowlock/ledger/internal/retry"
)

// A balance is what a transaction knows of an account: as it read it, and
// then as its own transfers leave it.
type balance struct {
	id          uuid.UUID
	currency    string
	amount      decimal.Decimal
	min         *decimal.Decimal // nil: no limit
	status      string
	version     int64
	lastEntryAt time.Time
	entries     int64 // how many this transaction adds
}

// available is what the account can pay.
func (b *balance) available() decimal.Decimal { return b.amount.Sub(*b.min) }

// add makes one entry and returns its place in the statement.
func (b *balance) add(amount decimal.Decimal) (version int64) {
	b.amount = b.amount.Add(amount)
	b.version++
	b.entries++
	return b.version
}

// balances are the accounts of some moves, and the time they were read.
type balances struct {
	byID map[uuid.UUID]*balance
	at   time.Time // the database's clock; never below an entry of any of them
}

// accountIDs returns the accounts of ms, each once, in the order in which they
// are locked and written everywhere.
func accountIDs(ms []*move) []uuid.UUID {
	ids := make([]uuid.UUID, 0, 2*len(ms))
	for _, m := range ms {
		ids = append(ids, m.DebitAccountID, m.CreditAccountID)
	}
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// compareIDs is PostgreSQL's order of uuid: the order of the bytes.
func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// selectBalancesSQL reads accounts. A mode may add a lock; the order of the
// rows is then the order of the locks.
const selectBalancesSQL = `
	SELECT id, currency, balance, min_balance, status, version, last_entry_at
	  FROM accounts
	 WHERE id = ANY($1)
	 ORDER BY id`

// A statement of its own: it runs when the one before has all its locks.
const selectClockSQL = `SELECT clock_timestamp()`

// queueRead queues the reading of all accounts of ms, with the locks that the
// suffix says. The result is there when the batch has run.
func queueRead(b *pgx.Batch, ms []*move, lock string) *balances {
	read := &balances{byID: map[uuid.UUID]*balance{}}
	b.Queue(selectBalancesSQL+lock, uuidArray(accountIDs(ms))).Query(func(rows pgx.Rows) error {
		all, err := pgx.CollectRows(rows, scanBalance)
		for _, a := range all {
			read.byID[a.id] = a
		}
		return err
	})
	b.Queue(selectClockSQL).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&read.at); err != nil {
			return err
		}
		for _, a := range read.byID {
			if a.lastEntryAt.After(read.at) { // the clock was set back
				read.at = a.lastEntryAt
			}
		}
		return nil
	})
	return read
}

// scanBalance reads a row by pgtype's own types, which is much cheaper than by
// the sql.Scanner of ours.
func scanBalance(row pgx.CollectableRow) (*balance, error) {
	var id pgtype.UUID
	var amount, least pgtype.Numeric
	a := &balance{}
	if err := row.Scan(&id, &a.currency, &amount, &least, &a.status, &a.version, &a.lastEntryAt); err != nil {
		return nil, err
	}
	a.id = id.Bytes
	var err error
	if a.amount, err = toDecimal(amount); err != nil {
		return nil, fmt.Errorf("balance of account %s: %w", a.id, err)
	}
	if least.Valid {
		d, err := toDecimal(least)
		if err != nil {
			return nil, fmt.Errorf("min_balance of account %s: %w", a.id, err)
		}
		a.min = &d
	}
	return a, nil
}

// toDecimal refuses what no amount is: NaN and the infinities, which only a
// damaged table can hold.
func toDecimal(n pgtype.Numeric) (decimal.Decimal, error) {
	if n.NaN || n.InfinityModifier != pgtype.Finite || n.Int == nil {
		return decimal.Zero, errors.New("NaN or an infinity is no amount")
	}
	return decimal.NewFromBigInt(n.Int, n.Exp), nil
}

// judgeAll judges those of ms that are this attempt's to make, in their order,
// and returns them.
func (bs *balances) judgeAll(ms []*move) []*move {
	ms = slices.DeleteFunc(slices.Clone(ms), func(m *move) bool { return !m.mine() })
	for _, m := range ms {
		bs.judge(m)
	}
	return ms
}

// judge makes m in memory, or sets why it cannot be made. What it reads must
// be held, or be checked when it is written.
func (bs *balances) judge(m *move) {
	debit, credit := bs.byID[m.DebitAccountID], bs.byID[m.CreditAccountID]
	if refusal := bs.refuse(m, debit, credit); refusal != nil {
		refusal.TransferID = m.id
		m.refusal = refusal
		return
	}
	m.transfer = Transfer{
		ID: m.id, Kind: m.Kind, DebitAccountID: m.DebitAccountID, CreditAccountID: m.CreditAccountID,
		Amount: m.Amount, Currency: m.Currency, Description: m.Description, Metadata: m.Metadata,
		DebitVersion: debit.add(m.Amount.Neg()), CreditVersion: credit.add(m.Amount),
		DebitBalanceAfter: debit.amount, CreditBalanceAfter: credit.amount,
		CreatedAt: bs.at.UTC(),
	}
}

// refuse returns why m cannot be made, or nil.
func (bs *balances) refuse(m *move, debit, credit *balance) *Refusal {
	for _, side := range m.sides() {
		a := bs.byID[side]
		switch {
		case a == nil && accounts.IsExternal(side):
			// No account has this currency yet, so the customer's has another.
			return &Refusal{Code: "currency-mismatch", AccountID: m.sides()[0], Currency: m.Currency}
		case a == nil:
			return &Refusal{Code: "account-not-found", AccountID: side}
		case a.currency != m.Currency:
			return &Refusal{Code: "currency-mismatch", AccountID: side, Currency: m.Currency}
		case a.status == accounts.Frozen:
			return &Refusal{Code: "account-frozen", AccountID: side}
		case a.status == accounts.Closed:
			return &Refusal{Code: "account-closed", AccountID: side}
		}
	}
	switch {
	case debit.min != nil && debit.available().LessThan(m.Amount):
		return &Refusal{
			Code: "insufficient-funds", AccountID: debit.id, Currency: m.Currency,
			Available: money.Format(debit.available(), m.Currency), Required: money.Format(m.Amount, m.Currency),
		}
	case debit.amount.Sub(m.Amount).LessThanOrEqual(money.BalanceLimit.Neg()):
		return &Refusal{Code: "limit-exceeded", AccountID: debit.id}
	case credit.amount.Add(m.Amount).GreaterThanOrEqual(money.BalanceLimit):
		return &Refusal{Code: "limit-exceeded", AccountID: credit.id}
	}
	return nil
}

// queueWrite queues the writing of every changed account, once each and in the
// order of their ids, as sql says. SQL raises the version, and written sees
// what it raised it to, or pgx.ErrNoRows where sql's condition did not hold.
func (bs *balances) queueWrite(b *pgx.Batch, sql string, written func(a *balance, version int64, err error) error) {
	for _, a := range slices.SortedFunc(maps.Values(bs.byID), func(a, b *balance) int { return compareIDs(a.id, b.id) }) {
		if a.entries == 0 {
			continue
		}
		b.Queue(sql, a.id, a.amount, a.entries, bs.at, a.version-a.entries).QueryRow(func(row pgx.Row) error {
			var version int64
			err := row.Scan(&version)
			return written(a, version, err)
		})
	}
}

// The version is compared in every mode that trusts what it read. Where the
// row is held this never fails; elsewhere it is how a change is noticed. A
// change of status raises no version, so it is compared, too.
const updateBalanceSQL = `
	UPDATE accounts
	   SET balance = $2,
	       version = version + $3,
	       last_entry_at = $4
	 WHERE id = $1
	   AND version = $5
	   AND status = 'open'
	RETURNING version`

// readThenWrite reads the accounts without a lock, judges in memory, and leaves
// to be written what it judged, if every account is then still as it was read.
// The error matches [retry.ErrConflict] otherwise.
func readThenWrite(ctx context.Context, tx pgx.Tx, b *pgx.Batch, ms []*move) (*pgx.Batch, error) {
	read := queueRead(b, ms, "")
	if err := send(ctx, tx, b, "read accounts"); err != nil {
		return nil, err
	}
	ms = read.judgeAll(ms)
	b = &pgx.Batch{}
	read.queueWrite(b, updateBalanceSQL, func(a *balance, _ int64, err error) error {
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: account %s", retry.ErrConflict, a.id)
		}
		return err
	})
	queueInserts(b, ms)
	return b, nil
}

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

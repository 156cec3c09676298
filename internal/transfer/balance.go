package transfer

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"
)

// A balance is what a transaction knows of an account: as it read it, and
// then as its own steps leave it.
type balance struct {
	id                            uuid.UUID
	currency                      string
	amount, held                  decimal.Decimal
	min, max                      *decimal.Decimal // nil: no limit
	status                        string
	debitsBlocked, creditsBlocked bool
	version                       int64
	lastEntryAt                   time.Time

	entries  int64           // how many this transaction adds
	heldThen decimal.Decimal // as it was read
}

// available is what the account can pay.
func (b *balance) available() decimal.Decimal { return b.amount.Sub(b.held).Sub(*b.min) }

// add makes one entry and returns its place in the statement.
func (b *balance) add(amount decimal.Decimal) (version int64) {
	b.amount = b.amount.Add(amount)
	b.version++
	b.entries++
	return b.version
}

// reserve changes what holds keep; below zero, amount is released.
func (b *balance) reserve(amount decimal.Decimal) {
	if !amount.IsZero() {
		b.held = b.held.Add(amount)
	}
}

func (b *balance) changed() bool { return b.entries > 0 || !b.held.Equal(b.heldThen) }

// selectBalancesSQL reads accounts. A mode may add a lock; the order of the
// rows is then the order of the locks. Most accounts hold nothing, and NULL
// costs less to read than a zero.
const selectBalancesSQL = selectBalanceColumnsSQL + `
	 WHERE id = ANY($1)
	 ORDER BY id`

const selectBalanceSQL = selectBalanceColumnsSQL + `
	 WHERE id = $1`

const selectBalanceColumnsSQL = `
	SELECT id, currency, balance, NULLIF(held, 0), min_balance, max_balance, status, debits_blocked, credits_blocked, version, last_entry_at
	  FROM accounts`

// queueBalances queues the reading of accounts, in this order.
func (b *books) queueBalances(batch *pgx.Batch, ids []uuid.UUID) {
	keep := func(rows pgx.Rows) error {
		all, err := pgx.CollectRows(rows, scanBalance)
		for _, a := range all {
			b.accounts[a.id] = a
		}
		return err
	}
	if !b.eachRow() {
		batch.Queue(selectBalancesSQL+b.locking.suffix(), uuidArray(ids)).Query(keep)
		return
	}
	for _, id := range ids {
		batch.Queue(selectBalanceSQL+b.locking.suffix(), id).Query(keep)
	}
}

// eachRow reports whether no statement may lock several rows.
func (b *books) eachRow() bool { return b.locking != nil && b.locking.EachRow }

// scanBalance reads a row by pgtype's own types, which is much cheaper than by
// the sql.Scanner of ours.
func scanBalance(row pgx.CollectableRow) (*balance, error) {
	var id pgtype.UUID
	var amount, held, least, most pgtype.Numeric
	a := &balance{}
	if err := row.Scan(&id, &a.currency, &amount, &held, &least, &most, &a.status, &a.debitsBlocked, &a.creditsBlocked,
		&a.version, &a.lastEntryAt); err != nil {
		return nil, err
	}
	a.id = id.Bytes
	var errs [4]error
	a.amount, errs[0] = toDecimal(amount)
	if held.Valid {
		a.held, errs[1] = toDecimal(held)
		a.heldThen = a.held
	}
	a.min, errs[2] = toLimit(least)
	a.max, errs[3] = toLimit(most)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("account %s: %w", a.id, err)
	}
	return a, nil
}

func toLimit(n pgtype.Numeric) (*decimal.Decimal, error) {
	if !n.Valid {
		return nil, nil
	}
	d, err := toDecimal(n)
	return &d, err
}

// toDecimal refuses what no amount is: NaN and the infinities, which only a
// damaged table can hold.
func toDecimal(n pgtype.Numeric) (decimal.Decimal, error) {
	if n.NaN || n.InfinityModifier != pgtype.Finite || n.Int == nil {
		return decimal.Zero, errors.New("NaN or an infinity is no amount")
	}
	return decimal.NewFromBigInt(n.Int, n.Exp), nil
}

package transfer

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/retry"
)

// A Filter selects transfers: those that match all of its fields. A field that
// is zero or nil matches every transfer.
type Filter struct {
	// AccountID selects one account's transfers, in the order of its statement.
	// Otherwise the order is that of (TxID, ID).
	AccountID uuid.UUID

	// Reference, with AccountID, is one that this account has given: of a
	// transfer that it pays or that brings it money from outside.
	Reference          string
	Metadata           map[string]string // members that the transfer's metadata have, among others
	Currency           string
	AmountMin          *decimal.Decimal // inclusive, as AmountMax
	AmountMax          *decimal.Decimal
	CreatedFrom        time.Time // inclusive
	CreatedTo          time.Time // exclusive
	HoldID             uuid.UUID
	ReversesTransferID uuid.UUID
	BatchID            uuid.UUID

	Descending bool
	After      *Position // nil: from the start
	Limit      int
}

// feeds reports whether f's list is one that grows at its end.
func (f Filter) feeds() bool { return f.AccountID == uuid.Nil && !f.Descending }

// A Position is a place in a list of transfers.
type Position struct {
	Version int64 // with AccountID: the version of the account there, and nothing else
	TxID    uint64
	ID      uuid.UUID
	Cluster int64 // that TxID is of
}

// A Page is a part of a list.
type Page struct {
	Transfers []Transfer
	Next      *Position // what to list after; nil where nothing follows
}

// positionIn returns t's place in the list that f selects.
func (t Transfer) positionIn(f Filter, cluster int64) Position {
	switch f.AccountID {
	case uuid.Nil:
		return Position{TxID: t.TxID, ID: t.ID, Cluster: cluster}
	case t.DebitAccountID:
		return Position{Version: t.DebitVersion}
	}
	return Position{Version: t.CreditVersion}
}

// List returns the transfers that f selects, in f's order.
//
// Ascending, and of all accounts, the list is a feed. It returns what no later
// commit can get in front of: the rest follows when the transactions that are
// under way have ended. Its pages always have a Next; one with fewer than Limit
// transfers is the last one for now.
//
// The error matches [ErrPositionExpired] or is one of package retry's.
func (s *Service) List(ctx context.Context, f Filter) (Page, error) {
	policy := s.policy
	policy.CustomPlans = true
	list := func(selectClusterSQL string) (Page, error) {
		return retry.Tx(ctx, s.db, readOnly, policy, func(ctx context.Context, tx pgx.Tx) (Page, error) {
			return selectPage(ctx, tx, f, selectClusterSQL)
		})
	}
	page, err := list(selectSystemIdentifierSQL)
	if code := retry.SQLState(err); code == undefinedFunction || code == insufficientPrivilege {
		page, err = list(selectObjectIdentifierSQL)
	}
	return page, err
}

// SQLSTATEs of an engine that does not have a function, and of one that does not
// let us call it.
const (
	undefinedFunction     = "42883"
	insufficientPrivilege = "42501"
)

// A cluster and its physical copies have the same identifier, and the same
// transaction ids. A logical copy has others of both.
const selectSystemIdentifierSQL = `SELECT system_identifier FROM pg_control_system()`

// Where the system identifier is not to be had, these stand for it: physical
// copies have them in common, and a restore makes them anew, though by chance
// they may be the same.
const selectObjectIdentifierSQL = `
	SELECT (oid::bigint << 32) | 'transfers'::regclass::bigint
	  FROM pg_database
	 WHERE datname = current_database()`

func selectPage(ctx context.Context, tx pgx.Tx, f Filter, selectClusterSQL string) (page Page, err error) {
	var cluster int64
	b := &pgx.Batch{}
	if f.AccountID == uuid.Nil {
		b.Queue(selectClusterSQL).QueryRow(func(row pgx.Row) error {
			if err := row.Scan(&cluster); err != nil {
				return err
			}
			if f.After != nil && f.After.Cluster != cluster {
				return ErrPositionExpired
			}
			return nil
		})
	}
	sql, args := listSQL(f)
	b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		page.Transfers, err = pgx.CollectRows(rows, scanTransfer)
		return err
	})
	if err := send(ctx, tx, b, "select transfers"); err != nil {
		return Page{}, err
	}
	page.end(f, cluster)
	return page, nil
}

// end takes off what was read only to see whether something follows, and sets
// Next. An empty page of a feed leaves the reader where it was. It must not be
// sent on to where the feed stops: the id of a transaction that left no trace may
// be given again after a crash.
func (p *Page) end(f Filter, cluster int64) {
	more := len(p.Transfers) > f.Limit
	if !more && !f.feeds() {
		return
	}
	p.Transfers = p.Transfers[:min(len(p.Transfers), f.Limit)]
	next := Position{Cluster: cluster}
	if n := len(p.Transfers); n > 0 {
		next = p.Transfers[n-1].positionIn(f, cluster)
	} else if f.After != nil {
		next = *f.After
	}
	p.Next = &next
}

// The planner sees the parameters: what is NULL is gone before it looks for an
// index. "metadata <> '{}'" is what the index on metadata is limited to.
const matchFilterSQL = `
	   AND ($4::text IS NULL OR t.reference = $4)
	   AND ($5::jsonb IS NULL OR t.metadata <> '{}' AND t.metadata @> $5)
	   AND ($6::text IS NULL OR t.currency = $6)
	   AND ($7::numeric IS NULL OR t.amount >= $7)
	   AND ($8::numeric IS NULL OR t.amount <= $8)
	   AND ($9::timestamptz IS NULL OR t.created_at >= $9)
	   AND ($10::timestamptz IS NULL OR t.created_at < $10)
	   AND ($11::uuid IS NULL OR t.hold_id = $11)
	   AND ($12::uuid IS NULL OR t.reverses_transfer_id = $12)
	   AND ($13::uuid IS NULL OR t.batch_id = $13)`

// matchOwnReferenceSQL is the expression of the unique index on references.
const matchOwnReferenceSQL = `
	   AND ($4::text IS NULL OR CASE t.kind WHEN 'credit' THEN t.credit_account_id ELSE t.debit_account_id END = $1)`

const selectListColumnsSQL = `
	SELECT t.id, t.kind, t.debit_account_id, t.credit_account_id, t.amount, t.currency, t.description, t.metadata,
	       t.debit_balance_after, t.credit_balance_after, t.debit_version, t.credit_version, t.created_at, t.tx_id,
	       t.hold_id, t.reverses_transfer_id, t.batch_id, t.reference`

// Ascending, the list stops where a transaction is still under way: one that
// commits later may have a lower tx_id, and a reader that had gone past it
// would never see it.
const selectTransfersSQL = selectListColumnsSQL + `
	  FROM transfers t
	 WHERE (t.tx_id, t.id) > ($1, $2)
	   AND t.tx_id < pg_snapshot_xmin(pg_current_snapshot())` + matchFilterSQL + `
	 ORDER BY t.tx_id, t.id
	 LIMIT $3`

const selectTransfersDescendingSQL = selectListColumnsSQL + `
	  FROM transfers t
	 WHERE (t.tx_id, t.id) < ($1, $2)` + matchFilterSQL + `
	 ORDER BY t.tx_id DESC, t.id DESC
	 LIMIT $3`

const selectAccountTransfersSQL = selectListColumnsSQL + `
	  FROM entries e
	  JOIN transfers t ON t.id = e.transfer_id
	 WHERE e.account_id = $1
	   AND e.version > $2` + matchOwnReferenceSQL + matchFilterSQL + `
	 ORDER BY e.version
	 LIMIT $3`

const selectAccountTransfersDescendingSQL = selectListColumnsSQL + `
	  FROM entries e
	  JOIN transfers t ON t.id = e.transfer_id
	 WHERE e.account_id = $1
	   AND e.version < $2` + matchOwnReferenceSQL + matchFilterSQL + `
	 ORDER BY e.version DESC
	 LIMIT $3`

// listSQL returns f's query. A list from the start has a position, too, the
// one before or behind all others. It reads one transfer more than f.Limit.
func listSQL(f Filter) (string, []any) {
	all, one := selectTransfersSQL, selectAccountTransfersSQL
	var after Position
	if f.Descending {
		all, one = selectTransfersDescendingSQL, selectAccountTransfersDescendingSQL
		after = Position{Version: math.MaxInt64, TxID: math.MaxUint64, ID: uuid.Max}
	}
	if f.After != nil {
		after = *f.After
	}
	var metadata any
	if len(f.Metadata) > 0 {
		metadata = f.Metadata
	}
	sql, args := all, []any{after.TxID, after.ID}
	if f.AccountID != uuid.Nil {
		sql, args = one, []any{f.AccountID, after.Version}
	}
	return sql, append(args, f.Limit+1, zeronull.Text(f.Reference), metadata, zeronull.Text(f.Currency), f.AmountMin, f.AmountMax,
		zeronull.Timestamptz(wholeMicroseconds(f.CreatedFrom)), zeronull.Timestamptz(wholeMicroseconds(f.CreatedTo)),
		zeronull.UUID(f.HoldID), zeronull.UUID(f.ReversesTransferID), zeronull.UUID(f.BatchID))
}

// wholeMicroseconds rounds t up to what the database keeps of a time. No
// transfer lies between the two.
func wholeMicroseconds(t time.Time) time.Time {
	return t.Add(time.Microsecond - 1).Truncate(time.Microsecond)
}

const selectFeedDelaySQL = `
	SELECT coalesce(extract(epoch FROM max(clock_timestamp() - held.created_at)), 0)::float8
	  FROM (SELECT created_at
	          FROM transfers
	         WHERE tx_id >= pg_snapshot_xmin(pg_current_snapshot())
	         ORDER BY tx_id, id
	         LIMIT 1) held`

// FeedDelay returns the age of the first transfer that is committed and that the
// feed of all transfers holds back; 0 where it holds back none. The error is one
// of package retry's.
func FeedDelay(ctx context.Context, db retry.Beginner, policy retry.Policy) (time.Duration, error) {
	return retry.Tx(ctx, db, readOnly, policy, func(ctx context.Context, tx pgx.Tx) (time.Duration, error) {
		var seconds float64
		err := tx.QueryRow(ctx, selectFeedDelaySQL).Scan(&seconds)
		return time.Duration(seconds * float64(time.Second)), err
	})
}

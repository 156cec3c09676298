package accounts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/retry"
)

// A Balance is what an account had after an entry, or before the first one.
type Balance struct {
	AccountID uuid.UUID
	Currency  string
	Version   int64           // of that entry; 0 before the first one
	Balance   decimal.Decimal // major units
	At        time.Time       // when that entry was made; zero at version 0
}

// A Moment is a point of an account's history. Its zero value is now.
type Moment struct {
	Version *int64    // after this entry
	At      time.Time // after all entries of this time or before
}

// A Period is a part of an account's history.
type Period struct {
	From time.Time // inclusive; zero: from the first entry
	To   time.Time // exclusive; zero: to the last one
}

// Bounds are the versions that a period lies between: its entries are those
// above Opening, up to Closing. Entries never change, so these do not either.
type Bounds struct{ Opening, Closing int64 }

// A Reading selects a part of the statement of a period.
type Reading struct {
	Period
	Bounds *Bounds // of the part before; nil: the period is looked up
	After  int64   // the version that was seen last; 0: from the start
	Limit  int
}

// A Statement is a part of an account's history, with what it had before and
// after the whole of it.
type Statement struct {
	Opening, Closing Balance
	Entries          []Entry
}

// Bounds are those of the statement's period.
func (s Statement) Bounds() Bounds { return Bounds{s.Opening.Version, s.Closing.Version} }

// snapshot makes all statements of a transaction see the same entries.
var snapshot = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// BalanceAt returns what an account had at m. Of a time that has not passed for
// every transaction that is under way, the answer may still change.
//
// The error matches [ErrNotFound] or, for a version that the account does not
// have, [*invalid.Error], or is one of package retry's.
func (s *Service) BalanceAt(ctx context.Context, id uuid.UUID, m Moment) (Balance, error) {
	return retry.Tx(ctx, s.db, readOnly, s.policy, func(ctx context.Context, tx pgx.Tx) (Balance, error) {
		if m.At.IsZero() {
			return selectBalance(ctx, tx, id, m.Version)
		}
		// What is not after m.At is before the next time that the database can tell.
		return selectBalanceBefore(ctx, tx, id, m.At.Truncate(time.Microsecond).Add(time.Microsecond))
	})
}

// Statement returns the part of an account's statement that r selects. All
// parts that are read with the same Bounds have the same Opening and Closing.
//
// The error matches [ErrNotFound] or is one of package retry's.
func (s *Service) Statement(ctx context.Context, id uuid.UUID, r Reading) (Statement, error) {
	return retry.Tx(ctx, s.db, snapshot, s.policy, func(ctx context.Context, tx pgx.Tx) (st Statement, err error) {
		if r.Bounds == nil {
			st.Opening, st.Closing, err = selectPeriod(ctx, tx, id, r.Period)
		} else if st.Opening, err = selectBalance(ctx, tx, id, &r.Bounds.Opening); err == nil {
			st.Closing, err = selectBalance(ctx, tx, id, &r.Bounds.Closing)
		}
		if err != nil {
			return Statement{}, err
		}
		after := max(r.After, st.Opening.Version)
		// Versions have no gaps: so many entries end with the last of the period.
		if left := st.Closing.Version - after; left > 0 && r.Limit > 0 {
			st.Entries, err = selectEntries(ctx, tx, id, Page{After: after, Limit: int(min(left, int64(r.Limit)))})
		}
		return st, err
	})
}

func selectPeriod(ctx context.Context, tx pgx.Tx, id uuid.UUID, p Period) (opening, closing Balance, err error) {
	if p.From.IsZero() {
		opening, err = selectBalance(ctx, tx, id, new(int64))
	} else {
		opening, err = selectBalanceBefore(ctx, tx, id, wholeMicroseconds(p.From))
	}
	if err != nil {
		return Balance{}, Balance{}, err
	}
	if p.To.IsZero() {
		closing, err = selectBalance(ctx, tx, id, nil)
	} else {
		closing, err = selectBalanceBefore(ctx, tx, id, wholeMicroseconds(p.To))
	}
	return opening, closing, err
}

// wholeMicroseconds rounds t up to what the database keeps of a time. No entry
// lies between the two.
func wholeMicroseconds(t time.Time) time.Time {
	return t.Add(time.Microsecond - 1).Truncate(time.Microsecond)
}

const selectBalanceSQL = `
	SELECT a.id, a.currency, coalesce($2, a.version), a.version, coalesce(e.balance_after, 0), e.created_at
	  FROM accounts a
	  LEFT JOIN entries e ON e.account_id = $1 AND e.version = coalesce($2, a.version)
	 WHERE a.id = $1`

// selectBalance reads the balance after an entry; nil is the last one.
func selectBalance(ctx context.Context, tx pgx.Tx, id uuid.UUID, version *int64) (Balance, error) {
	return collectBalance(ctx, tx, id, selectBalanceSQL, version)
}

// An account's versions have no gaps, and its times do not fall as they rise:
// so the last entry before a time is found by halving what is left, in as many
// steps as the count of entries has digits in base two. In each row of search,
// entry low is before the time, or is none, and entry high + 1 is not before.
// Each step looks one entry up, in the indexes that keep the versions unique.
const selectBalanceBeforeSQL = `
	WITH RECURSIVE search (low, high) AS (
	  SELECT 0::bigint, version
	    FROM accounts
	   WHERE id = $1
	   UNION ALL
	  SELECT CASE WHEN e.created_at < $2 THEN e.version ELSE s.low END,
	         CASE WHEN e.created_at < $2 THEN s.high ELSE e.version - 1 END
	    FROM search s
	    JOIN LATERAL (SELECT version, created_at
	                    FROM entries
	                   WHERE account_id = $1
	                     AND version = s.high - (s.high - s.low) / 2) e ON true
	   WHERE s.low < s.high
	)
	SELECT a.id, a.currency, s.low, a.version, coalesce(e.balance_after, 0), e.created_at
	  FROM accounts a
	  JOIN search s ON s.low = s.high
	  LEFT JOIN LATERAL (SELECT balance_after, created_at
	                       FROM entries
	                      WHERE account_id = $1
	                        AND version = s.low) e ON true
	 WHERE a.id = $1`

// selectBalanceBefore reads the balance after the last entry before t.
func selectBalanceBefore(ctx context.Context, tx pgx.Tx, id uuid.UUID, t time.Time) (Balance, error) {
	return collectBalance(ctx, tx, id, selectBalanceBeforeSQL, t)
}

func collectBalance(ctx context.Context, tx pgx.Tx, id uuid.UUID, sql string, moment any) (Balance, error) {
	var b Balance
	var last int64 // the account's version
	err := tx.QueryRow(ctx, sql, id, moment).
		Scan(&b.AccountID, &b.Currency, &b.Version, &last, &b.Balance, (*zeronull.Timestamptz)(&b.At))
	b.At = b.At.UTC()
	if errors.Is(err, pgx.ErrNoRows) {
		if _, err = selectAccount(ctx, tx, id, ""); err == nil {
			err = errGap
		}
	}
	if err != nil {
		return Balance{}, fmt.Errorf("select a balance: %w", err)
	}
	if b.Version > last {
		var c invalid.Check
		c.Add("version", "must be at most %d, which is the account's", last)
		return Balance{}, c.Err()
	}
	if b.Version > 0 && b.At.IsZero() {
		return Balance{}, errGap
	}
	return b, nil
}

// errGap is no caller's fault: "ledger verify" would find it.
var errGap = errors.New("an entry is missing in the account's statement")

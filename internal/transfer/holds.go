package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/rowlock/ledger/internal/retry"
)

const insertHoldSQL = `
	INSERT INTO holds (id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata, expires_at, created_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

func (b *books) queueOpenedHolds(batch *pgx.Batch) {
	for _, h := range b.opened {
		batch.Queue(insertHoldSQL, h.ID, h.Kind, h.DebitAccountID, h.CreditAccountID, h.Amount, h.Currency,
			h.Description, h.Metadata, zeronull.Timestamptz(h.ExpiresAt), h.CreatedAt)
	}
}

// What was captured before is compared, as a version is: only an open hold
// changes, and each change makes it grow or ends it.
const updateHoldSQL = `
	UPDATE holds
	   SET captured = $2,
	       status = $3,
	       ended_at = $4
	 WHERE id = $1
	   AND captured = $5
	   AND status = 'open'`

// queueChangedHolds queues the writing of every changed hold, in the order of
// their ids. It goes before the accounts, as the locks do.
func (b *books) queueChangedHolds(batch *pgx.Batch) {
	for _, h := range slices.SortedFunc(maps.Values(b.holds), func(a, b *Hold) int { return compareIDs(a.ID, b.ID) }) {
		if !h.changed() {
			continue
		}
		batch.Queue(updateHoldSQL, h.ID, h.Captured, h.Status, zeronull.Timestamptz(h.EndedAt), h.capturedThen).Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() == 0 {
				return fmt.Errorf("%w: hold %s", retry.ErrConflict, h.ID)
			}
			return nil
		})
	}
}

// selectHoldsSQL reads holds. A mode may add a lock, as it does with accounts.
const selectHoldsSQL = selectHoldColumnsSQL + `
	 WHERE id = ANY($1)
	 ORDER BY id`

const selectOneHoldSQL = selectHoldColumnsSQL + `
	 WHERE id = $1`

const selectHoldColumnsSQL = `
	SELECT id, kind, debit_account_id, credit_account_id, amount, captured, currency, status, description, metadata, expires_at, ended_at, created_at
	  FROM holds`

func scanHold(row pgx.CollectableRow) (h Hold, err error) {
	err = row.Scan(&h.ID, &h.Kind, &h.DebitAccountID, &h.CreditAccountID, &h.Amount, &h.Captured, &h.Currency, &h.Status, &h.Description, &h.Metadata,
		(*zeronull.Timestamptz)(&h.ExpiresAt), (*zeronull.Timestamptz)(&h.EndedAt), &h.CreatedAt)
	h.ExpiresAt, h.EndedAt, h.CreatedAt = h.ExpiresAt.UTC(), h.EndedAt.UTC(), h.CreatedAt.UTC()
	h.capturedThen, h.statusThen = h.Captured, h.Status
	return h, err
}

func (b *books) queueHolds(batch *pgx.Batch, ids []uuid.UUID) {
	b.queueHoldsLocked(batch, ids, b.locking.suffix(), errors.New("a hold that was there is gone"))
}

// queueHoldsLocked queues the reading of holds with a lock, and keeps them. Where
// one is not to be had, the batch's error is missing.
func (b *books) queueHoldsLocked(batch *pgx.Batch, ids []uuid.UUID, lock string, missing error) {
	keep := func(want int) func(pgx.Rows) error {
		return func(rows pgx.Rows) error {
			holds, err := pgx.CollectRows(rows, scanHold)
			if err == nil && len(holds) != want {
				err = missing
			}
			b.keep(holds)
			return err
		}
	}
	if !b.eachRow() {
		batch.Queue(selectHoldsSQL+lock, uuidArray(ids)).Query(keep(len(ids)))
		return
	}
	for _, id := range ids {
		batch.Queue(selectOneHoldSQL+lock, id).Query(keep(1))
	}
}

func (b *books) keep(holds []Hold) {
	if b.holds == nil {
		b.holds = map[uuid.UUID]*Hold{}
	}
	for i := range holds {
		b.holds[holds[i].ID] = &holds[i]
	}
}

const selectExpiredHoldIDsSQL = `
	SELECT id
	  FROM holds
	 WHERE debit_account_id = ANY($1)
	   AND status = 'open'
	   AND expires_at <= $2
	   AND NOT id = ANY($3)
	 ORDER BY expires_at
	 LIMIT $4`

// expiredBite is how many holds one look releases. There may be more looks.
const expiredBite = 1000

// Behind the look at the holds: an account that is then as it was read has lost
// none of them in between.
const countChangedAccountsSQL = `
	SELECT count(*)
	  FROM unnest($1::uuid[], $2::bigint[], $3::numeric[]) AS was (id, version, held)
	  JOIN accounts a ON a.id = was.id
	 WHERE a.version <> was.version
	    OR a.held <> was.held`

// expire releases holds of accounts whose time is over, and returns how many.
//
// The accounts may be locked already, and holds come before accounts: so it
// locks them SKIP LOCKED, which waits for nobody and so cannot be part of a
// deadlock. Whoever has one that is skipped is about to end it: the error then
// matches [retry.ErrConflict], and the next attempt sees it ended. So it does
// where the accounts are not locked and have changed: what somebody else has
// released meanwhile is no longer among the holds, and not yet in the balance.
func (b *books) expire(ctx context.Context, tx pgx.Tx, accountIDs []uuid.UUID) (int, error) {
	accountIDs = inOrder(accountIDs)
	versions, helds := make(pgtype.FlatArray[int64], len(accountIDs)), make(pgtype.FlatArray[pgtype.Numeric], len(accountIDs))
	for i, id := range accountIDs {
		a := b.accounts[id]
		versions[i], helds[i] = a.version-a.entries, pgNumeric(a.heldThen)
	}
	var ids []uuid.UUID
	var changed int
	look := &pgx.Batch{}
	look.Queue(selectExpiredHoldIDsSQL, uuidArray(accountIDs), b.at, uuidArray(slices.Collect(maps.Keys(b.holds))), expiredBite).
		Query(func(rows pgx.Rows) (err error) {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
			return err
		})
	look.Queue(countChangedAccountsSQL, uuidArray(accountIDs), versions, helds).QueryRow(func(row pgx.Row) error { return row.Scan(&changed) })
	if err := send(ctx, tx, look, "look for expired holds"); err != nil {
		return 0, err
	}
	if changed > 0 {
		return 0, fmt.Errorf("%w: an account has changed since it was read", retry.ErrConflict)
	}
	if len(ids) > 0 {
		lock := &pgx.Batch{}
		b.queueHoldsLocked(lock, ids, " FOR UPDATE SKIP LOCKED", fmt.Errorf("%w: an expired hold is being ended", retry.ErrConflict))
		if err := send(ctx, tx, lock, "lock expired holds"); err != nil {
			return 0, err
		}
	}
	released := 0
	for _, h := range b.holds {
		if h.Status == HoldOpen && h.expired(b.at) && slices.Contains(accountIDs, h.DebitAccountID) {
			b.release(h, HoldExpired)
			released++
		}
	}
	return released, nil
}

// A reader is told that a hold has expired before the sweeper has come.
const selectHoldSQL = `
	SELECT id, kind, debit_account_id, credit_account_id, amount, captured, currency,
	       CASE WHEN status = 'open' AND expires_at <= clock_timestamp() THEN 'expired' ELSE status END,
	       description, metadata, expires_at, ended_at, created_at
	  FROM holds
	 WHERE id = $1`

func queueFindHold(b *pgx.Batch, id uuid.UUID, found func(Hold)) {
	b.Queue(selectHoldSQL, id).Query(func(rows pgx.Rows) error {
		h, err := pgx.CollectExactlyOneRow(rows, scanHold)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err == nil {
			found(h)
		}
		return err
	})
}

// GetHold returns a hold. The error matches [ErrHoldNotFound] or is one of
// package retry's.
func (s *Service) GetHold(ctx context.Context, id uuid.UUID) (Hold, error) {
	return retry.Tx(ctx, s.db, readOnly, s.policy, func(ctx context.Context, tx pgx.Tx) (Hold, error) {
		rows, _ := tx.Query(ctx, selectHoldSQL, id)
		h, err := pgx.CollectExactlyOneRow(rows, scanHold)
		if errors.Is(err, pgx.ErrNoRows) {
			return Hold{}, ErrHoldNotFound
		}
		if err != nil {
			return Hold{}, fmt.Errorf("select hold: %w", err)
		}
		return h, nil
	})
}

// A HoldFilter selects holds of one account, the latest first.
type HoldFilter struct {
	AccountID uuid.UUID // that they reserve money of
	Status    string    // "": any
	Before    uuid.UUID // the id that was seen last; uuid.Nil: from the latest
	Limit     int       // how many at most
}

// An account's holds, by the index of that account.
const listHoldsSQL = `
	SELECT id, kind, debit_account_id, credit_account_id, amount, captured, currency, shown, description, metadata, expires_at, ended_at, created_at
	  FROM holds,
	       LATERAL (SELECT CASE WHEN status = 'open' AND expires_at <= now() THEN 'expired' ELSE status END) AS s (shown)
	 WHERE debit_account_id = $1
	   AND id < $2
	   AND ($3 = '' OR shown = $3)
	 ORDER BY id DESC
	 LIMIT $4`

// ListHolds returns the holds that f selects. The error is one of package
// retry's.
func (s *Service) ListHolds(ctx context.Context, f HoldFilter) ([]Hold, error) {
	before := f.Before
	if before == uuid.Nil {
		before = uuid.Max
	}
	return retry.Tx(ctx, s.db, readOnly, s.policy, func(ctx context.Context, tx pgx.Tx) ([]Hold, error) {
		rows, _ := tx.Query(ctx, listHoldsSQL, f.AccountID, before, f.Status, f.Limit)
		holds, err := pgx.CollectRows(rows, scanHold)
		if err != nil {
			return nil, fmt.Errorf("select holds: %w", err)
		}
		return holds, nil
	})
}

const selectExpiredHoldsSQL = `
	SELECT id, kind, debit_account_id, credit_account_id, amount, captured, currency, status, description, metadata, expires_at, ended_at, created_at
	  FROM holds
	 WHERE status = 'open'
	   AND expires_at <= now()
	 ORDER BY expires_at
	 LIMIT $1`

func selectExpiredHolds(ctx context.Context, tx pgx.Tx, limit int) ([]Hold, error) {
	rows, _ := tx.Query(ctx, selectExpiredHoldsSQL, limit)
	holds, err := pgx.CollectRows(rows, scanHold)
	if err != nil {
		return nil, fmt.Errorf("select expired holds: %w", err)
	}
	return holds, nil
}

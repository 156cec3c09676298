package payment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

// A house is what is nobody's payment: it puts what is due into the queue, takes
// back what dead workers had, and looks at the queue. Every process keeps it.
//
// While a transaction holds vacuum back, what has gone through an index is still
// there to be walked over. So a round begins where the one before it ended, and
// only every lookFromStart-th looks from the start, for what a slow commit put in
// behind.
type house struct {
	*Workers
	rounds           int
	promoted, reaped time.Time // by the database's clock; what is older has been seen to
}

const lookFromStart = 10

// Each statement ends its scan of the index at now(), which a clock_timestamp()
// would not, and says when that was.
const promoteDueSQL = `
	WITH due AS MATERIALIZED (
	  SELECT id
	    FROM payments
	   WHERE status = 'scheduled'
	     AND run_at <= now()
	     AND run_at >= $2
	   ORDER BY run_at
	   LIMIT $1
	     FOR UPDATE SKIP LOCKED
	), queued AS (
	  UPDATE payments p
	     SET status = 'queued',
	         queued_at = clock_timestamp()
	    FROM due
	   WHERE p.id = due.id
	  RETURNING p.id
	)
	SELECT count(*), now()
	  FROM queued`

// Limits of a round: how many rows one transaction changes, and how many such
// there are.
const (
	bite  = 1000
	bites = 20
)

// keep is one round. Each part runs although another one failed.
func (h *house) keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	fromStart := h.rounds%lookFromStart == 0
	h.rounds++
	if fromStart {
		h.promoted, h.reaped = time.Time{}, time.Time{}
	}
	return errors.Join(h.promote(ctx), h.reap(ctx), h.look(ctx, fromStart))
}

// promote puts into the queue what is scheduled and due by now.
func (h *house) promote(ctx context.Context) error {
	for range bites {
		var at time.Time
		n, err := retry.Tx(ctx, h.db, readWrite, h.policy, func(ctx context.Context, tx pgx.Tx) (n int64, err error) {
			err = tx.QueryRow(ctx, promoteDueSQL, bite, h.promoted).Scan(&n, &at)
			return n, err
		})
		if err != nil {
			return fmt.Errorf("queue what is due: %w", err)
		}
		if n > 0 {
			h.bell.wake()
		}
		if n < bite {
			h.promoted = at.Add(-floorMargin)
			break
		}
	}
	return nil
}

const lockExpiredSQL = selectPaymentColumnsSQL + `
	 WHERE status = 'processing'
	   AND leased_until < now()
	   AND leased_until >= $2
	 ORDER BY leased_until
	 LIMIT $1
	   FOR UPDATE SKIP LOCKED`

const selectNowSQL = `SELECT now()`

// reap ends the attempts of workers whose leases have ended.
func (h *house) reap(ctx context.Context) error {
	var at time.Time
	outcomes, err := retry.Tx(ctx, h.db, readWrite, h.policy, func(ctx context.Context, tx pgx.Tx) (outcomes []outcome, err error) {
		rows, _ := tx.Query(ctx, lockExpiredSQL, bite, h.reaped)
		expired, err := pgx.CollectRows(rows, scanPayment)
		if err != nil {
			return nil, err
		}
		for _, p := range expired {
			outcomes = append(outcomes, p.failed(CodeLeaseExpired, "the worker did not prolong its lease", h.Pause))
		}
		if err := updateOutcomes(ctx, tx, outcomes); err != nil {
			return nil, err
		}
		return outcomes, tx.QueryRow(ctx, selectNowSQL).Scan(&at)
	})
	h.tell(outcomes)
	if err != nil {
		return fmt.Errorf("take back what had a lease: %w", err)
	}
	if len(outcomes) < bite {
		h.reaped = at.Add(-floorMargin)
	}
	return nil
}

// Counting all of a long queue would take long.
const selectStateSQL = `
	SELECT (SELECT count(*) FROM (SELECT FROM payments WHERE status = 'scheduled' LIMIT $1) AS counted),
	       (SELECT count(*) FROM (SELECT FROM payments WHERE status = 'awaiting_approval' LIMIT $1) AS counted),
	       (SELECT count(*) FROM (SELECT FROM payments WHERE status = 'queued' LIMIT $1) AS counted),
	       (SELECT count(*) FROM (SELECT FROM payments WHERE status = 'processing' LIMIT $1) AS counted),
	       (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8
	          FROM pg_stat_activity
	         WHERE backend_xmin IS NOT NULL
	           AND pid <> pg_backend_pid())`

// look tells what the queue looks like, and now and then how long it is.
func (h *house) look(ctx context.Context, count bool) error {
	_, err := retry.Tx(ctx, h.db, readOnly, h.policy, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		oldest, err := h.floors.raise(ctx, tx, count)
		if err != nil {
			return struct{}{}, err
		}
		h.OnOldest(oldest)
		if !count {
			return struct{}{}, nil
		}
		var s State
		var seconds float64
		err = tx.QueryRow(ctx, selectStateSQL, CountLimit).Scan(&s.Scheduled, &s.AwaitingApproval, &s.Queued, &s.Processing, &seconds)
		if err == nil {
			s.OldestSnapshot = time.Duration(seconds * float64(time.Second))
			h.OnState(s)
		}
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("look at the queue: %w", err)
	}
	return nil
}

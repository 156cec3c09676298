package idempotency

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rowlock/ledger/internal/retry"
)

// SKIP LOCKED: a key that is being replayed is left for the next bite. now()
// and not clock_timestamp(): a volatile bound would keep the index from ending
// the scan, and every bite would walk through all keys that have not expired.
const deleteExpiredKeysSQL = `
	WITH expired AS MATERIALIZED (
	  SELECT principal, key
	    FROM idempotency_keys
	   WHERE created_at < now() - $1::interval
	   ORDER BY created_at
	   LIMIT $2
	     FOR UPDATE SKIP LOCKED
	)
	DELETE FROM idempotency_keys k
	 USING expired e
	 WHERE k.principal = e.principal
	   AND k.key = e.key`

// Sweep frees up to limit keys that are older than ttl by the database's clock,
// and returns how many it freed.
func Sweep(ctx context.Context, db retry.Beginner, policy retry.Policy, ttl time.Duration, limit int) (int64, error) {
	return retry.Tx(ctx, db, pgx.TxOptions{}, policy, func(ctx context.Context, tx pgx.Tx) (int64, error) {
		tag, err := tx.Exec(ctx, deleteExpiredKeysSQL, ttl, limit)
		if err != nil {
			return 0, fmt.Errorf("delete expired idempotency keys: %w", err)
		}
		return tag.RowsAffected(), nil
	})
}

const selectExpiredKeysSQL = `
	SELECT principal, key
	  FROM idempotency_keys
	 WHERE created_at < now() - $1::interval
	 ORDER BY created_at
	 LIMIT $2`

// The subquery names one row, so it cannot run for another one.
const deleteExpiredKeySQL = `
	DELETE FROM idempotency_keys
	 WHERE principal = $1
	   AND key = $2
	   AND key = (SELECT key
	                FROM idempotency_keys
	               WHERE principal = $1
	                 AND key = $2
	                 AND created_at < now() - $3::interval
	                 FOR UPDATE SKIP LOCKED)`

// SweepApart is [Sweep] with a statement for each key.
func SweepApart(ctx context.Context, db retry.Beginner, policy retry.Policy, ttl time.Duration, limit int) (int64, error) {
	return retry.Tx(ctx, db, pgx.TxOptions{}, policy, func(ctx context.Context, tx pgx.Tx) (freed int64, err error) {
		rows, _ := tx.Query(ctx, selectExpiredKeysSQL, ttl, limit)
		keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Key])
		if err != nil {
			return 0, fmt.Errorf("select expired idempotency keys: %w", err)
		}
		b := &pgx.Batch{}
		for _, k := range keys {
			b.Queue(deleteExpiredKeySQL, k.Principal, k.Value, ttl).Exec(func(tag pgconn.CommandTag) error {
				freed += tag.RowsAffected()
				return nil
			})
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return 0, fmt.Errorf("delete expired idempotency keys: %w", err)
		}
		return freed, nil
	})
}

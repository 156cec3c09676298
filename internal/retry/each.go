package retry

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Each calls found for every row of a query, in one snapshot, and keeps none of
// them: what the caller does not take yet is not read yet. An error of found
// ends it, and the rest is not read.
//
// It is one attempt, whatever policy says: what found has made of the rows cannot
// be taken back. The error is found's, or one as [Tx] has them.
func Each[T any](ctx context.Context, db Beginner, policy Policy, sql string, scan pgx.RowToFunc[T], found func(T) error) error {
	policy.Attempts = 1
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	_, err := Tx(ctx, db, snapshot, policy, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		rows, err := tx.Query(ctx, sql)
		if err != nil {
			return struct{}{}, fmt.Errorf("select all rows: %w", err)
		}
		defer rows.Close()
		for rows.Next() {
			item, err := scan(rows)
			if err == nil {
				err = found(item)
			}
			if err != nil {
				cut() // Close would read the rest, which may be long
				return struct{}{}, err
			}
		}
		return struct{}{}, rows.Err()
	})
	return err
}

// snapshot makes a transaction see one state, and change nothing.
var snapshot = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

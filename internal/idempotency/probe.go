package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

// errProbed ends a probe's transaction with a rollback.
var errProbed = errors.New("probed")

// Probe proves that a key could be claimed now, which is the first write of
// every request that moves money. It leaves nothing behind. The error is one
// of package retry's, or the database's own.
func Probe(ctx context.Context, db retry.Beginner, policy retry.Policy) error {
	_, err := retry.Tx(ctx, db, pgx.TxOptions{}, policy, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		b := &pgx.Batch{}
		QueueClaims(b, []*Claim{{Key: Key{Value: uuid.NewString()}}})
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return struct{}{}, fmt.Errorf("claim a key: %w", err)
		}
		return struct{}{}, errProbed
	})
	if errors.Is(err, errProbed) {
		return nil
	}
	return err
}

package main

import (
	"context"
	"time"

	"github.com/rowlock/ledger/internal/idempotency"
)

// sweepKeys removes expired idempotency keys, in small bites.
func (s *service) sweepKeys(ctx context.Context) {
	sweep := idempotency.Sweep
	if s.cmd.locking().EachRow {
		sweep = idempotency.SweepApart
	}
	s.sweep(ctx, min(keysInterval, s.cmd.IdempotencyTTL), "expired idempotency keys were not removed", func() (more bool, err error) {
		n, err := sweep(ctx, s.db, s.policy, s.cmd.IdempotencyTTL, keysBite)
		s.metrics.Swept(n)
		return n == keysBite, err
	})
}

// sweepHolds releases what expired holds keep, so that accounts show it as
// available before somebody asks for it.
func (s *service) sweepHolds(ctx context.Context) {
	s.sweep(ctx, holdsInterval, "expired holds were not released", func() (more bool, err error) {
		n, err := s.transfers.ExpireHolds(ctx, holdsBite)
		return n == holdsBite, err
	})
}

const (
	keysInterval  = time.Minute
	keysBite      = 1000
	holdsInterval = time.Second
	holdsBite     = 100
)

// sweep takes bites of what is left over, every interval, until ctx ends. After
// an error it waits for the next time.
func (s *service) sweep(ctx context.Context, interval time.Duration, failed string, bite func() (more bool, err error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = bite(); err != nil && ctx.Err() == nil {
				s.logger.Warn(failed, "error", err)
				more = false
			}
		}
	}
}

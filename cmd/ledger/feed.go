package main

import (
	"context"
	"time"

	"github.com/rowlock/ledger/internal/transfer"
)

// feedInterval is the time between two measurements of the feed's delay.
const feedInterval = 10 * time.Second

// watchFeed measures how far the feed of all transfers lags behind. It does not
// wait for somebody to ask for the metrics: anybody may, as often as they like.
func (s *service) watchFeed(ctx context.Context) {
	tell := s.metrics.WatchFeed()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(feedInterval):
		}
		delay, err := transfer.FeedDelay(ctx, s.db, s.policy)
		switch {
		case err == nil:
			tell(delay)
		case ctx.Err() == nil:
			s.logger.Warn("the delay of the feed was not measured", "error", err)
		}
	}
}

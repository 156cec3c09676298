package transfer_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// A meddlingDB has something happen before the first look for expired holds.
type meddlingDB struct {
	retry.Beginner
	once   sync.Once
	meddle func()
}

func (db *meddlingDB) BeginWith(ctx context.Context, begin *pgx.Batch) (pgx.Tx, error) {
	tx, err := db.Beginner.BeginWith(ctx, begin)
	if err != nil {
		return nil, err
	}
	return &meddlingTx{Tx: tx, db: db}, nil
}

type meddlingTx struct {
	pgx.Tx
	db *meddlingDB
}

func (tx *meddlingTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		if strings.Contains(q.SQL, "FROM holds") && strings.Contains(q.SQL, "debit_account_id = ANY($1)") {
			tx.db.once.Do(tx.db.meddle)
		}
	}
	return tx.Tx.SendBatch(ctx, b)
}

// sweep ends the expired holds of l on a goroutine of its own, and returns when
// that is done or waits for a lock.
func (l *ledger) sweep(t *testing.T) {
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		if _, err := l.service(transfer.Pessimistic).ExpireHolds(t.Context(), 1000); err != nil {
			t.Errorf("sweep: %v", err)
		}
	}()
	t.Cleanup(func() { <-swept })
	waitUntil(t, "the sweeper is done or waits", func() bool {
		select {
		case <-swept:
			return true
		default:
			return count(t, l, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
		}
	})
}

// Between the look at the account and the look at its holds, the sweeper may end
// one: it is then in neither, and its money is there.
func TestASweeperInBetweenMakesNobodyPoor(t *testing.T) {
	inSafeModes(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		for _, request := range []func(from, to uuid.UUID) request{
			func(from, to uuid.UUID) request { return creating(between(from, to, "10", "USD")) },
			func(from, to uuid.UUID) request { return holding(holdOf(from, to, "10")) },
		} {
			from, to := l.openPair(t, "USD", "100")
			l.openExpired(t, from, to, "90")
			openHold(t, l.service(transfer.Pessimistic), from, to, "5")
			meddling := &meddlingDB{Beginner: l.db, meddle: func() { l.sweep(t) }}
			request(from, to).done(t, mode.service(meddling, patient))
			meddling.once.Do(func() { t.Error("nobody looked for expired holds") })
		}
		l.wantSound(t)
	})
}

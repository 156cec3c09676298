package transfer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

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

// A sweeper passes over what somebody keeps locked.
func TestALockedHoldHoldsUpNoOtherOne(t *testing.T) {
	inSafeModes(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		locked, other := l.openPair(t, "USD", "100")
		l.openExpired(t, locked, other, "10")
		l.openExpired(t, other, locked, "10")
		holder := l.session(t)
		if _, err := holder.Exec(t.Context(), `SELECT FROM accounts WHERE id = $1 FOR UPDATE`, locked); err != nil {
			t.Fatal(err)
		}
		hasty := patient
		hasty.Attempts, hasty.LockTimeout = 1, 100*time.Millisecond
		n, err := mode.service(l.db, hasty).ExpireHolds(t.Context(), 10)
		if n != 2 || !errors.Is(err, retry.ErrLockUnavailable) {
			t.Errorf("ExpireHolds = %d, %v, want 2 found, of which one is locked", n, err)
		}
		if n := count(t, l, `SELECT count(*) FROM holds WHERE status = 'expired' AND debit_account_id = $1`, other); n != 1 {
			t.Errorf("%d holds of the other account have ended, want 1", n)
		}
		if err := holder.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, err := mode.service(l.db, patient).ExpireHolds(t.Context(), 10); n != 1 || err != nil {
			t.Errorf("ExpireHolds = %d, %v, want the 1 that was locked", n, err)
		}
		l.wantSound(t)
	})
}

// All expired holds of an account are released by who needs the money, however
// many there are; the open ones stay.
func TestWhoNeedsTheMoneyReleasesAllExpiredHolds(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		const many = 2100 // more than two bites
		from, to := l.openPair(t, "USD", "2200")
		for range many / 100 {
			ids := make([]uuid.UUID, 100)
			for i := range ids {
				ids[i] = uuid.Must(uuid.NewV7())
			}
			l.exec(t, `INSERT INTO holds (id, kind, debit_account_id, credit_account_id, amount, currency, created_at, expires_at)
				SELECT id, 'transfer', $2, $3, 1, 'USD', now(), now() FROM unnest($1::uuid[]) AS id`, ids, from, to)
		}
		l.exec(t, `UPDATE accounts SET held = $2 WHERE id = $1`, from, many)
		open := openHold(t, l.service(transfer.Pessimistic), from, to, "50")
		s := mode.service(l.db, patient)
		creating(between(from, to, "2150.01", "USD")).refused(t, s, transfer.ErrInsufficientFunds)
		creating(between(from, to, "2150", "USD")).done(t, s)
		l.wantHeld(t, from, "50")
		l.wantHold(t, open.ID, transfer.HoldOpen, "0")
		if n := count(t, l, `SELECT count(*) FROM holds WHERE status = 'expired' AND captured = 0`); n != many {
			t.Errorf("%d holds have expired, want %d", n, many)
		}
		l.wantSound(t)
	})
}

// A refusal that stays one has released what it could, and is final all the same.
func TestARefusalAfterTheReleaseCountsWhatWasReleased(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		from, to := l.openPair(t, "USD", "100")
		l.openExpired(t, from, to, "60")
		got := creating(between(from, to, "100.01", "USD")).send(t, mode.service(l.db, patient), "k")
		var refusal *transfer.Refusal
		if !errors.As(got.err, &refusal) || refusal.Available != "100.00" {
			t.Errorf("error = %v, want a refusal with 100.00 available", got.err)
		}
		l.wantSound(t)
	})
}

// A hold that somebody else is about to end is waited for, by trying again.
func TestALockedExpiredHoldIsNobodysLoss(t *testing.T) {
	inSafeModes(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		from, to := l.openPair(t, "USD", "100")
		h := l.openExpired(t, from, to, "60")
		holder := l.session(t)
		if _, err := holder.Exec(t.Context(), `SELECT FROM holds WHERE id = $1 FOR UPDATE`, h.ID); err != nil {
			t.Fatal(err)
		}
		var met conflicts
		policy := met.watch(patient)
		done := make(chan result, 1)
		go func() { done <- creating(between(from, to, "100", "USD")).send(t, mode.service(l.db, policy), "") }()
		waitUntil(t, "somebody met the locked hold", func() bool { return met.total() > 0 })
		if err := holder.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got.err != nil {
			t.Errorf("error = %v, want it done when the hold was free", got.err)
		}
		l.wantSound(t)
	})
}

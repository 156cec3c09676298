package transfer_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// A lossyDB loses the answer of its first COMMIT, or of the first one after
// some, and does with that COMMIT what the test wants.
type lossyDB struct {
	retry.Beginner
	after atomic.Int32 // COMMITs that are answered before
	once  sync.Once
	lose  func(ctx context.Context, tx pgx.Tx) // gets the transaction to carry out, or not
}

func (db *lossyDB) BeginWith(ctx context.Context, begin *pgx.Batch) (pgx.Tx, error) {
	tx, err := db.Beginner.BeginWith(ctx, begin)
	if err != nil {
		return nil, err
	}
	return &lossyTx{Tx: tx, db: db}, nil
}

type lossyTx struct {
	pgx.Tx
	db   *lossyDB
	lost bool
}

func (tx *lossyTx) Commit(ctx context.Context) error {
	if tx.db.after.Add(-1) >= 0 {
		return tx.Tx.Commit(ctx)
	}
	tx.db.once.Do(func() {
		tx.lost = true
		tx.db.lose(context.WithoutCancel(ctx), tx.Tx)
	})
	if tx.lost {
		return io.ErrUnexpectedEOF // no answer of the server's
	}
	return tx.Tx.Commit(ctx)
}

// Conn and Rollback leave a lost transaction to lose.
func (tx *lossyTx) Conn() *pgx.Conn {
	if tx.lost {
		return nil
	}
	return tx.Tx.Conn()
}

func (tx *lossyTx) Rollback(ctx context.Context) error {
	if tx.lost {
		return nil
	}
	return tx.Tx.Rollback(ctx)
}

// fates are what can become of a COMMIT whose answer is lost.
func fates(t *testing.T, l *ledger) map[string]func(context.Context, pgx.Tx) {
	end := func(ctx context.Context, tx pgx.Tx, end func(context.Context) error) {
		if err := end(ctx); err != nil {
			t.Errorf("end the lost transaction: %v", err)
		}
		_ = tx.Rollback(ctx) // gives the connection back
	}
	return map[string]func(context.Context, pgx.Tx){
		"carried out":     func(ctx context.Context, tx pgx.Tx) { end(ctx, tx, tx.Commit) },
		"not carried out": func(ctx context.Context, tx pgx.Tx) { end(ctx, tx, tx.Rollback) },
		"carried out while the next attempt waits for it": func(ctx context.Context, tx pgx.Tx) {
			go func() {
				l.waitForWaiters(t, 1)
				end(ctx, tx, tx.Commit)
			}()
		},
		"given up while the next attempt waits for it": func(ctx context.Context, tx pgx.Tx) {
			go func() {
				l.waitForWaiters(t, 1)
				end(ctx, tx, tx.Rollback)
			}()
		},
	}
}

func TestALostAnswerOfCommitIsFoundOut(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		low, high := l.openPair(t, "USD", "100")
		n := 0
		for name, lose := range fates(t, l) {
			for _, key := range []string{"", "with a key"} {
				c := between(low, high, "1", "USD")
				if key != "" {
					c = keyed(c, name)
				}
				s := mode.service(&lossyDB{Beginner: l.db, lose: lose}, patient)
				made, replayed, err := s.Create(t.Context(), c)
				if err != nil || replayed {
					t.Fatalf("%s, %s: replayed %v, error %v, want an answer that is no replay", name, key, replayed, err)
				}
				n++
				if stored := count(t, l, `SELECT count(*) FROM transfers WHERE debit_account_id = $1`, low); stored != n {
					t.Fatalf("%s, %s: %d transfers, want %d: one effect a call", name, key, stored, n)
				}
				stored, err := s.Get(t.Context(), made.ID)
				if err != nil {
					t.Fatalf("%s, %s: get what was answered: %v", name, key, err)
				}
				if diff := cmp.Diff(stored, made); diff != "" {
					t.Errorf("%s, %s: what was answered is not what is stored (-stored +answered):\n%s", name, key, diff)
				}
				if key != "" {
					if again, replayed, err := s.Create(t.Context(), c); err != nil || !replayed || again.ID != made.ID {
						t.Errorf("%s: replay = %s, replayed %v, error %v, want %s", name, again.ID, replayed, err, made.ID)
					}
				}
			}
		}
		l.wantSound(t)
	})
}

func TestALostAnswerOfARefusalIsFoundOut(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		low, high := l.openPair(t, "USD", "0")
		for _, name := range []string{"carried out", "not carried out"} {
			for _, key := range []string{"", "with a key"} {
				c := between(low, high, "1", "USD")
				if key != "" {
					c = keyed(c, name)
				}
				s := mode.service(&lossyDB{Beginner: l.db, lose: fates(t, l)[name]}, patient)
				if _, replayed, err := s.Create(t.Context(), c); !errors.Is(err, transfer.ErrInsufficientFunds) || replayed {
					t.Errorf("%s, %s: replayed %v, error %v, want a refusal that is no replay", name, key, replayed, err)
				}
			}
		}
		l.wantSound(t)
	})
}

func TestAnOutcomeThatCannotBeFoundOutIsUnknown(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		low, high := l.openPair(t, "USD", "100")
		impatient := patient
		impatient.Attempts, impatient.LockTimeout = 3, 1e6 // a millisecond
		for _, c := range []transfer.Command{between(low, high, "1", "USD"), keyed(between(low, high, "1", "USD"), "k")} {
			var open pgx.Tx
			lossy := &lossyDB{Beginner: l.db, lose: func(_ context.Context, tx pgx.Tx) { open = tx }}
			s := mode.service(lossy, impatient)
			if _, _, err := s.Create(t.Context(), c); !errors.Is(err, retry.ErrCommitUnknown) {
				t.Errorf("error = %v, want %v while the first COMMIT is under way", err, retry.ErrCommitUnknown)
			}
			if err := open.Rollback(t.Context()); err != nil {
				t.Errorf("roll back: %v", err)
			}
		}
		l.wantBalance(t, low, "100")
		l.wantSound(t)
	})
}

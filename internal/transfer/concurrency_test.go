package transfer_test

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/transfer"
)

const (
	sqlStateDeadlock      = "40P01"
	sqlStateSerialization = "40001"
)

// Half of the transfers are refused: a refusal must not take locks out of
// order either, not even those that it gives back at once.
func TestOppositeTransfersNeverDeadlock(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		for _, balance := range []string{"1000", "1"} {
			l := newLedger(t)
			low, high := l.openPair(t, "USD", balance)
			var lost conflicts
			s := mode.service(l.db, lost.watch(patient))
			together(16, func(i int) {
				for range 25 {
					c := between(low, high, "1", "USD")
					if i%2 == 1 {
						c = between(high, low, "1", "USD")
					}
					if _, _, err := s.Create(t.Context(), c); err != nil && !errors.Is(err, transfer.ErrInsufficientFunds) {
						t.Errorf("error = %v, want none or insufficient funds", err)
					}
				}
			})
			if n := lost.of(sqlStateDeadlock); n != 0 {
				t.Errorf("with a balance of %s: %d deadlocks, want none", balance, n)
			}
			if !mode.LosesMoney {
				l.wantSound(t)
			}
		}
	})
}

func TestDoubleSpendIsRefused(t *testing.T) {
	inSafeModes(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		s := mode.service(l.db, patient)
		from, to := l.open(t, "USD", "100", "0"), l.open(t, "USD", "0", "0")
		var made, refused atomic.Int32
		together(20, func(i int) {
			c := between(from, to, "100", "USD")
			if i%2 == 1 {
				c = transfer.NewDebit(from, number("100"), "USD")
			}
			switch _, _, err := s.Create(t.Context(), c); {
			case err == nil:
				made.Add(1)
			case errors.Is(err, transfer.ErrInsufficientFunds):
				refused.Add(1)
			default:
				t.Errorf("error = %v, want none or insufficient funds", err)
			}
		})
		if made.Load() != 1 || refused.Load() != 19 {
			t.Errorf("made %d and refused %d, want 1 and 19", made.Load(), refused.Load())
		}
		l.wantBalance(t, from, "0")
		l.wantSound(t)
	})
}

func TestRandomTransfersKeepTheMoney(t *testing.T) {
	inSafeModes(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		var lost conflicts
		s := mode.service(l.db, lost.watch(patient))
		var ids []uuid.UUID
		for range 6 {
			ids = append(ids, l.open(t, "USD", "10", "-5"))
		}
		var made atomic.Int64
		together(12, func(i int) {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 20 {
				if _, _, err := s.Create(t.Context(), randomCommand(random, ids)); err == nil {
					made.Add(1)
				} else if !errors.Is(err, transfer.ErrInsufficientFunds) {
					t.Errorf("error = %v, want none or insufficient funds", err)
				}
			}
		})
		if stored := count(t, l, `SELECT count(*) FROM transfers`); int64(stored) != made.Load()+6 {
			t.Errorf("%d transfers are stored, want %d that were answered and 6 that opened the accounts", stored, made.Load())
		}
		if n := lost.of(sqlStateDeadlock); n != 0 {
			t.Errorf("%d deadlocks, want none", n)
		}
		l.wantSound(t)
	})
}

func randomCommand(random *rand.Rand, ids []uuid.UUID) transfer.Command {
	amount := number("1").Mul(number([]string{"0.01", "1", "7.77"}[random.IntN(3)]))
	from := random.IntN(len(ids))
	switch random.IntN(6) {
	case 0:
		return transfer.NewCredit(ids[from], amount, "USD")
	case 1:
		return transfer.NewDebit(ids[from], amount, "USD")
	}
	to := (from + 1 + random.IntN(len(ids)-1)) % len(ids)
	return between(ids[from], ids[to], amount.String(), "USD")
}

func TestEqualRequestsWithOneKeyTakeEffectOnce(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		s := mode.service(l.db, patient)
		low, high := l.openPair(t, "USD", "100")
		c := keyed(between(low, high, "10", "USD"), "one")
		ids := make([]uuid.UUID, 30)
		var first atomic.Int32
		together(len(ids), func(i int) {
			made, replayed, err := s.Create(t.Context(), c)
			if err != nil {
				t.Errorf("error = %v, want none", err)
			}
			if !replayed {
				first.Add(1)
			}
			ids[i] = made.ID
		})
		for _, id := range ids {
			if id != ids[0] || id == uuid.Nil {
				t.Fatalf("transfers = %v, want one and the same", ids)
			}
		}
		if first.Load() != 1 {
			t.Errorf("%d answers are not replays, want 1", first.Load())
		}
		l.wantBalance(t, low, "90")
		l.wantSound(t)
	})
}

package transfer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// mixed are commands of all kinds of members: with and without a key, made and
// refused, and one whose key was used before.
func mixed(low, high uuid.UUID) []transfer.Command {
	return []transfer.Command{
		between(low, high, "1", "USD"), keyed(between(low, high, "1", "USD"), "made"), between(high, low, "1", "USD"),
		between(low, high, "1000", "USD"), keyed(between(low, high, "1000", "USD"), "refused"),
		keyed(between(high, low, "2", "USD"), "before"),
	}
}

func wantMixed(t *testing.T, l *ledger, s *transfer.Service, answers []<-chan answer, before transfer.Transfer) {
	t.Helper()
	wants := []error{nil, nil, nil, transfer.ErrInsufficientFunds, transfer.ErrInsufficientFunds, nil}
	for i, want := range wants {
		a := <-answers[i]
		replay := i == len(wants)-1
		if !errors.Is(a.err, want) || (a.err == nil) != (want == nil) || a.replayed != replay {
			t.Errorf("%d: replayed %v, error %v, want %v, %v", i, a.replayed, a.err, replay, want)
			continue
		}
		if want != nil {
			continue
		}
		stored, err := s.Get(t.Context(), a.transfer.ID)
		if err != nil {
			t.Errorf("%d: get what was answered: %v", i, err)
		}
		if diff := cmp.Diff(stored, a.transfer); diff != "" {
			t.Errorf("%d: what was answered is not what is stored (-stored +answered):\n%s", i, diff)
		}
		if replay && a.transfer.ID != before.ID {
			t.Errorf("the replay is of %s, want %s", a.transfer.ID, before.ID)
		}
	}
}

func TestALostAnswerOfAGroupIsFoundOut(t *testing.T) {
	t.Parallel()
	for name := range fates(t, nil) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			low, high := l.openPair(t, "USD", "100")
			before := create(t, l.service(transfer.Pessimistic), keyed(between(high, low, "2", "USD"), "before"))
			lossy := &lossyDB{Beginner: l.db, lose: fates(t, l)[name]}
			lossy.after.Store(1)
			s, answers := inOneGroup(t, lossy, grouping, transfer.Locking{}, patient, between(low, high, "3", "USD"), mixed(low, high))
			wantMixed(t, l, s, answers, before)
			if n := count(t, l, `SELECT count(*) FROM transfers WHERE amount = 1`); n != 3 {
				t.Errorf("%d transfers, want 3: one effect a call", n)
			}
			if _, replayed, err := s.Create(t.Context(), keyed(between(low, high, "1000", "USD"), "refused")); !replayed || !errors.Is(err, transfer.ErrInsufficientFunds) {
				t.Errorf("replay of the refusal: replayed %v, error %v, want %v", replayed, err, transfer.ErrInsufficientFunds)
			}
			l.wantBalance(t, low, "98")
			l.wantSound(t)
		})
	}
}

// A COMMIT that stays under way keeps its locks, and who looks for its outcome
// meets them. That is no group that met a lock: it must not be made again.
func TestAnUnknownOutcomeOfAGroupIsEverybodysAndFinal(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	low, high := l.openPair(t, "USD", "100")
	create(t, l.service(transfer.Pessimistic), keyed(between(high, low, "2", "USD"), "before"))
	impatient, g := patient, grouping
	impatient.Attempts, g.LockWait = 2, time.Millisecond
	var open pgx.Tx
	lossy := &lossyDB{Beginner: l.db, lose: func(_ context.Context, tx pgx.Tx) { open = tx }}
	lossy.after.Store(1)
	_, answers := inOneGroup(t, lossy, g, transfer.Locking{}, impatient, between(low, high, "3", "USD"), mixed(low, high))
	for i := range answers {
		if a := <-answers[i]; !errors.Is(a.err, retry.ErrCommitUnknown) {
			t.Errorf("%d: error = %v, want %v", i, a.err, retry.ErrCommitUnknown)
		}
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = open.Rollback(t.Context()) // gives the connection back
	if n := count(t, l, `SELECT count(*) FROM transfers WHERE amount = 1`); n != 3 {
		t.Errorf("%d transfers, want 3: one effect a call", n)
	}
	l.wantSound(t)
}

package retry_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

func TestEachReadsOneSnapshot(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	sum := 0
	err := retry.Each(t.Context(), db, quick, `SELECT n FROM rows ORDER BY id`, pgx.RowTo[int], func(n int) error {
		sum += n
		exec(t, db, `UPDATE rows SET n = n + 5`) // on another connection
		return nil
	})
	if err != nil || sum != 20 {
		t.Errorf("got %d, %v, want 20", sum, err)
	}
	wantNumber(t, db, `SELECT sum(n) FROM rows`, 40)
}

// The rest of many rows is not read after an error, and the connection is given
// back.
func TestEachEndsWithTheErrorOfItsCaller(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	enough, seen := errors.New("enough"), 0
	err := retry.Each(t.Context(), db, quick, `SELECT generate_series(1, 2000000000)`, pgx.RowTo[int], func(int) error {
		if seen++; seen == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || seen != 3 {
		t.Errorf("got %v after %d rows, want %v after 3", err, seen, enough)
	}
	for db.Stat().AcquiredConns() != 0 && t.Context().Err() == nil { // the pool closes its connection beside us
		time.Sleep(time.Millisecond)
	}
}

// What was made of the first rows cannot be taken back: no second attempt.
func TestEachIsOneAttempt(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	seen := 0
	err := retry.Each(t.Context(), db, quick, `SELECT id FROM rows`, pgx.RowTo[int], func(int) error {
		seen++
		return retry.ErrConflict
	})
	if !errors.Is(err, retry.ErrConflict) || seen != 1 {
		t.Errorf("got %v after %d rows, want a conflict after one", err, seen)
	}
}

package retry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

func TestPausesAreAFullJitterBelowADoublingCeiling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{}
		p := retry.Policy{Attempts: 3000, MinPause: time.Second, MaxPause: time.Hour}
		_, err := retry.Tx(t.Context(), db, pgx.TxOptions{}, p, always(serialization))
		if err == nil || len(db.begunAt) != 3000 {
			t.Fatalf("%d attempts and error %v, want 3000 and an error", len(db.begunAt), err)
		}
		shortest, longest := time.Hour, time.Duration(0)
		for i := 1; i < len(db.begunAt); i++ {
			pause := db.begunAt[i].Sub(db.begunAt[i-1])
			ceiling := time.Hour
			if i <= 12 {
				ceiling = min(time.Hour, time.Second<<(i-1))
			}
			if pause < 0 || pause > ceiling {
				t.Errorf("pause %d = %v, want at most %v", i, pause, ceiling)
			}
			if i > 12 {
				shortest, longest = min(shortest, pause), max(longest, pause)
			}
		}
		// Of 3,000 pauses some are near both ends; that none is has a chance of e^-100.
		if shortest > 2*time.Minute || longest < 58*time.Minute {
			t.Errorf("pauses of %v to %v, want them all over the hour", shortest, longest)
		}
	})
}

func TestPausesOfAnyPolicyAreBounded(t *testing.T) {
	t.Parallel()
	for _, p := range []retry.Policy{
		{Attempts: 100},
		{Attempts: 100, MaxPause: time.Hour},
		{Attempts: 100, MinPause: time.Hour, MaxPause: 2 * time.Hour},
		{Attempts: 100, MinPause: 24 * time.Hour, MaxPause: time.Hour},
		{Attempts: 100, MinPause: time.Minute, MaxPause: 10_000 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			db := &fakeDB{}
			if _, err := retry.Tx(t.Context(), db, pgx.TxOptions{}, p, always(serialization)); err == nil {
				t.Error("error = nil, want one")
			}
			for i := 1; i < len(db.begunAt); i++ {
				if pause := db.begunAt[i].Sub(db.begunAt[i-1]); pause < 0 || pause > p.MaxPause {
					t.Errorf("pause %d = %v, want at most %v", i, pause, p.MaxPause)
				}
			}
		})
	}
}

func TestContextEndsThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		p, seen := watched(retry.Policy{Attempts: 1_000_000, MinPause: time.Hour, MaxPause: time.Hour})
		_, err := retry.Tx(ctx, &fakeDB{}, pgx.TxOptions{}, p, always(serialization))
		var exhausted *retry.ExhaustedError
		if !errors.As(err, &exhausted) || exhausted.Attempts != len(*seen) || retry.SQLState(err) != "40001" {
			t.Errorf("error = %v, want exhaustion after %d attempts, of 40001", err, len(*seen))
		}
		if spent := time.Since(start); spent != time.Minute {
			t.Errorf("it took %v, want a minute, when the context ended", spent)
		}
	})
}

func TestBeginSetsTheLimits(t *testing.T) {
	t.Parallel()
	const all = "SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true), " +
		"set_config('idle_in_transaction_session_timeout', $3, true)"
	limits := retry.Policy{StatementTimeout: 5 * time.Second, LockTimeout: 2 * time.Second, IdleTimeout: 10 * time.Second}
	for _, tt := range []struct {
		name   string
		opts   pgx.TxOptions
		policy retry.Policy
		left   time.Duration // of the context; 0: no end
		want   []string      // statements, with their arguments
	}{
		{"none", pgx.TxOptions{}, retry.Policy{}, time.Second, []string{"begin"}},
		{"isolation and access", pgx.TxOptions{IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly}, retry.Policy{}, 0,
			[]string{"begin isolation level serializable read only"}},
		{"all", pgx.TxOptions{}, limits, 0,
			[]string{"begin", all + "[5000 2000 10000]"}},
		{"far end of the context", pgx.TxOptions{}, limits, 10 * time.Second,
			[]string{"begin", all + "[5000 2000 10000]"}},
		{"near end of the context", pgx.TxOptions{}, limits, 4 * time.Second,
			[]string{"begin", all + "[3600 2000 10000]"}},
		{"very near end of the context", pgx.TxOptions{}, limits, time.Millisecond,
			[]string{"begin", all + "[1 1 10000]"}},
		{"below a millisecond, where 0 would mean none", pgx.TxOptions{}, retry.Policy{LockTimeout: time.Microsecond}, 0,
			[]string{"begin", "SELECT set_config('lock_timeout', $1, true)[1]"}},
		{"generic plans", pgx.TxOptions{}, retry.Policy{GenericPlans: true}, 0,
			[]string{"begin", "SELECT set_config('plan_cache_mode', $1, true)[force_generic_plan]"}},
		{"custom plans", pgx.TxOptions{}, retry.Policy{CustomPlans: true}, 0,
			[]string{"begin", "SELECT set_config('plan_cache_mode', $1, true)[force_custom_plan]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.left > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.left)
					defer cancel()
				}
				db := &fakeDB{}
				if _, err := retry.Tx(ctx, db, tt.opts, tt.policy, fails()); err != nil {
					t.Fatalf("error = %v, want none", err)
				}
				var got []string
				for _, q := range db.begun[0].QueuedQueries {
					statement := q.SQL
					if len(q.Arguments) > 0 {
						statement += fmt.Sprint(q.Arguments)
					}
					got = append(got, statement)
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("begun with %q, want %q", got, tt.want)
				}
			})
		})
	}
}

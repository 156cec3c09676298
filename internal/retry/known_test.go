package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowlock/ledger/internal/retry"
)

func TestUntilKnownRunsAgainUntilARunSucceeds(t *testing.T) {
	t.Parallel()
	unknown := fmt.Errorf("%w: connection reset", retry.ErrCommitUnknown)
	refusal := errors.New("insufficient funds")
	for _, tt := range []struct {
		name string
		runs []error // past the end a run succeeds
		want []error // what the error matches; none: success
		not  error
		ran  int
	}{
		{"success at once", nil, nil, nil, 1},
		{"a known error is final", []error{refusal}, []error{refusal}, retry.ErrCommitUnknown, 1},
		{"an unavailable database is known", []error{retry.ErrUnavailable}, []error{retry.ErrUnavailable}, retry.ErrCommitUnknown, 1},
		{"unknown, then success", []error{unknown}, nil, nil, 2},
		{"unknown twice, then success", []error{unknown, unknown}, nil, nil, 3},
		{"unknown, unavailable, then success", []error{unknown, retry.ErrUnavailable}, nil, nil, 3},
		{"an error after an unknown outcome settles nothing",
			[]error{unknown, retry.ErrLockUnavailable, retry.ErrLockUnavailable, retry.ErrLockUnavailable, retry.ErrLockUnavailable},
			[]error{retry.ErrCommitUnknown, retry.ErrLockUnavailable}, nil, 5},
		{"unknown to the end", []error{unknown, unknown, unknown, unknown, unknown}, []error{retry.ErrCommitUnknown}, nil, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var again []bool
				got, err := retry.UntilKnown(t.Context(), policy, func(a bool) (string, error) {
					again = append(again, a)
					if n := len(again); n <= len(tt.runs) {
						return "", tt.runs[n-1]
					}
					return "done", nil
				})
				if (err == nil) != (tt.want == nil) || err == nil && got != "done" {
					t.Errorf("UntilKnown = %q, %v, want %v", got, err, tt.want)
				}
				for _, want := range tt.want {
					if !errors.Is(err, want) {
						t.Errorf("error = %v, want that it matches %v", err, want)
					}
				}
				if tt.not != nil && errors.Is(err, tt.not) {
					t.Errorf("error = %v, want none that matches %v", err, tt.not)
				}
				want := []bool{false, true, true, true, true}[:tt.ran]
				if diff := cmp.Diff(want, again); diff != "" {
					t.Errorf("again (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestUntilKnownEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		p := retry.Policy{Attempts: 1_000_000, MinPause: time.Hour, MaxPause: time.Hour}
		_, err := retry.UntilKnown(ctx, p, func(bool) (int, error) { return 0, retry.ErrCommitUnknown })
		if !errors.Is(err, retry.ErrCommitUnknown) {
			t.Errorf("error = %v, want %v", err, retry.ErrCommitUnknown)
		}
		if spent := time.Since(start); spent != time.Minute {
			t.Errorf("it took %v, want a minute, when the context ended", spent)
		}
	})
}

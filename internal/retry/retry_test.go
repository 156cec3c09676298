package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rowlock/ledger/internal/retry"
)

var policy = retry.Policy{Attempts: 5, MinPause: time.Minute, MaxPause: time.Hour}

// run runs fn in a bubble, where pauses take no time.
func run(t *testing.T, db *fakeDB, p retry.Policy, fn func(context.Context, pgx.Tx) (int, error)) (result int, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		result, err = retry.Tx(t.Context(), db, pgx.TxOptions{}, p, fn)
	})
	return result, err
}

// A mishap happens to a first attempt; the second one would succeed.
type mishap struct {
	name               string
	begin, fn, commit  error
	attempts           int
	want               error // nil: done
	wantNot            error
	conflictedSQLState string
}

func mishaps(t *testing.T) []mishap {
	unreachable := cannotConnect(t)
	refusal := errors.New("a refusal of the domain's")
	return []mishap{
		{name: "success", attempts: 1},
		{name: "serialization failure of a statement", fn: serialization, attempts: 2, conflictedSQLState: "40001"},
		{name: "deadlock of a statement", fn: fmt.Errorf("lock accounts: %w", deadlock), attempts: 2, conflictedSQLState: "40P01"},
		{name: "serialization failure of COMMIT", commit: serialization, attempts: 2, conflictedSQLState: "40001"},
		{name: "deadlock of COMMIT", commit: deadlock, attempts: 2, conflictedSQLState: "40P01"},
		{name: "stale version", fn: fmt.Errorf("account: %w", retry.ErrConflict), attempts: 2},
		{name: "connection lost while it began", begin: reset, attempts: 2},
		{name: "connection lost in a statement", fn: fmt.Errorf("read: %w", io.ErrUnexpectedEOF), attempts: 2},
		{name: "connection reset in a statement", fn: reset, attempts: 2},
		{name: "administrator's shutdown", fn: pgError("FATAL", "57P01"), attempts: 2, conflictedSQLState: "57P01"},
		{name: "crash", fn: pgError("FATAL", "57P02"), attempts: 2, conflictedSQLState: "57P02"},
		{name: "idle in transaction for too long", fn: pgError("FATAL", "25P03"), attempts: 2, conflictedSQLState: "25P03"},
		{name: "transaction for too long", fn: pgError("FATAL", "25P04"), attempts: 2, conflictedSQLState: "25P04"},
		{name: "idle session for too long", begin: pgError("FATAL", "57P05"), attempts: 2, conflictedSQLState: "57P05"},
		{name: "pooler's error without an untranslated severity", fn: &pgconn.PgError{Severity: "FATAL", Code: "28000"}, attempts: 2, conflictedSQLState: "28000"},
		{name: "connection exception", fn: pgError("ERROR", "08006"), attempts: 2, conflictedSQLState: "08006"},
		{name: "server that cannot write any more", fn: pgError("ERROR", "25006"), attempts: 2, conflictedSQLState: "25006"},
		{name: "COMMIT that was never sent", commit: &unsent{}, attempts: 1, wantNot: retry.ErrCommitUnknown, want: errUnsent},

		{name: "no connection to be had", begin: unreachable, attempts: 1, want: retry.ErrUnavailable},
		{name: "no connection in time", begin: context.DeadlineExceeded, attempts: 1, want: retry.ErrUnavailable},
		{name: "too many connections", begin: pgError("ERROR", "53300"), attempts: 1, want: retry.ErrUnavailable},
		{name: "disk full", fn: pgError("ERROR", "53100"), attempts: 1, want: retry.ErrUnavailable},
		{name: "disk broken", fn: pgError("ERROR", "58030"), attempts: 1, want: retry.ErrUnavailable},
		{name: "statement timeout", fn: pgError("ERROR", "57014"), attempts: 1, want: retry.ErrUnavailable},
		{name: "lock timeout", fn: pgError("ERROR", "55P03"), attempts: 1, want: retry.ErrLockUnavailable},
		{name: "aborted transaction, which is a bug", fn: pgError("ERROR", "25P02"), attempts: 1, want: pgError("ERROR", "25P02")},
		{name: "refusal", fn: refusal, attempts: 1, want: refusal},
		{name: "unique violation of COMMIT", commit: pgError("ERROR", "23505"), attempts: 1, want: pgError("ERROR", "23505"), wantNot: retry.ErrCommitUnknown},
		{name: "COMMIT of an aborted transaction", commit: pgx.ErrTxCommitRollback, attempts: 1, want: pgx.ErrTxCommitRollback, wantNot: retry.ErrCommitUnknown},

		{name: "lost answer of COMMIT", commit: io.ErrUnexpectedEOF, attempts: 1, want: retry.ErrCommitUnknown},
		{name: "reset at COMMIT", commit: reset, attempts: 1, want: retry.ErrCommitUnknown},
		{name: "FATAL at COMMIT", commit: pgError("FATAL", "57P01"), attempts: 1, want: retry.ErrCommitUnknown},
		{name: "FATAL conflict at COMMIT", commit: pgError("FATAL", "40001"), attempts: 1, want: retry.ErrCommitUnknown},
		{name: "PANIC at COMMIT", commit: pgError("PANIC", "XX000"), attempts: 1, want: retry.ErrCommitUnknown},
		{name: "context's end at COMMIT", commit: context.DeadlineExceeded, attempts: 1, want: retry.ErrCommitUnknown},
	}
}

func TestTxRepeatsOnlyWhatIsCertainlyUndone(t *testing.T) {
	t.Parallel()
	for _, tt := range mishaps(t) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := &fakeDB{beginErrs: []error{tt.begin}, commitErrs: []error{tt.commit}}
			fn := fails(tt.fn)
			if tt.fn == nil {
				fn = fails()
			}
			p, seen := watched(policy)
			_, err := run(t, db, p, fn)

			var want *pgconn.PgError
			if errors.As(tt.want, &want) {
				if got := retry.SQLState(err); got != want.Code {
					t.Errorf("error = %v, want SQLSTATE %s", err, want.Code)
				}
			} else if !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
			if tt.wantNot != nil && errors.Is(err, tt.wantNot) {
				t.Errorf("error = %v, want none that is %v", err, tt.wantNot)
			}
			if len(db.begun) != tt.attempts {
				t.Errorf("%d attempts, want %d", len(db.begun), tt.attempts)
			}
			if len(*seen) != tt.attempts-1 {
				t.Errorf("OnConflict saw %v, want each of the %d attempts that were repeated", *seen, tt.attempts-1)
			}
			for _, c := range *seen {
				if c.Attempt != 1 || c.SQLState != tt.conflictedSQLState || c.Err == nil {
					t.Errorf("conflict = %+v, want attempt 1 and SQLSTATE %q", c, tt.conflictedSQLState)
				}
			}
		})
	}
}

// unsent is an error of pgx's that came before it sent anything.
type unsent struct{}

var errUnsent = &unsent{}

func (*unsent) Error() string        { return "nothing was sent" }
func (*unsent) SafeToRetry() bool    { return true }
func (*unsent) Is(target error) bool { return target == errUnsent }

func TestResultIsThatOfTheAttemptThatCommitted(t *testing.T) {
	t.Parallel()
	db := &fakeDB{commitErrs: []error{nil, serialization}}
	got, err := run(t, db, policy, fails(deadlock, serialization))
	if got != 3 || err != nil {
		t.Errorf("Tx = %d, %v, want the third attempt's result", got, err)
	}
	if got, _ := run(t, &fakeDB{}, policy, always(errors.New("no"))); got != 0 {
		t.Errorf("result = %d beside an error, want none", got)
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"conflicts", serialization, nil},
		{"stale versions", retry.ErrConflict, nil},
		{"lost connections", reset, retry.ErrUnavailable},
		{"a server that stays read-only", pgError("ERROR", "25006"), retry.ErrUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := &fakeDB{}
			p, seen := watched(policy)
			_, err := run(t, db, p, always(tt.err))
			var exhausted *retry.ExhaustedError
			if errors.As(err, &exhausted) != (tt.want == nil) || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v or exhaustion", err, tt.want)
			}
			if exhausted != nil && (exhausted.Attempts != 5 || !errors.Is(exhausted.Last, tt.err)) {
				t.Errorf("exhausted = %+v, want 5 attempts and the last error", exhausted)
			}
			if !errors.Is(err, tt.err) {
				t.Errorf("error = %v, want that it keeps %v", err, tt.err)
			}
			if len(db.begun) != 5 || db.rollbacks != 5 || db.commits != 0 {
				t.Errorf("begun %d, rolled back %d, committed %d, want 5, 5, 0", len(db.begun), db.rollbacks, db.commits)
			}
			var attempts []int
			for _, c := range *seen {
				attempts = append(attempts, c.Attempt)
			}
			if diff := cmp.Diff([]int{1, 2, 3, 4, 5}, attempts); diff != "" {
				t.Errorf("attempts that OnConflict saw (-want +got):\n%s", diff)
			}
		})
	}
}

func TestContextEndsTheAttempts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		err       error
		want      error
		conflicts int
	}{
		{"a conflict is still one", serialization, serialization, 1},
		{"a connection that the context cut is none", fmt.Errorf("read: %w", reset), retry.ErrUnavailable, 0},
		{"a statement that the context ended", context.Canceled, retry.ErrUnavailable, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			db := &fakeDB{}
			p, seen := watched(policy)
			_, err := retry.Tx(ctx, db, pgx.TxOptions{}, p, func(context.Context, pgx.Tx) (int, error) {
				cancel()
				return 0, tt.err
			})
			if !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
			if len(db.begun) != 1 || len(*seen) != tt.conflicts {
				t.Errorf("%d attempts and %d conflicts, want 1 and %d", len(db.begun), len(*seen), tt.conflicts)
			}
			if db.rollbacks != 1 || !db.rollbackOK {
				t.Errorf("%d rollbacks, in a live and bounded context: %v; want 1, true", db.rollbacks, db.rollbackOK)
			}
		})
	}
}

func TestPanicRollsBack(t *testing.T) {
	t.Parallel()
	db := &fakeDB{}
	func() {
		defer func() {
			if got := recover(); got != "a bug" {
				t.Errorf("recovered %v, want the panic of fn", got)
			}
		}()
		retry.Tx(t.Context(), db, pgx.TxOptions{}, policy, func(context.Context, pgx.Tx) (int, error) { panic("a bug") })
	}()
	if db.rollbacks != 1 || db.commits != 0 {
		t.Errorf("%d rollbacks and %d commits, want 1 and 0", db.rollbacks, db.commits)
	}
}

// The connection goes back with the rollback, also after a commit.
func TestEveryTransactionIsRolledBackInTheEnd(t *testing.T) {
	t.Parallel()
	db := &fakeDB{commitErrs: []error{serialization}}
	if _, err := run(t, db, policy, fails(deadlock)); err != nil {
		t.Errorf("error = %v, want none", err)
	}
	if len(db.begun) != 3 || db.rollbacks != 3 {
		t.Errorf("%d transactions and %d rollbacks, want 3 and 3", len(db.begun), db.rollbacks)
	}
}

func TestExhaustedErrorSaysWhyTheLastAttemptFailed(t *testing.T) {
	t.Parallel()
	_, err := run(t, &fakeDB{}, retry.Policy{Attempts: 2}, always(retry.ErrConflict))
	if got, want := err.Error(), "gave up after 2 attempts: conflict: what was read has changed"; got != want {
		t.Errorf("error = %q, want %q", got, want)
	}
}

// Package retry runs a function in a database transaction, and again when the
// transaction lost a conflict that another attempt may win.
//
// It is the only place that begins, commits and rolls back. Its one idea: an
// attempt ends in one of three ways (certainly committed, certainly rolled
// back, or unknown) and only the second is ever repeated from here. Start
// reading at [Tx]; what may be repeated is decided in classify.go.
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Beginner begins transactions: a [Pool], or a fake in tests.
type Beginner interface {
	// BeginWith returns a transaction whose first statements are those of begin.
	// It may send them later, in one message with what follows.
	BeginWith(ctx context.Context, begin *pgx.Batch) (pgx.Tx, error)
}

// A Policy bounds the attempts of one transaction and the waits within them.
type Policy struct {
	// Attempts is how often the transaction may run. At least 1.
	Attempts int

	// MinPause and MaxPause bound the pause before another attempt: it is
	// random between zero and MinPause·2ⁿ, and never more than MaxPause.
	MinPause, MaxPause time.Duration

	// The server's own limits, set for each transaction: they end a wait with
	// an answer, where the context can only cut the connection. Zero leaves the
	// server's setting. The first two are shortened to what remains of the context.
	// None of them covers COMMIT's wait for a synchronous standby, nor a wait for a
	// table that DDL has locked while a connection prepares the first statements:
	// only the context ends those.
	StatementTimeout, LockTimeout, IdleTimeout time.Duration

	// GenericPlans plans each statement that stays prepared once, whatever its parameters.
	// It is for statements that have one good plan: to plan a small one takes
	// longer than to run it.
	GenericPlans bool

	// CustomPlans plans each statement for its parameters, every time. It is for
	// statements of which a parameter that is NULL leaves a part out.
	CustomPlans bool

	// OnConflict, where not nil, is called for every attempt that failed for
	// a reason that another attempt may resolve, the last one included.
	OnConflict func(Conflict)
}

// A Conflict is a failed attempt, as [Policy.OnConflict] sees it.
type Conflict struct {
	Attempt  int    // counts from 1
	SQLState string // "" for a stale version or a lost connection
	Err      error
}

// Tx runs fn in a transaction begun with opts and commits it. When the attempt
// lost a conflict, or its connection, before COMMIT was sent, or when COMMIT
// itself was refused with a conflict, it rolls back, pauses and runs fn again:
// fn may run many times and must keep nothing from a run before.
//
// On nil, the transaction is committed. The error matches [ErrCommitUnknown]
// when the answer to COMMIT was lost; after every other error nothing of the
// transaction remains. It matches [*ExhaustedError] when the attempts or the
// context ended first, [ErrUnavailable] when the database cannot serve,
// [ErrLockUnavailable] when a lock was not to be had in time, and otherwise
// is fn's own error.
func Tx[T any](ctx context.Context, db Beginner, opts pgx.TxOptions, policy Policy, fn func(context.Context, pgx.Tx) (T, error)) (T, error) {
	for attempt := 1; ; attempt++ {
		result, err := try(ctx, db, opts, policy, fn)
		if err == nil {
			return result, nil
		}
		cut := ctx.Err() != nil && lost(err) // by the context, which is no conflict
		if !repeatable(err) || cut {
			return result, translate(err)
		}
		if policy.OnConflict != nil {
			policy.OnConflict(Conflict{Attempt: attempt, SQLState: SQLState(err), Err: err})
		}
		if attempt >= policy.Attempts || sleep(ctx, policy.pause(attempt)) != nil {
			return result, exhausted(attempt, err)
		}
	}
}

// UntilKnown runs fn, and runs it again while its outcome is unknown and policy
// and ctx allow. again is true from the second run on: fn must then find out,
// before it does anything, whether a run before took effect.
//
// Once an outcome was unknown, only a nil error settles it: any other error of
// a later run says nothing about the first one, so it comes back matching
// [ErrCommitUnknown] too.
func UntilKnown[T any](ctx context.Context, policy Policy, fn func(again bool) (T, error)) (T, error) {
	result, err := fn(false)
	if !errors.Is(err, ErrCommitUnknown) {
		return result, err
	}
	for attempt := 1; attempt < policy.Attempts && sleep(ctx, policy.pause(attempt)) == nil; attempt++ {
		var again error
		if result, again = fn(true); again == nil {
			return result, nil
		}
		err = fmt.Errorf("%w: %w", ErrCommitUnknown, again)
	}
	return result, err
}

// try is one attempt.
func try[T any](ctx context.Context, db Beginner, opts pgx.TxOptions, policy Policy, fn func(context.Context, pgx.Tx) (T, error)) (T, error) {
	var none T
	tx, err := db.BeginWith(ctx, policy.begin(ctx, opts))
	if err != nil {
		return none, fmt.Errorf("begin: %w", err)
	}
	defer rollback(ctx, tx, &err) // also after a panic
	result, err := fn(ctx, tx)
	if err == nil {
		err = commit(ctx, tx)
	}
	if err != nil {
		return none, err
	}
	return result, nil
}

// begin begins a transaction and sets its limits. They are local to it: a
// session's settings would leak through a pooler.
func (p Policy) begin(ctx context.Context, opts pgx.TxOptions) *pgx.Batch {
	b := &pgx.Batch{}
	b.BeginTx(opts)
	var calls []string
	var values []any
	set := func(name, value string) {
		values = append(values, value)
		calls = append(calls, fmt.Sprintf("set_config('%s', $%d, true)", name, len(values)))
	}
	limit := func(name string, d time.Duration) {
		if d > 0 {
			set(name, strconv.FormatInt(max(1, d.Milliseconds()), 10))
		}
	}
	limit("statement_timeout", within(ctx, p.StatementTimeout, 9))
	limit("lock_timeout", within(ctx, p.LockTimeout, 8))
	limit("idle_in_transaction_session_timeout", p.IdleTimeout)
	if p.GenericPlans {
		set("plan_cache_mode", "force_generic_plan")
	}
	if p.CustomPlans {
		set("plan_cache_mode", "force_custom_plan")
	}
	if len(calls) > 0 {
		b.Queue("SELECT "+strings.Join(calls, ", "), values...)
	}
	return b
}

// within shortens d to some tenths of what remains of ctx, so that the server
// answers before the context cuts the connection, and says that it was a lock
// where it was one.
func within(ctx context.Context, d time.Duration, tenths time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok || d == 0 {
		return d
	}
	return min(d, max(time.Millisecond, time.Until(deadline)*tenths/10))
}

// commit sends COMMIT alone, so that its answer is one of two things: an error
// of the server's is a certain rollback; anything else is unknown.
func commit(ctx context.Context, tx pgx.Tx) error {
	warnings := warnings(tx)
	delete(warnings, warningKey)
	err := tx.Commit(ctx)
	if err == nil {
		return warned(warnings)
	}
	var pg *pgconn.PgError
	refused := errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR"
	never := errors.Is(err, pgx.ErrTxClosed) // it did not even begin, and COMMIT was not sent
	if refused || never || errors.Is(err, pgx.ErrTxCommitRollback) || pgconn.SafeToRetry(err) {
		return fmt.Errorf("commit: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
}

// rollback ends what commit did not, and gives the connection back. It outlives
// the request: a transaction that is left open keeps its locks. A connection to a server that stopped
// being able to write is closed, so that the next one finds the one that can.
func rollback(ctx context.Context, tx pgx.Tx, cause *error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if conn := tx.Conn(); conn != nil && lost(*cause) {
		conn.Close(ctx)
	}
	tx.Rollback(ctx) // its error leaves nothing to do: the pool destroys a connection that is not idle
}

const rollbackTimeout = time.Second

// pause is a full jitter: the attempts of many that collided spread out.
func (p Policy) pause(attempt int) time.Duration {
	ceiling := p.MinPause
	for range attempt - 1 {
		if ceiling > p.MaxPause/2 {
			ceiling = p.MaxPause
			break
		}
		ceiling *= 2
	}
	return rand.N(min(ceiling, p.MaxPause) + 1)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err()
	}
}

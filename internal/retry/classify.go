package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// What a transaction can end in, besides fn's own errors. Nothing of it
// remains in the database, except perhaps after ErrCommitUnknown.
var (
	// ErrCommitUnknown: COMMIT was sent and its answer never came, or the
	// server says that it no longer waits for its standby. The transaction may
	// be committed.
	ErrCommitUnknown = errors.New("the outcome of the commit is unknown")

	// ErrUnavailable: there was no connection to be had, it was lost again and
	// again, or the server could not do its work in time.
	ErrUnavailable = errors.New("the database is unavailable")

	// ErrLockUnavailable: somebody else kept a lock for longer than the wait
	// that was allowed (SQLSTATE 55P03).
	ErrLockUnavailable = errors.New("a lock was not available in time")

	// ErrConflict is for fn to return, wrapped or not, when what it read has
	// changed and another attempt may succeed.
	ErrConflict = errors.New("conflict: what was read has changed")
)

// An ExhaustedError says that every attempt that was allowed lost a conflict.
type ExhaustedError struct {
	Attempts int
	Last     error // why the last attempt failed
}

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("gave up after %d attempts: %v", e.Attempts, e.Last)
}

func (e *ExhaustedError) Unwrap() error { return e.Last }

// SQLSTATEs, by the names of PostgreSQL's Appendix A.
const (
	serializationFailure   = "40001"
	deadlockDetected       = "40P01"
	lockNotAvailable       = "55P03"
	queryCanceled          = "57014"
	cannotConnectNow       = "57P03"
	readOnlySQLTransaction = "25006"

	classConnection = "08"
	classResources  = "53"
	classSystem     = "58"
)

// SQLState returns the SQLSTATE that err carries, or "".
func SQLState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// repeatable reports whether another attempt may do better. That the failed
// one left nothing behind is certain for every error but ErrCommitUnknown.
func repeatable(err error) bool {
	if errors.Is(err, ErrCommitUnknown) {
		return false
	}
	switch SQLState(err) {
	case serializationFailure, deadlockDetected:
		return true
	}
	return errors.Is(err, ErrConflict) || lost(err)
}

// lost reports whether err says that the connection is gone (as after every
// FATAL error of the server's), or leads to a server that can no longer write.
// A connection that could not be made is not lost: asking again at once would
// only add to the load.
func lost(err error) bool {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return false
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		severity := cmp.Or(pg.SeverityUnlocalized, pg.Severity) // a pooler may send the second alone
		return severity == "FATAL" || severity == "PANIC" ||
			pg.Code == readOnlySQLTransaction || pg.Code == cannotConnectNow || strings.HasPrefix(pg.Code, classConnection)
	}
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, pgconn.ErrConnClosed) || errors.As(err, &op)
}

// exhausted is the end of a transaction whose last attempt ended in err.
func exhausted(attempts int, err error) error {
	if lost(err) {
		return fmt.Errorf("%w: after %d attempts: %w", ErrUnavailable, attempts, err)
	}
	return &ExhaustedError{Attempts: attempts, Last: err}
}

// translate gives err, which is not repeated, the kind that callers act on.
func translate(err error) error {
	var connect *pgconn.ConnectError
	code := SQLState(err)
	switch {
	case errors.Is(err, ErrCommitUnknown):
		return err
	case code == lockNotAvailable:
		return fmt.Errorf("%w: %w", ErrLockUnavailable, err)
	case errors.As(err, &connect), lost(err), code == queryCanceled,
		strings.HasPrefix(code, classResources), strings.HasPrefix(code, classSystem),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

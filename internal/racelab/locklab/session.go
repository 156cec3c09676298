package locklab

import (
	"context"
	"time"
)

// An outcome is what a statement ended in.
type outcome struct {
	text  string // what it returned
	state string // SQLSTATE, or MariaDB's number
	err   error  // what is no answer of the server's
}

// String is the outcome as a reader is shown it.
func (o outcome) String() string {
	switch {
	case o.err != nil:
		return "error: " + o.err.Error()
	case o.state != "":
		return "error " + o.state
	}
	return o.text
}

// A conn is a connection to an engine.
type conn interface {
	exec(ctx context.Context, sql string) outcome
	id() uint64
	// waits reports whether the session with that id waits for a lock now. It
	// fails on an engine that does not show it.
	waits(ctx context.Context, id uint64) (bool, error)
	// exists reports whether the engine has a session with that id.
	exists(ctx context.Context, id uint64) (bool, error)
	cancel(ctx context.Context) // what it is at
	close(ctx context.Context)
}

// A session is a connection, and the statement it is at.
type session struct {
	conn
	pending chan outcome // nil while it is idle
}

// start sends sql and returns at once.
func (s *session) start(ctx context.Context, sql string) {
	pending := make(chan outcome, 1)
	s.pending = pending
	go func() { pending <- s.exec(ctx, sql) }()
}

// end waits for the statement's end. ok is false where it did not come.
func (s *session) end(ctx context.Context, patience time.Duration) (o outcome, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case o = <-s.pending:
		s.pending = nil
		return o, true
	case <-ctx.Done():
		return outcome{}, false
	}
}

// endsWithin reports whether the statement ends within d, and leaves its
// outcome to be read.
func (s *session) endsWithin(ctx context.Context, d time.Duration) bool {
	o, ok := s.end(ctx, d)
	if ok {
		s.pending = make(chan outcome, 1)
		s.pending <- o
	}
	return ok
}

// A watch tells whether a session waits for a lock.
type watch struct {
	conn
	sees bool // the engine shows waits; elsewhere only time tells
}

// A session that is not seen to wait, on an engine that does not show it, is
// taken to wait when it has not answered for so long.
const silence = time.Second

// newWatch finds out whether the engine shows what its sessions wait for.
func newWatch(ctx context.Context, c conn) *watch {
	_, err := c.waits(ctx, c.id())
	return &watch{conn: c, sees: err == nil}
}

// sessionWaits reports whether s comes to wait, before it ends.
func (w *watch) sessionWaits(ctx context.Context, s *session, patience time.Duration) (bool, error) {
	if !w.sees {
		return !s.endsWithin(ctx, silence), nil
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if s.endsWithin(ctx, 2*time.Millisecond) {
			return false, nil
		}
		if waits, err := w.waits(ctx, s.id()); waits || err != nil {
			return waits, err
		}
	}
	return false, nil
}

// gone waits until the server has no session with that id.
func (w *watch) gone(ctx context.Context, id uint64, patience time.Duration) {
	if !w.sees {
		time.Sleep(silence)
		return
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if exists, err := w.exists(ctx, id); err != nil || !exists {
			return
		}
	}
}

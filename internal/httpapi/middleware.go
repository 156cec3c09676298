package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/invalid"
)

// A call is what is known of one request, from its first middleware on.
type call struct {
	id        string
	principal string
	body      []byte          // read completely before any work
	left      <-chan struct{} // closed when the caller leaves

	status int    // 0 until there is an answer
	code   string // of the problem, if that was the answer
	err    error  // what the problem was made of
}

type callKey struct{}

// callOf returns the call that identify made for r.
func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

// requestIDs are the ids of others that are taken over: fit for a log, a header
// and a URI.
var requestIDs = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// identify gives the request an id, the caller's own where it is a good one.
func (s *server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{id: r.Header.Get("X-Request-Id")}
		if !requestIDs.MatchString(c.id) {
			c.id = uuid.Must(uuid.NewV7()).String()
		}
		w.Header().Set("X-Request-Id", c.id)
		if s.UnsafeMode != "" {
			w.Header().Set(UnsafeHeader, "mode "+s.UnsafeMode+": concurrent updates are lost, and money with them")
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
	})
}

// A recorder notes the status that is written through it.
type recorder struct {
	http.ResponseWriter
	call *call
}

func (w *recorder) WriteHeader(status int) {
	if w.call.status == 0 {
		w.call.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.call.status == 0 {
		w.call.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// observe writes the one log line of a request and tells Observe of it. It
// stands around recoverPanics, so that it sees the answer to a panic, too.
func (s *server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		c := callOf(r)
		defer func() { s.record(r, c, time.Since(start)) }() // also where the connection is cut
		next.ServeHTTP(&recorder{w, c}, r)
		if c.status == 0 {
			c.status = http.StatusOK // as net/http will have it
		}
	})
}

func (s *server) record(r *http.Request, c *call, took time.Duration) {
	o := Observation{Method: r.Method, Route: chi.RouteContext(r.Context()).RoutePattern(), Status: c.status, Code: c.code, Duration: took}
	if !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}, o.Method) {
		o.Method = "OTHER"
	}
	if errors.Is(c.err, errNotFound) || errors.Is(c.err, errMethodNotAllowed) || o.Route == "" {
		o.Route = "unmatched"
	}
	s.Observe(o)

	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("request_id", c.id), slog.String("method", o.Method), slog.String("route", o.Route),
		slog.String("path", clip(r.URL.Path)), slog.Int("status", o.Status), slog.Duration("duration", took),
	}
	if c.principal != "" {
		attrs = append(attrs, slog.String("principal", c.principal))
	}
	if c.code != "" {
		attrs = append(attrs, slog.String("code", c.code))
	}
	switch {
	case c.status >= http.StatusInternalServerError:
		level = slog.LevelError
		attrs = append(attrs, slog.Any("error", c.err))
	case !strings.HasPrefix(o.Route, "/v1/") && c.status < http.StatusBadRequest:
		level = slog.LevelDebug // probes and scrapes would drown the rest
	}
	s.Logger.LogAttrs(r.Context(), level, "request", attrs...)
}

// recoverPanics makes a panic an internal error, whose text the log has.
func recoverPanics(next http.Handler) http.Handler {
	return handle(func(w http.ResponseWriter, r *http.Request) (err error) {
		defer func() {
			switch v := recover(); v {
			case nil:
			case http.ErrAbortHandler:
				panic(v)
			default:
				err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
				if c := callOf(r); c.status != 0 { // half an answer is out: no other can follow
					c.status, c.err = http.StatusInternalServerError, err
					panic(http.ErrAbortHandler)
				}
			}
		}()
		next.ServeHTTP(w, r)
		return nil
	})
}

// slots are the places for what may be at work at once.
type slots chan struct{}

// take reports whether there was a place, which is then taken until leave.
func (s slots) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) leave() { <-s }

// limitInFlight answers at once what would be one request too many: a queue
// would make all of them late.
func (s *server) limitInFlight() func(http.Handler) http.Handler {
	requests := make(slots, s.MaxInFlight)
	return func(next http.Handler) http.Handler {
		return handle(func(w http.ResponseWriter, r *http.Request) error {
			if !requests.take() {
				return errOverloaded
			}
			defer requests.leave()
			next.ServeHTTP(w, r)
			return nil
		})
	}
}

// refuseOtherOrigins keeps web pages of elsewhere from using a browser that can
// reach this server, which needs no token where there is no token file.
func (s *server) refuseOtherOrigins(next http.Handler) http.Handler {
	return handle(func(w http.ResponseWriter, r *http.Request) error {
		if err := s.origins.Check(r); err != nil {
			return errForbidden
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// authenticate finds out who calls.
func (s *server) authenticate(next http.Handler) http.Handler {
	return handle(func(w http.ResponseWriter, r *http.Request) error {
		if s.Tokens != nil {
			token, ok := bearer(r.Header)
			if !ok {
				w.Header().Set("WWW-Authenticate", `Bearer realm="ledger"`)
				return errUnauthenticated
			}
			principal, ok := s.Tokens.Principal(token)
			if !ok {
				w.Header().Set("WWW-Authenticate", `Bearer realm="ledger", error="invalid_token"`)
				return errUnauthenticated
			}
			callOf(r).principal = principal
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

func bearer(h http.Header) (token string, ok bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	return token, ok && strings.EqualFold(scheme, "Bearer")
}

// readBody reads the body, of at most so many bytes, before any work begins: a
// slow caller must not hold a database connection. The time it has is that of a
// request.
func (s *server) readBody(most int64) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler { return s.readingBody(next, most) }
}

func (s *server) readingBody(next http.Handler, most int64) http.Handler {
	return handle(func(w http.ResponseWriter, r *http.Request) error {
		if r.Method != http.MethodPost && r.Method != http.MethodPatch { // no other call has a body
			next.ServeHTTP(w, r)
			return nil
		}
		control := http.NewResponseController(w)
		control.SetReadDeadline(time.Now().Add(s.RequestTimeout)) // its error: a connection without deadlines, as in tests
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
		if err != nil {
			// The deadline stays: what is left of the body may not take longer.
			w.Header().Set("Connection", "close")
			return bodyError(err)
		}
		control.SetReadDeadline(time.Time{})
		callOf(r).body = body
		next.ServeHTTP(w, r)
		return nil
	})
}

func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return errPayloadTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errRequestTimeout
	}
	return &invalid.Error{Faults: []invalid.Fault{{Field: bodyField, Detail: "could not be read to its end"}}}
}

// statusLeft is logged for a caller who left before the work began.
const statusLeft = 499

// detach gives the work a deadline of its own. It does not end when the caller
// leaves: that would cut a database connection in the middle of a statement.
// Whoever has left by now is dropped.
func (s *server) detach(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Err() != nil {
			callOf(r).status = statusLeft
			panic(http.ErrAbortHandler) // an empty answer would be a success
		}
		callOf(r).left = r.Context().Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.RequestTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

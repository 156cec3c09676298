// Package httpapi is the ledger's HTTP interface, as api/openapi.yaml promises
// it. Its one idea: a handler returns its error, and one table, in problem.go,
// turns errors into problems; nothing else decides a status. Start reading at
// the list of all routes, in routes.go.
package httpapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/transfer"
)

// Config is what the interface is made of. Accounts, Transfers and Payments are
// needed; everything else has a default.
type Config struct {
	Accounts  *accounts.Service
	Transfers *transfer.Service
	Payments  *payment.Service

	// Tokens are the callers. Nil asks nobody who they are: all share the
	// principal "".
	Tokens *Tokens

	// Ready proves that a write would work. It must obey its context. Nil is
	// always ready.
	Ready func(context.Context) error

	// Stopping is closed when the service begins to stop: it is not ready from
	// then on. Nil never stops.
	Stopping <-chan struct{}

	Metrics http.Handler      // nil: none are served
	Observe func(Observation) // called after each request; may be nil
	Logger  *slog.Logger      // nil discards

	RequestTimeout time.Duration // for the body to arrive, and then for the work; 0 means 10 s
	MaxInFlight    int           // more requests than that are answered early; 0 means 1024
	MaxBody        int64         // bytes; 0 means 64 KiB

	// UnsafeMode names the mode, if it is one that loses money: every answer
	// then says so in a header, [UnsafeHeader].
	UnsafeMode string
}

// UnsafeHeader is a header of every answer of a ledger that loses money.
const UnsafeHeader = "Warning-Loses-Money"

// An Observation is a request that was answered. All its strings are bounded:
// they are fit to be labels.
type Observation struct {
	Method   string // "OTHER" for one that HTTP does not define
	Route    string // its pattern, "/v1/accounts/{id}"; "unmatched" where there is none
	Status   int    // 499: the caller left before the work began
	Code     string // of the problem; "" for none
	Duration time.Duration
}

// server is Config with its defaults, and what the handlers share.
type server struct {
	Config
	readiness readiness
	origins   *http.CrossOriginProtection
	streams   slots // a stream has one beside its place among the requests
}

// New makes the handler of all routes.
func New(c Config) http.Handler { return newServer(c).routes() }

func newServer(c Config) *server {
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 1024)
	c.MaxBody = cmp.Or(c.MaxBody, 64<<10)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = func(Observation) {}
	}
	if c.Ready == nil {
		c.Ready = func(context.Context) error { return nil }
	}
	if c.Metrics == nil {
		c.Metrics = handle(notFound)
	}
	s := &server{Config: c, origins: http.NewCrossOriginProtection(), streams: make(slots, max(1, c.MaxInFlight/streamShare))}
	s.readiness.check = c.Ready
	return s
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/httpapi"
	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/telemetry"
	"github.com/rowlock/ledger/internal/transfer"
)

type serveCmd struct {
	Listen         string        `help:"Address to serve on." default:"127.0.0.1:8080"`
	TokenFile      string        `help:"Callers' bearer tokens, one \"name sha256\" a line; read again on SIGHUP." placeholder:"FILE"`
	InsecureNoAuth bool          `help:"Serve without tokens on an address that others can reach."`
	ShutdownDelay  time.Duration `help:"Time between being not ready and refusing connections, for load balancers to notice." default:"0s"`
	StopTimeout    time.Duration `help:"Time for requests to finish at the end." default:"15s"`
	PprofAddr      string        `help:"Loopback address to serve Go profiles on. Default: none." placeholder:"ADDR"`
	LogLevel       slog.Level    `help:"Least level to log: debug, info, warn, error." default:"info"`

	Migrate            bool   `help:"Migrate the database first; with --migrate=false, wait until somebody has." default:"true" negatable:""`
	MigrateDatabaseURL string `help:"Database URL for migrating, where it differs: another role, or past a pooler." placeholder:"URL"`

	databaseFlags
	serviceFlags
}

// Run serves until ctx ends, and stops in order: not ready, no new
// connections, requests finished, pool closed, private server stopped.
func (c *serveCmd) Run(ctx context.Context, con *console) (err error) {
	if err := errors.Join(c.check(), c.checkListen()); err != nil {
		return err
	}
	logger := telemetry.NewLogger(con.stderr, c.LogLevel)
	tokens, err := c.loadTokens()
	if err != nil {
		return err
	}
	d, err := c.databaseFlags.open(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(logger)) }()
	if c.Migrate {
		err := postgres.Migrate(ctx, cmp.Or(c.MigrateDatabaseURL, d.url), logger)
		if ctx.Err() != nil {
			logger.Info("stopped before it served")
			return nil
		}
		if err != nil {
			return err
		}
	}
	metrics := telemetry.NewMetrics()
	db, err := postgres.Open(ctx, postgres.Config{
		URL: d.url, PoolSize: c.PoolSize, AcquireTimeout: c.AcquireTimeout, Pooler: postgres.Pooler(c.Pooler),
	})
	if err != nil {
		return err
	}
	defer db.Close()
	metrics.WatchPool(db)

	s := &service{stopping: make(chan struct{}), cmd: c, db: db, metrics: metrics, logger: logger, policy: c.policy(metrics.Conflict(c.Mode))}
	server := s.newServer(tokens)
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	logger.Info("listening", "address", listener.Addr().String(), "mode", c.Mode, "database", redact(d.url))
	if s.mode().LosesMoney {
		logger.Warn("this mode loses money under contention: for demonstrations only", "mode", c.Mode)
	}
	printHints(con.stdout, listener.Addr().String(), d)

	if c.PprofAddr != "" {
		stopProfiles, err := serveProfiles(c.PprofAddr, logger)
		if err != nil {
			return err
		}
		defer stopProfiles()
	}
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	go s.sweepKeys(background)
	go reloadTokens(background, tokens, logger)

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-d.exited():
		err = errors.New("the private PostgreSQL server has ended")
	case <-ctx.Done():
		logger.Info("stopping")
	}
	return errors.Join(err, s.drain(server))
}

// A service is what is at work while serving.
type service struct {
	cmd      *serveCmd
	db       *postgres.DB
	metrics  *telemetry.Metrics
	logger   *slog.Logger
	policy   retry.Policy
	stopping chan struct{}
	migrated atomic.Bool
}

func (s *service) mode() *transfer.Mode {
	mode, err := transfer.ModeByName(s.cmd.Mode)
	if err != nil {
		panic(err) // it was checked
	}
	return mode
}

// newServer makes the HTTP server. Its own limits are against slow clients: a
// request's deadline is the handler's.
func (s *service) newServer(tokens *httpapi.Tokens) *http.Server {
	mode := s.mode()
	transfers := transfer.New(s.db, mode, s.cmd.locking(), s.policy)
	if grouping := s.cmd.grouping(s.metrics.Group); grouping != nil {
		transfers = transfers.Grouped(*grouping)
	}
	config := httpapi.Config{
		Accounts:       accounts.New(s.db, s.policy),
		Transfers:      transfers,
		Tokens:         tokens,
		Ready:          s.ready,
		Stopping:       s.stopping,
		Metrics:        s.metrics.Handler(),
		Logger:         s.logger,
		RequestTimeout: s.cmd.RequestTimeout,
		MaxInFlight:    s.cmd.MaxInFlight,
		Observe: func(o httpapi.Observation) {
			s.metrics.Request(o.Method, o.Route, o.Status, o.Code, o.Duration)
		},
	}
	if mode.LosesMoney {
		config.UnsafeMode = mode.Name
	}
	return &http.Server{
		Handler:           httpapi.New(config),
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       2 * readTimeout,
		WriteTimeout:      2*readTimeout + s.cmd.RequestTimeout + time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
}

// readTimeout is the time for a request's header; its body has as much again.
const readTimeout = 5 * time.Second

// ready returns nil when a request that moves money would succeed.
func (s *service) ready(ctx context.Context) error {
	if !s.migrated.Load() {
		if err := postgres.Migrated(ctx, s.db, s.policy); err != nil {
			return err
		}
		s.migrated.Store(true)
	}
	return idempotency.Probe(ctx, s.db, s.policy)
}

// drain finishes what has begun and lets nothing begin.
func (s *service) drain(server *http.Server) error {
	close(s.stopping)
	time.Sleep(s.cmd.ShutdownDelay)
	ctx, cancel := context.WithTimeout(context.Background(), s.cmd.StopTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		server.Close()
		return fmt.Errorf("requests were still at work after %v: %w", s.cmd.StopTimeout, err)
	}
	s.logger.Info("stopped")
	return nil
}

// sweepKeys removes expired idempotency keys, in small bites.
func (s *service) sweepKeys(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(sweepInterval):
		}
		for more := true; more && ctx.Err() == nil; {
			n, err := idempotency.Sweep(ctx, s.db, s.policy, s.cmd.IdempotencyTTL, sweepBite)
			if err != nil {
				s.logger.Warn("expired idempotency keys were not removed", "error", err)
			}
			s.metrics.Swept(n)
			more = n == sweepBite
		}
	}
}

const (
	sweepInterval = time.Minute
	sweepBite     = 1000
)

func (c *serveCmd) checkListen() error {
	if err := checkListen("--listen", c.Listen, c.TokenFile != "" || c.InsecureNoAuth); err != nil {
		return fmt.Errorf("%w: admit callers with --token-file, or all of them with --insecure-no-auth", err)
	}
	return nil
}

func (c *serveCmd) loadTokens() (*httpapi.Tokens, error) {
	if c.TokenFile == "" {
		return nil, nil
	}
	return httpapi.LoadTokens(c.TokenFile)
}

// reloadTokens reads the token file again on every SIGHUP. A file with a
// mistake changes nothing.
func reloadTokens(ctx context.Context, tokens *httpapi.Tokens, logger *slog.Logger) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		}
		if tokens == nil {
			continue
		}
		if err := tokens.Reload(); err != nil {
			logger.Error("the token file was not read again; the tokens stay as they were", "error", err)
			continue
		}
		logger.Info("token file read again")
	}
}

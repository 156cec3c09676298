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
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/httpapi"
	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/payment"
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
	workerFlags
}

// Run serves until ctx ends, and stops in order: not ready, no new connections,
// requests finished, workers finished, pool closed, private server stopped.
func (c *serveCmd) Run(ctx context.Context, con *console) (err error) {
	if err := errors.Join(c.serviceFlags.check(), c.workerFlags.check(), c.checkWorkers(c.Workers), c.checkListen(), c.checkStop()); err != nil {
		return err
	}
	ctx, hangups, stopHangups := c.watchHangups(ctx)
	defer stopHangups()
	logger := telemetry.NewLogger(con.stderr, c.LogLevel)
	logger.Info("configuration", "flags", c.serviceFlags, "payments", c.workerFlags.forLog(), "listen", c.Listen, "stop_timeout", c.StopTimeout)
	tokens, err := c.loadTokens()
	if err != nil {
		return err
	}
	decide, err := c.decide()
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
	p := &payroll{
		workerFlags: c.workerFlags, transactionFlags: c.transactionFlags, decide: decide, url: d.url,
		metrics: metrics, logger: logger, bell: payment.NewBell(),
	}
	warnOfConnections(ctx, db, p.connections(), c.policy(nil), logger)

	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	s := &service{stopping: make(chan struct{}), cmd: c, db: db, metrics: metrics, logger: logger, policy: c.policy(metrics.Conflict(c.Mode)), queued: p.bell.Ring}
	s.transfers = s.newTransfers()
	if c.PprofAddr != "" {
		stopProfiles, err := serveProfiles(c.PprofAddr, logger)
		if err != nil {
			return err
		}
		defer stopProfiles()
	}
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	working := make(chan error, 1)
	go func() { working <- p.run(background) }()
	defer func() {
		stopBackground()
		err = errors.Join(err, <-working)
	}()
	go s.sweepKeys(background)
	go s.sweepHolds(background)
	go s.watchFeed(background)
	go reloadTokens(background, hangups, tokens, logger)
	return s.serve(ctx, con, d, tokens)
}

// A service is what is at work while serving.
type service struct {
	cmd       *serveCmd
	db        *postgres.DB
	metrics   *telemetry.Metrics
	logger    *slog.Logger
	policy    retry.Policy
	transfers *transfer.Service
	queued    func() // a payment may be due
	stopping  chan struct{}
	migrated  atomic.Bool
}

// serve answers requests until ctx ends, and finishes those that have begun.
func (s *service) serve(ctx context.Context, con *console, d *database, tokens *httpapi.Tokens) (err error) {
	listener, err := net.Listen("tcp", s.cmd.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.logger.Info("listening", "address", listener.Addr().String(), "mode", s.cmd.Mode, "database", redact(d.url))
	if s.mode().LosesMoney {
		s.logger.Warn("this mode loses money under contention: for demonstrations only", "mode", s.cmd.Mode)
	}
	printHints(con.stdout, listener.Addr().String(), d, tokens != nil)

	server := s.newServer(tokens)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-d.exited():
		err = errors.New("the private PostgreSQL server has ended")
	case <-ctx.Done():
		s.logger.Info("stopping")
	}
	return errors.Join(err, s.drain(server))
}

func (s *service) mode() *transfer.Mode {
	mode, err := transfer.ModeByName(s.cmd.Mode)
	if err != nil {
		panic(err) // it was checked
	}
	return mode
}

// newTransfers makes what moves the money, as the flags say.
func (s *service) newTransfers() *transfer.Service {
	transfers := transfer.New(s.db, s.mode(), s.cmd.locking(), s.policy)
	if grouping := s.cmd.grouping(s.metrics.Group); grouping != nil {
		transfers = transfers.Grouped(*grouping)
	}
	s.metrics.WatchTransfers(transfers.Waiting)
	return transfers
}

// newServer makes the HTTP server. Its own limits are against slow clients: a
// request's deadline is the handler's.
func (s *service) newServer(tokens *httpapi.Tokens) *http.Server {
	config := httpapi.Config{
		Accounts:       accounts.New(s.db, s.policy),
		Transfers:      s.transfers,
		Payments:       payment.New(s.db, s.policy, s.queued),
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
	if mode := s.mode(); mode.LosesMoney {
		config.UnsafeMode = mode.Name
	}
	return &http.Server{
		Handler:           httpapi.New(config),
		ReadHeaderTimeout: readTimeout,
		WriteTimeout:      readTimeout + 2*s.cmd.RequestTimeout + time.Second, // a body may take as long as its request
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
}

// gcPercent trades memory, of which little is in use, for time: docs/benchmarks.md
// has what both come to.
const gcPercent = 400

// readTimeout is the time for a request's header. Its body's is the handler's.
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

// warnOfConnections says so where the server admits fewer connections than the
// pool and some others may want. A database that does not answer yet is none of its business.
func warnOfConnections(ctx context.Context, db *postgres.DB, others int, policy retry.Policy, logger *slog.Logger) {
	policy.Attempts = 1
	admitted, err := postgres.MaxConnections(ctx, db, policy)
	if want := int(db.Config().MaxConns) + others; err == nil && want > admitted {
		logger.Warn("the service may want more connections than the server admits; replicas add up",
			"wanted", want, "server_admits", admitted)
	}
}

func (c *serveCmd) checkListen() error {
	if err := checkListen("--listen", c.Listen, c.TokenFile != "" || c.InsecureNoAuth); err != nil {
		return fmt.Errorf("%w: admit callers with --token-file, or all of them with --insecure-no-auth", err)
	}
	return nil
}

// checkStop refuses a stop that would cut requests.
func (c *serveCmd) checkStop() error {
	if c.StopTimeout < c.RequestTimeout || c.ShutdownDelay < 0 {
		return fmt.Errorf("--stop-timeout (%v) must not be shorter than --request-timeout (%v), nor --shutdown-delay (%v) negative",
			c.StopTimeout, c.RequestTimeout, c.ShutdownDelay)
	}
	return nil
}

func (c *serveCmd) loadTokens() (*httpapi.Tokens, error) {
	if c.TokenFile == "" {
		return nil, nil
	}
	return httpapi.LoadTokens(c.TokenFile)
}

// watchHangups makes SIGHUP mean "read the token file again" where there is
// one, and otherwise what a closed terminal means: stop.
func (c *serveCmd) watchHangups(ctx context.Context) (context.Context, <-chan os.Signal, func()) {
	if c.TokenFile == "" {
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
		return ctx, nil, stop
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return ctx, hangups, func() { signal.Stop(hangups) }
}

// reloadTokens reads the token file again on every hangup. A file with a
// mistake changes nothing.
func reloadTokens(ctx context.Context, hangups <-chan os.Signal, tokens *httpapi.Tokens, logger *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		if err := tokens.Reload(); err != nil {
			logger.Error("the token file was not read again; the tokens stay as they were", "error", err)
			continue
		}
		logger.Info("token file read again")
	}
}

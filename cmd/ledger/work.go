package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/telemetry"
)

type workCmd struct {
	MetricsAddr string     `help:"Address to serve /metrics on. Default: none." placeholder:"ADDR"`
	LogLevel    slog.Level `help:"Least level to log: debug, info, warn, error." default:"info"`

	DatabaseURL string `help:"The ledger's PostgreSQL, as a URL or DSN." placeholder:"URL" required:""`

	workerFlags
	transactionFlags
}

// Run makes queued payments until ctx ends, and finishes or gives back what has
// begun. It waits until somebody has migrated the database.
func (c *workCmd) Run(ctx context.Context, con *console) (err error) {
	if err := errors.Join(c.workerFlags.check(), c.transactionFlags.check(), c.checkWorkers(c.Workers), c.checkWork()); err != nil {
		return err
	}
	decide, err := c.decide()
	if err != nil {
		return err
	}
	logger := telemetry.NewLogger(con.stderr, c.LogLevel)
	logger.Info("configuration", "workers", c.workerFlags.forLog(), "transactions", c.transactionFlags)
	metrics := telemetry.NewMetrics()
	if c.MetricsAddr != "" {
		stop, err := serveMetrics(c.MetricsAddr, metrics, logger)
		if err != nil {
			return err
		}
		defer stop()
	}
	p := &payroll{
		workerFlags: c.workerFlags, transactionFlags: c.transactionFlags, decide: decide, url: c.DatabaseURL,
		metrics: metrics, logger: logger, bell: payment.NewBell(),
	}
	logger.Info("working", "workers", c.Workers, "database", redact(c.DatabaseURL))
	err = p.run(ctx)
	logger.Info("stopped")
	return err
}

// checkWork refuses what would make nothing.
func (c *workCmd) checkWork() error {
	if c.Workers == 0 {
		return errors.New("--workers must be at least 1")
	}
	return nil
}

// serveMetrics serves /metrics and nothing else.
func serveMetrics(address string, metrics *telemetry.Metrics, logger *slog.Logger) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: readTimeout, WriteTimeout: time.Minute, IdleTimeout: time.Minute}
	go server.Serve(listener) // its error: it was closed
	logger.Info("serving metrics", "address", listener.Addr().String())
	return func() { server.Close() }, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/paymenthook"
	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/telemetry"
)

// workerFlags are how queued payments are made.
type workerFlags struct {
	Workers         int           `help:"Workers that make queued payments in this process; 0: none." default:"2"`
	PaymentGroup    int           `help:"Payments that a worker makes in one transaction, at most." default:"100"`
	PaymentPoll     time.Duration `help:"Time between two looks into a queue that was empty, if nobody calls." default:"1s"`
	PaymentMinPause time.Duration `help:"Least bound of the pause before another attempt at a refused payment; it doubles." default:"10s"`
	PaymentMaxPause time.Duration `help:"Greatest bound of that pause." default:"1h"`

	PaymentHook           string        `help:"URL that is asked before each payment whether it may be made. Every process of a ledger needs the same." placeholder:"URL"`
	PaymentHookSecretFile string        `help:"Secrets that sign what the hook is asked, one \"whsec_...\" a line." placeholder:"FILE"`
	PaymentHookTimeout    time.Duration `help:"Time for the hook to answer." default:"10s"`
	PaymentLease          time.Duration `help:"Time after which a payment whose worker died while the hook was asked is tried again." default:"30s"`
}

// check returns what is wrong with the flags, all of it.
func (f workerFlags) check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if f.Workers < 0 || f.Workers > maxWorkers {
		fail("--workers must be 0 to %d", maxWorkers)
	}
	if f.PaymentGroup < 1 || f.PaymentGroup > maxGroupSize {
		fail("--payment-group must be 1 to %d", maxGroupSize)
	}
	if f.PaymentPoll < 10*time.Millisecond {
		fail("--payment-poll (%v) must be at least 10ms", f.PaymentPoll)
	}
	if f.PaymentMinPause <= 0 || f.PaymentMaxPause < f.PaymentMinPause {
		fail("--payment-min-pause (%v) must be positive and not longer than --payment-max-pause (%v)", f.PaymentMinPause, f.PaymentMaxPause)
	}
	if f.PaymentLease < 3*time.Second {
		fail("--payment-lease (%v) must be at least 3s", f.PaymentLease)
	}
	if f.PaymentHookTimeout <= 0 {
		fail("--payment-hook-timeout must be positive")
	}
	if (f.PaymentHook == "") != (f.PaymentHookSecretFile == "") {
		fail("--payment-hook and --payment-hook-secret-file need each other")
	}
	return errors.Join(errs...)
}

const maxWorkers = 1000

// decide is the hook; nil where there is none.
func (f workerFlags) decide() (payment.Decide, error) {
	if f.PaymentHook == "" {
		return nil, nil
	}
	secrets, err := paymenthook.LoadSecrets(f.PaymentHookSecretFile)
	if err != nil {
		return nil, err
	}
	hook, err := paymenthook.New(paymenthook.Config{URL: f.PaymentHook, Secrets: secrets, Timeout: f.PaymentHookTimeout})
	if err != nil {
		return nil, err
	}
	return hook.Ask, nil
}

// A payroll is what makes queued payments in this process.
type payroll struct {
	workerFlags
	transactionFlags
	decide  payment.Decide
	url     string
	db      *postgres.DB
	metrics *telemetry.Metrics
	logger  *slog.Logger
	bell    *payment.Bell
}

// connections is how many the payroll has besides the pool.
func (p *payroll) connections() (n int) {
	if p.Workers > 0 && p.listens() {
		n++
	}
	if p.Workers > 0 && p.decide != nil {
		n++
	}
	return n
}

// listens reports whether the database's sessions are ours, as LISTEN needs.
func (p *payroll) listens() bool { return p.Pooler == string(postgres.NoPooler) }

// run makes payments until ctx ends, and returns when nothing is left half done.
// Other processes are told of what is queued here even without workers.
func (p *payroll) run(ctx context.Context) error {
	policy := p.policy(p.metrics.Conflict("payments"))
	hooks := p.metrics.WatchPayments(p.logger)
	var background sync.WaitGroup
	defer background.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	background.Go(func() { p.bell.Notify(ctx, p.db, policy, hooks.OnError) })
	if p.Workers == 0 {
		<-ctx.Done()
		return nil
	}
	work := payment.Work{
		Name: processName(), Workers: p.Workers, Timeout: p.RequestTimeout, Poll: p.PaymentPoll,
		Pause: payment.Pause{Min: p.PaymentMinPause, Max: p.PaymentMaxPause},
		Group: p.PaymentGroup, LockWait: p.GroupLockWait,
		Decide: p.decide, Lease: p.PaymentLease, Hooks: hooks,
	}
	var beats retry.Beginner
	if p.decide != nil {
		db, err := postgres.Open(ctx, postgres.Config{
			URL: p.url, PoolSize: 1, AcquireTimeout: p.AcquireTimeout, Pooler: postgres.Pooler(p.Pooler), ApplicationName: "ledger-heartbeat",
		})
		if err != nil {
			return err
		}
		defer db.Close()
		beats = db
	}
	if p.listens() {
		background.Go(func() { p.bell.Listen(ctx, p.connect, hooks.OnError) })
	} else {
		p.logger.Info("behind a pooler nobody can listen: payments of other processes are found by polling", "payment_poll", p.PaymentPoll)
	}
	if p.awaitSchema(ctx, policy) == nil {
		payment.NewWorkers(p.db, beats, policy, p.bell, work).Run(ctx)
	}
	return nil
}

// awaitSchema returns nil when somebody has migrated the database.
func (p *payroll) awaitSchema(ctx context.Context, policy retry.Policy) error {
	for postgres.Migrated(ctx, p.db, policy) != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(p.PaymentPoll):
		}
	}
	return nil
}

// connect makes a connection to listen on.
func (p *payroll) connect(ctx context.Context) (*pgx.Conn, error) {
	config := p.db.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "ledger-listener"
	return pgx.ConnectConfig(ctx, config)
}

// processName is one that no other process has.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), uuid.NewString())
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
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
	PaymentLockWait time.Duration `help:"Time for which that transaction waits for an account that somebody else keeps locked, before it goes on without it." default:"500ms"`
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
	if f.PaymentLockWait <= 0 {
		fail("--payment-lock-wait must be positive")
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

// forLog is f without what is nobody's business: the hook's address may have a
// secret in its query.
func (f workerFlags) forLog() workerFlags {
	if u, err := url.Parse(f.PaymentHook); err == nil && f.PaymentHook != "" {
		f.PaymentHook = u.Scheme + "://" + u.Host
	}
	return f
}

// A payroll is what makes queued payments in this process.
type payroll struct {
	workerFlags
	transactionFlags
	decide  payment.Decide
	url     string
	metrics *telemetry.Metrics
	logger  *slog.Logger
	bell    *payment.Bell
}

// connections is how many the payroll wants.
func (p *payroll) connections() int {
	n := p.poolSize()
	if p.Workers > 0 && p.listens() {
		n++
	}
	if p.Workers > 0 && p.decide != nil {
		n++
	}
	return n
}

// poolSize is one for each worker and one for the house, as far as --pool-size
// goes. The pool is the payroll's own: neither do requests wait for workers, nor
// workers for requests.
func (p *payroll) poolSize() int { return min(p.Workers+1, p.PoolSize) }

func (p *payroll) open(ctx context.Context, size int, name string) (*postgres.DB, error) {
	return postgres.Open(ctx, postgres.Config{
		URL: p.url, PoolSize: size, AcquireTimeout: p.AcquireTimeout, Pooler: postgres.Pooler(p.Pooler), ApplicationName: name,
	})
}

// listens reports whether the database's sessions are ours, as LISTEN needs.
func (p *payroll) listens() bool { return p.Pooler == string(postgres.NoPooler) }

// run makes payments until ctx ends, and returns when nothing is left half done.
// Other processes are told of what is queued here even without workers.
func (p *payroll) run(ctx context.Context) error {
	db, err := p.open(ctx, p.poolSize(), "ledger-workers")
	if err != nil {
		return err
	}
	defer db.Close()
	policy := p.policy(p.metrics.Conflict("payments"))
	var background sync.WaitGroup
	defer background.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	background.Go(func() { p.bell.Notify(ctx, db, policy, p.warn) })
	if p.Workers == 0 {
		<-ctx.Done()
		return nil
	}
	work := payment.Work{
		Name: processName(), Workers: p.Workers, Timeout: p.RequestTimeout, Poll: p.PaymentPoll, Housekeeping: housekeeping,
		Pause: payment.Pause{Min: p.PaymentMinPause, Max: p.PaymentMaxPause},
		Group: p.PaymentGroup, LockWait: p.PaymentLockWait,
		Decide: p.decide, Lease: p.PaymentLease, Hooks: p.metrics.WatchPayments(p.warn),
	}
	var beats retry.Beginner
	if p.decide != nil {
		one, err := p.open(ctx, 1, "ledger-heartbeat")
		if err != nil {
			return err
		}
		defer one.Close()
		beats = one
	}
	if p.listens() {
		connect := func(ctx context.Context) (*pgx.Conn, error) {
			config := db.Config().ConnConfig.Copy()
			config.RuntimeParams["application_name"] = "ledger-listener"
			return pgx.ConnectConfig(ctx, config)
		}
		background.Go(func() { p.bell.Listen(ctx, connect, p.warn) })
	} else {
		p.logger.Info("behind a pooler nobody can listen: payments of other processes are found by polling", "payment_poll", p.PaymentPoll)
	}
	if p.awaitSchema(ctx, db, policy) {
		payment.NewWorkers(db, beats, policy, p.bell, work).Run(ctx)
	}
	return nil
}

// housekeeping is how late a payment may be queued when its time has come.
const housekeeping = time.Second

func (p *payroll) warn(err error) { p.logger.Warn("payments", "error", err) }

// sayEvery is how often the same wait is logged: every so many looks.
const sayEvery = 10

// awaitSchema returns true when somebody has migrated the database, and false
// when ctx has ended. It says what it waits for, now and then.
func (p *payroll) awaitSchema(ctx context.Context, db *postgres.DB, policy retry.Policy) bool {
	for n := 0; ctx.Err() == nil; n++ {
		err := postgres.Migrated(ctx, db, policy)
		if err == nil {
			return true
		}
		if n%sayEvery == 0 {
			p.logger.Warn("workers wait for the database", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(housekeeping):
		}
	}
	return false
}

// processName is one that no other process has.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), uuid.NewString())
}

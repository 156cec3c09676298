package racelab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
	"github.com/rowlock/ledger/internal/verify"
)

// A race is one scenario in one variant of a mode on one database.
type race struct {
	lab      *Lab
	variant  Variant
	mode     *transfer.Mode
	scenario *Scenario
	url      string // of the database
	result   *Result

	name     string // the services' application name
	services []*Service
	client   *client
	db       *postgres.DB // the lab's own connections
	requests []Request
	answers  []answer

	conflicts map[string]int // what the services counted, by SQLSTATE
}

// loses reports whether the race must end with money lost.
func (r *race) loses() bool { return r.mode.LosesMoney && !r.scenario.KeepsAnyway }

// maxFailures is how many failures of one race are listed: what is broken is
// often broken for every request.
const maxFailures = 20

func (r *race) fail(format string, args ...any) {
	switch len(r.result.Failures) {
	case maxFailures:
		format, args = "there are more failures", nil
	case maxFailures + 1:
		return
	}
	r.result.Failures = append(r.result.Failures, fmt.Sprintf(format, args...))
}

// run is the whole race, from an empty database to the judgement. What goes
// wrong is noted as a failure of the result; the error is for the lab's own
// connections and for the end of ctx.
func (r *race) run(ctx context.Context) error {
	if err := r.openDB(ctx); err != nil {
		return err
	}
	defer r.db.Close()
	before, err := selectDeadlocks(ctx, r.db)
	if err != nil {
		return err
	}
	r.name = newName("ledger_race_")
	raced := r.serveAndRace(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	if raced != nil {
		r.fail("%v", raced)
		return nil
	}
	if err := r.checkDeadlocks(ctx, before); err != nil {
		return err
	}
	r.checkConflicts()
	r.checkOutcomes()
	return errors.Join(r.checkStored(ctx), r.checkLedger(ctx))
}

func (r *race) openDB(ctx context.Context) (err error) {
	r.db, err = postgres.Open(ctx, postgres.Config{URL: r.url, PoolSize: 4, AcquireTimeout: 10 * time.Second, ApplicationName: "ledger-racelab"})
	return err
}

// serveAndRace starts the services, races, and stops them.
func (r *race) serveAndRace(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, stopAll(r.services)) }()
	r.client, r.conflicts = newClient(), map[string]int{}
	for range r.scenario.services() {
		service, err := r.lab.Start(ctx, StartOptions{
			Mode:        r.mode.Name,
			DatabaseURL: withParameter(r.url, "application_name", r.name),
			Flags:       slices.Concat(patientFlags(r.scenario.Workers), r.variant.Flags, r.lab.Flags),
		})
		if err != nil {
			return err
		}
		r.services = append(r.services, service)
		r.client.urls = append(r.client.urls, service.URL)
	}
	if err := r.client.open(ctx, r.scenario.Accounts); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	if err := r.throughGate(ctx); err != nil {
		return err
	}
	return r.readMetrics(ctx)
}

// patientFlags let a service wait at the gate for as long as the lab may need,
// and let all workers wait there at once.
func patientFlags(workers int) []string {
	return []string{
		"--request-timeout", "40s", "--stop-timeout", "45s", "--statement-timeout", "30s", "--lock-timeout", "20s",
		"--idle-timeout", "40s", "--acquire-timeout", "10s", "--pool-size", strconv.Itoa(workers + 4),
	}
}

// throughGate sends all requests, and opens the gate when the workers wait
// there.
func (r *race) throughGate(ctx context.Context) error {
	r.requests = r.scenario.Requests(rand.New(rand.NewPCG(r.lab.Seed, uint64(r.result.Round))))
	if len(r.requests) != r.scenario.requests() || len(r.requests) < r.scenario.Workers {
		return fmt.Errorf("scenario %s makes %d requests for %d workers and wants %d answers",
			r.scenario.Name, len(r.requests), r.scenario.Workers, r.scenario.requests())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, err := closeGate(ctx, r.url, r.client.accountIDs(r.scenario.Gate))
	if err != nil {
		return fmt.Errorf("close the gate: %w", err)
	}
	defer g.leave(ctx)
	finished := make(chan error, 1)
	go func() { finished <- r.sendAll(ctx) }()
	if err := r.awaitWaiters(ctx, finished); errors.Is(err, errWentAround) {
		r.fail("%v", err)
		return <-finished
	} else if err != nil {
		cancel()
		<-finished
		return err
	}
	opened := time.Now()
	if err := g.open(ctx); err != nil {
		return fmt.Errorf("open the gate: %w", err)
	}
	err = <-finished
	r.result.Elapsed = time.Since(opened)
	return err
}

// sendAll sends every request, each until its final answer. The first request
// that gets none ends the race.
func (r *race) sendAll(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.answers = make([]answer, len(r.requests))
	next := make(chan int, len(r.requests))
	for i := range r.requests {
		next <- i
	}
	close(next)
	var workers sync.WaitGroup
	for w := range r.scenario.Workers {
		workers.Go(func() {
			for i := range next {
				key := r.requests[i].Key
				if key == "" {
					key = fmt.Sprintf("request-%d", i)
				}
				var err error
				if r.answers[i], err = r.client.transfer(ctx, w, r.requests[i], key); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	workers.Wait()
	r.result.Resent = r.client.resentCodes()
	return context.Cause(ctx)
}

// readMetrics adds up what the services counted.
func (r *race) readMetrics(ctx context.Context) error {
	for _, s := range r.services {
		conflicts, err := readConflicts(ctx, s.URL)
		if err != nil {
			return err
		}
		for sqlstate, n := range conflicts {
			r.conflicts[sqlstate] += n
			r.result.Retries += n
			if sqlstate == deadlockDetected {
				r.result.Deadlocks += n
			}
		}
	}
	return nil
}

// labPolicy is for the lab's own transactions, which contend with nobody.
var labPolicy = retry.Policy{Attempts: 3, MinPause: 10 * time.Millisecond, MaxPause: 100 * time.Millisecond}

// checkLedger verifies the invariants, and judges what was lost.
func (r *race) checkLedger(ctx context.Context) error {
	report, err := verify.Ledger(ctx, r.db, labPolicy)
	if err != nil {
		return fmt.Errorf("verify the ledger: %w", err)
	}
	for _, total := range report.Totals {
		r.result.Lost = r.result.Lost.Add(total.Customers)
		r.result.LostExternal = r.result.LostExternal.Add(total.External)
		r.result.Overwritten = r.result.Overwritten.Add(total.Overwritten)
	}
	r.result.Kept = r.result.Lost.IsZero() && r.result.LostExternal.IsZero() && r.result.Overwritten.IsZero()
	for _, f := range report.Findings {
		if !r.loses() || !lossKinds[f.Kind] {
			r.fail("%s: %s", f.Kind, f.Detail)
		}
	}
	if !r.loses() {
		return nil
	}
	if r.result.Lost.IsZero() {
		r.fail("mode %s lost nothing, though every worker had read before any could write: this suite is blind", r.mode.Name)
	}
	if want := r.scenario.Loses; want != "" && r.result.Lost.StringFixed(2) != want {
		r.fail("mode %s lost %s, want exactly %s", r.mode.Name, r.result.Lost.StringFixed(2), want)
	}
	return nil
}

// lossKinds are what a lost update leaves behind. Keys, places in statements
// and the accounts' limits hold even without locks.
var lossKinds = map[verify.Kind]bool{
	verify.Balance: true, verify.RunningBalance: true, verify.CurrencySum: true, verify.TimeFalls: true,
}

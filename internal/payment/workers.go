package payment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

// Work is how the workers of one process make payments.
type Work struct {
	Name    string        // of the process; no two may have the same at any time
	Workers int           // payments, or groups of them, at work at once
	Timeout time.Duration // for one transaction with its repetitions, or a group and what follows its failure
	Poll    time.Duration // between looks into an empty queue
	Pause   Pause         // between the attempts of one payment

	// Housekeeping is the time between its rounds: how late a payment may come into
	// the queue, or a lease that has ended be noticed.
	Housekeeping time.Duration

	// Without Decide: a group of payments is made in one transaction, which waits
	// for a lock no longer than LockWait.
	Group    int
	LockWait time.Duration

	// With Decide: each worker makes one payment at a time, under a lease that
	// heartbeats prolong.
	Decide Decide
	Lease  time.Duration

	Hooks
}

// Hooks are told what the workers do. All of them are needed.
type Hooks struct {
	OnClaim     func(took time.Duration) // a look into the queue
	OnAttempt   func(code string)        // an attempt that ended; "" with the transfer
	OnLeaseLost func()
	OnOldest    func(time.Duration) // for how long the oldest payment that is due has waited
	OnState     func(State)
	OnError     func(error)
}

// State is how many payments wait, and what makes the queue slow.
type State struct {
	// How many there are, counted up to CountLimit.
	Scheduled, AwaitingApproval, Queued, Processing int64

	// OldestSnapshot is the age of the oldest transaction of the server that
	// holds vacuum back, as far as our role may see.
	OldestSnapshot time.Duration
}

// DefaultLockWait is a [Work.LockWait] that is longer than some commits, for
// which workers that pay from one account take turns, and short enough for those
// whose other accounts a waiting group holds.
const DefaultLockWait = 500 * time.Millisecond

// CountLimit is how far payments are counted.
const CountLimit = 10_000

// Workers make payments.
type Workers struct {
	Work
	db     retry.Beginner
	beats  retry.Beginner // of its own, so that no work delays a heartbeat
	policy retry.Policy
	bell   *Bell
	floors floors
	claims atomic.Int64 // since the floors were last raised
	leases leases
}

// NewWorkers makes workers on db. beats is for heartbeats alone and needs one
// connection; it may be nil without Decide.
func NewWorkers(db, beats retry.Beginner, policy retry.Policy, bell *Bell, work Work) *Workers {
	return &Workers{Work: work, db: db, beats: beats, policy: policy, bell: bell, leases: leases{held: map[uuid.UUID]*lease{}}}
}

// Run makes payments until ctx ends, and returns when what had begun is finished
// or given back. That burns no attempt.
func (w *Workers) Run(ctx context.Context) {
	// What the database is told must not be cut short by the end.
	tell := context.WithoutCancel(ctx)
	var working, keeping sync.WaitGroup
	beating, stopBeating := context.WithCancel(tell)
	defer stopBeating()
	if w.Decide != nil {
		keeping.Go(func() { every(beating, w.Lease/8, func() { w.report(w.beat(beating)) }) })
	}
	house := &house{Workers: w}
	working.Go(func() { every(ctx, w.Housekeeping, func() { w.report(house.keep(tell)) }) })
	working.Go(func() { every(ctx, w.Housekeeping/4, func() { w.report(w.raiseFloors(tell)) }) })
	for i := range w.Work.Workers {
		worker := &worker{Workers: w, holder: fmt.Sprintf("%s/%d", w.Name, i+1), avoid: map[uuid.UUID]time.Time{}}
		working.Go(func() { worker.work(ctx, tell) })
	}
	working.Wait()
	stopBeating()
	keeping.Wait()
}

// every calls f at once, and again whenever that long has passed, until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	for ctx.Err() == nil {
		f()
		sleep(ctx, interval)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (w *Workers) report(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		w.OnError(err)
	}
}

// A worker makes payments, one group or one lease after the other.
type worker struct {
	*Workers
	holder string                  // of its lease
	avoid  map[uuid.UUID]time.Time // accounts that are locked, and until when to leave them alone
}

func (w *worker) work(ctx, tell context.Context) {
	for ctx.Err() == nil {
		n, err := w.once(ctx, tell)
		switch {
		case err != nil:
			w.report(err)
			sleep(ctx, jitter(w.Poll))
		case n >= w.full():
			w.bell.wake() // there may be more than one can take
		case n == 0:
			select {
			case <-ctx.Done():
			case <-w.bell.here:
			case <-time.After(jitter(w.Poll)):
			}
		}
	}
}

// full is how much a worker takes at once.
func (w *worker) full() int {
	if w.Decide != nil {
		return 1
	}
	return w.Group
}

// once does one piece of work, and returns 0 where there was none.
func (w *worker) once(ctx, tell context.Context) (n int, err error) {
	if w.Decide != nil {
		return w.makeLeased(tell, ctx)
	}
	tell, cancel := context.WithTimeout(tell, w.Timeout)
	defer cancel()
	return w.makeGroup(tell)
}

// tell tells how attempts ended. One that was given back as if it had not begun
// is none.
func (w *Workers) tell(outcomes []outcome) {
	for _, o := range outcomes {
		if o.status != Queued {
			w.OnAttempt(o.code)
		}
	}
}

func (w *Workers) timeClaim() func() {
	began := time.Now()
	return func() {
		w.claims.Add(1)
		w.OnClaim(time.Since(began))
	}
}

// raiseFloors raises them between two rounds of housekeeping, where there is
// much to do: meanwhile claims walk over what is finished.
func (w *Workers) raiseFloors(ctx context.Context) error {
	if w.claims.Swap(0) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	_, err := retry.Tx(ctx, w.db, readOnly, w.policy, func(ctx context.Context, tx pgx.Tx) (time.Duration, error) {
		return w.floors.raise(ctx, tx, false)
	})
	return err
}

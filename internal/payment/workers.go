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
	Timeout time.Duration // for one transaction with its repetitions
	Poll    time.Duration // between looks into an empty queue, and at the clock
	Pause   Pause         // between the attempts of one payment

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
	OnQueue     func(State)
	OnError     func(error)
}

// State is what the queue looks like now.
type State struct {
	Oldest time.Duration // for how long the oldest payment that is due has waited

	// How many there are, counted up to CountLimit.
	Scheduled, AwaitingApproval, Queued, Processing int64

	// OldestSnapshot is the age of the oldest transaction of the server that
	// holds vacuum back, as far as our role may see.
	OldestSnapshot time.Duration
}

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
	rounds int          // of housekeeping
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
	working.Go(func() { every(ctx, w.Poll, func() { w.report(w.keepHouse(tell)) }) })
	working.Go(func() { every(ctx, w.Poll/4, func() { w.report(w.raiseFloors(tell)) }) })
	for i := range w.Workers {
		holder := fmt.Sprintf("%s/%d", w.Name, i+1)
		working.Go(func() { w.work(ctx, tell, holder) })
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

// work is one worker.
func (w *Workers) work(ctx, tell context.Context, holder string) {
	for ctx.Err() == nil {
		n, err := w.once(ctx, tell, holder)
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
func (w *Workers) full() int {
	if w.Decide != nil {
		return 1
	}
	return w.Group
}

// once does one piece of work, and returns 0 where there was none.
func (w *Workers) once(ctx, tell context.Context, holder string) (n int, err error) {
	if w.Decide != nil {
		return w.makeLeased(tell, ctx, holder)
	}
	tell, cancel := context.WithTimeout(tell, w.Timeout)
	defer cancel()
	return w.makeGroup(tell)
}

// tell tells what became of payments.
func (w *Workers) tell(outcomes []outcome) {
	for _, o := range outcomes {
		w.OnAttempt(o.code)
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

// lookFromStart is how often the whole queue is looked at: every so many rounds.
const lookFromStart = 10

// keepHouse does what is nobody's payment: it puts what is due into the queue,
// takes back what dead workers had, and looks at the queue.
func (w *Workers) keepHouse(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	moved, err := w.promote(ctx)
	if err == nil {
		err = w.reap(ctx)
	}
	if moved {
		w.bell.wake()
	}
	if err != nil {
		return err
	}
	fromStart := w.rounds%lookFromStart == 0
	w.rounds++
	_, err = retry.Tx(ctx, w.db, readOnly, w.policy, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		oldest, err := w.floors.raise(ctx, tx, fromStart)
		if err != nil {
			return struct{}{}, err
		}
		state, err := selectState(ctx, tx)
		state.Oldest = oldest
		if err == nil {
			w.OnQueue(state)
		}
		return struct{}{}, err
	})
	return err
}

// The bound is now() and not clock_timestamp(), which no index could end a scan at.
const promoteDueSQL = `
	WITH due AS MATERIALIZED (
	  SELECT id
	    FROM payments
	   WHERE status = 'scheduled'
	     AND run_at <= now()
	   ORDER BY run_at
	   LIMIT $1
	     FOR UPDATE SKIP LOCKED
	)
	UPDATE payments p
	   SET status = 'queued',
	       queued_at = clock_timestamp()
	  FROM due
	 WHERE p.id = due.id`

// promote puts into the queue what is scheduled and due by now, as far as it
// comes in one round.
func (w *Workers) promote(ctx context.Context) (moved bool, err error) {
	for range bites {
		n, err := retry.Tx(ctx, w.db, readWrite, w.policy, func(ctx context.Context, tx pgx.Tx) (int64, error) {
			tag, err := tx.Exec(ctx, promoteDueSQL, bite)
			if err != nil {
				return 0, fmt.Errorf("queue what is due: %w", err)
			}
			return tag.RowsAffected(), nil
		})
		moved = moved || n > 0
		if err != nil || n < bite {
			return moved, err
		}
		w.bell.wake()
	}
	return moved, nil
}

// bite is how many rows one transaction of housekeeping changes, and bites how
// many such there are in a round.
const (
	bite  = 1000
	bites = 20
)

const lockExpiredSQL = selectPaymentColumnsSQL + `
	 WHERE status = 'processing'
	   AND leased_until < now()
	 ORDER BY leased_until
	 LIMIT $1
	   FOR UPDATE SKIP LOCKED`

// reap ends the attempts of workers whose leases have ended.
func (w *Workers) reap(ctx context.Context) error {
	outcomes, err := retry.Tx(ctx, w.db, readWrite, w.policy, func(ctx context.Context, tx pgx.Tx) (outcomes []outcome, err error) {
		rows, _ := tx.Query(ctx, lockExpiredSQL, bite)
		expired, err := pgx.CollectRows(rows, scanPayment)
		if err != nil {
			return nil, fmt.Errorf("look for ended leases: %w", err)
		}
		for _, p := range expired {
			outcomes = append(outcomes, p.failed(CodeLeaseExpired, "the worker did not prolong its lease", w.Pause))
		}
		return outcomes, updateOutcomes(ctx, tx, outcomes)
	})
	w.tell(outcomes)
	return err
}

// Counting all of a long queue would take long.
const selectStateSQL = `
	SELECT (SELECT count(*) FROM (SELECT FROM payments WHERE status = 'scheduled' LIMIT $1) AS counted),
	       (SELECT count(*) FROM (SELECT FROM payments WHERE status = 'awaiting_approval' LIMIT $1) AS counted),
	       (SELECT count(*) FROM (SELECT FROM payments WHERE status = 'queued' LIMIT $1) AS counted),
	       (SELECT count(*) FROM (SELECT FROM payments WHERE status = 'processing' LIMIT $1) AS counted),
	       (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8
	          FROM pg_stat_activity
	         WHERE backend_xmin IS NOT NULL)`

func selectState(ctx context.Context, tx pgx.Tx) (s State, err error) {
	var seconds float64
	err = tx.QueryRow(ctx, selectStateSQL, CountLimit).Scan(&s.Scheduled, &s.AwaitingApproval, &s.Queued, &s.Processing, &seconds)
	if err != nil {
		return State{}, fmt.Errorf("count payments: %w", err)
	}
	s.OldestSnapshot = time.Duration(seconds * float64(time.Second))
	return s, nil
}

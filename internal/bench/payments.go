package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// A Queue is a way to claim queued payments.
type Queue string

const (
	SkipLocked Queue = "skip-locked" // package payment's own workers
	ForUpdate  Queue = "for-update"  // the naive one: FOR UPDATE, which waits for what others hold
)

// A PaymentCell is one combination of what is compared: some workers drain a
// queue.
type PaymentCell struct {
	Queue    Queue `json:"queue"`
	Group    int   `json:"group"` // payments in one transaction at most
	Workers  int   `json:"workers"`
	Finished int64 `json:"finished,omitempty"` // payments that were finished before
	Snapshot bool  `json:"snapshot,omitempty"` // an old transaction holds vacuum back meanwhile
}

// A PaymentResult is one run of one cell.
type PaymentResult struct {
	PaymentCell
	Round     int     `json:"round"`
	Payments  int     `json:"payments"`
	PerSecond float64 `json:"per_second"` // payments made

	// Claim is the median time to claim; ClaimDrift the median of the last
	// quarter of all claims over that of the first. Zero for the naive queue.
	Claim      time.Duration `json:"claim_ns,omitempty"`
	ClaimDrift float64       `json:"claim_drift,omitempty"`

	Findings []string `json:"findings,omitempty"`
}

// ComparePayments drains a queue of so many payments in every cell, in rounds.
// The error matches [ErrMoneyLost] where a ledger was not as it must be.
func (b *Bench) ComparePayments(ctx context.Context, cells []PaymentCell, payments, rounds int, step func(done int, c PaymentCell)) ([]PaymentResult, error) {
	var results []PaymentResult
	for round := range rounds {
		for _, cell := range cells {
			step(len(results), cell)
			r, err := b.drain(ctx, cell, payments)
			r.Round = round + 1
			if err == nil || errors.Is(err, ErrMoneyLost) {
				results = append(results, r)
			}
			if err != nil {
				return results, fmt.Errorf("%s, %d workers: %w", cell.Queue, cell.Workers, err)
			}
		}
	}
	return results, nil
}

const insertFinishedSQL = `
	INSERT INTO payments (id, debit_account_id, credit_account_id, amount, currency, max_attempts, run_at, status, queued_at)
	SELECT ('00000000-0000-7000-8003-' || lpad(to_hex(i), 12, '0'))::uuid,
	       ('00000000-0000-7000-8000-' || lpad(to_hex(i % $2::bigint), 12, '0'))::uuid,
	       ('00000000-0000-7000-8000-' || lpad(to_hex((i + 1) % $2::bigint), 12, '0'))::uuid,
	       $3::numeric, 'USD', 5, now(), 'queued', now() - interval '1 day' + i * interval '1 microsecond'
	  FROM generate_series(0, $1::bigint - 1) i`

// Canceled ones need no transfers.
const updateFinishedSQL = `
	UPDATE payments
	   SET status = 'canceled', queued_at = NULL, finished_at = now()
	 WHERE queued_at < now() - interval '12 hours'`

// They were queued one by one, a millisecond apart.
const insertQueuedSQL = `
	INSERT INTO payments (id, debit_account_id, credit_account_id, amount, currency, max_attempts, run_at, status, queued_at)
	SELECT ('00000000-0000-7000-8004-' || lpad(to_hex(i), 12, '0'))::uuid,
	       ('00000000-0000-7000-8000-' || lpad(to_hex(debit), 12, '0'))::uuid,
	       ('00000000-0000-7000-8000-' || lpad(to_hex((debit + distance) % $2::int), 12, '0'))::uuid,
	       $3::numeric, 'USD', 5, now(), 'queued', now() - ($1::int - i) * interval '1 millisecond'
	  FROM generate_series(0, $1::int - 1) i,
	       LATERAL (SELECT floor(random() * $2::int)::int + 0 * i AS debit, 1 + floor(random() * ($2::int - 1))::int AS distance) pair`

// drain runs one cell on a ledger of its own.
func (b *Bench) drain(ctx context.Context, cell PaymentCell, payments int) (r PaymentResult, err error) {
	r = PaymentResult{PaymentCell: cell, Payments: payments}
	workload, err := WorkloadByName("uniform")
	if err != nil {
		return r, err
	}
	l, err := b.newLedger(ctx, 0, workload)
	if err != nil {
		return r, fmt.Errorf("prepare a ledger: %w", err)
	}
	defer func() { err = errors.Join(err, l.drop(ctx)) }()
	if err := b.fillQueue(ctx, l.url, cell, payments); err != nil {
		return r, fmt.Errorf("prepare a queue: %w", err)
	}
	db, err := postgres.Open(ctx, postgres.Config{URL: l.url, PoolSize: cell.Workers + 2, AcquireTimeout: time.Minute, ApplicationName: "ledger-bench"})
	if err != nil {
		return r, err
	}
	defer db.Close()
	drain := map[Queue]func(context.Context, retry.Beginner, PaymentCell, int, *PaymentResult) error{
		SkipLocked: drainSkipLocked, ForUpdate: drainForUpdate,
	}[cell.Queue]
	err = withSnapshot(ctx, db, cell.Snapshot, func() error {
		if err := b.finish(ctx, l.url); err != nil {
			return fmt.Errorf("prepare a queue: %w", err)
		}
		began := time.Now()
		if err := drain(ctx, db, cell, payments, &r); err != nil {
			return err
		}
		r.PerSecond = float64(payments) / time.Since(began).Seconds()
		return nil
	})
	if err != nil {
		return r, err
	}
	l.made += int64(payments)
	checked := Result{Cell: Cell{Kind: Service, Workload: workload.Name, Clients: cell.Workers}}
	err = b.verify(ctx, l, &checked)
	r.Findings = checked.Verdict.Findings
	return r, err
}

func (b *Bench) fillQueue(ctx context.Context, url string, cell PaymentCell, payments int) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, insertFinishedSQL, cell.Finished, b.Accounts, amount); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, insertQueuedSQL, payments, b.Accounts, amount); err != nil {
		return err
	}
	return nil
}

// finish takes those payments out of the queue that are finished before the
// others are made. It leaves to be vacuumed what they were in its index.
func (b *Bench) finish(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, updateFinishedSQL); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "VACUUM (ANALYZE) payments"); err != nil {
		return err
	}
	return b.settle(ctx, conn)
}

// withSnapshot runs fn while a transaction of another session keeps everything
// that is deleted or replaced meanwhile from being vacuumed, if it is to.
func withSnapshot(ctx context.Context, db retry.Beginner, hold bool, fn func() error) error {
	if !hold {
		return fn()
	}
	_, err := retry.Tx(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, retry.Policy{Attempts: 1}, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if _, err := tx.Exec(ctx, countTransfersSQL); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, fn()
	})
	return err
}

const countTransfersSQL = `SELECT count(*) FROM transfers`

var drainPolicy = retry.Policy{Attempts: 20, MinPause: 10 * time.Millisecond, MaxPause: 500 * time.Millisecond, LockTimeout: time.Minute, GenericPlans: true}

// drainSkipLocked lets our own workers make all payments.
func drainSkipLocked(ctx context.Context, db retry.Beginner, cell PaymentCell, payments int, r *PaymentResult) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var made atomic.Int64
	var mu sync.Mutex
	var claims []time.Duration
	workers := payment.NewWorkers(db, nil, drainPolicy, payment.NewBell(), payment.Work{
		Name: "bench", Workers: cell.Workers, Timeout: time.Minute, Poll: time.Second, Housekeeping: time.Second,
		Pause: payment.Pause{Min: time.Second, Max: time.Second}, Group: cell.Group, LockWait: payment.DefaultLockWait,
		Hooks: payment.Hooks{
			OnClaim: func(took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				claims = append(claims, took)
			},
			OnAttempt: func(code string) {
				if code != "" {
					stop(fmt.Errorf("a payment was not made: %s", code))
				} else if made.Add(1) == int64(payments) {
					stop(errDrained)
				}
			},
			OnLeaseLost: func() {},
			OnOldest:    func(time.Duration) {},
			OnState:     func(payment.State) {},
			OnError:     func(err error) { stop(err) },
		},
	})
	workers.Run(ctx)
	if err := context.Cause(ctx); !errors.Is(err, errDrained) {
		return err
	}
	quarter := len(claims) / 4
	if quarter > 0 {
		r.ClaimDrift = ratio(float64(median(claims[len(claims)-quarter:])), float64(median(claims[:quarter])))
	}
	r.Claim = median(claims)
	return nil
}

var errDrained = errors.New("all payments are made")

func median(values []time.Duration) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Who waits here for a row finds it done, and comes back with less than it
// asked for, or with nothing.
const claimForUpdateSQL = `
	SELECT id, debit_account_id, credit_account_id, amount, currency
	  FROM payments
	 WHERE status = 'queued'
	   AND priority = 0
	 ORDER BY queued_at, id
	 LIMIT $1
	   FOR UPDATE`

const updateDoneSQL = `
	UPDATE payments
	   SET status = 'done', queued_at = NULL, finished_at = clock_timestamp(), attempts = attempts + 1
	 WHERE id = ANY($1)`

// drainForUpdate is what is often written first: it differs from our workers by
// the claim alone.
func drainForUpdate(ctx context.Context, db retry.Beginner, cell PaymentCell, payments int, _ *PaymentResult) error {
	var made atomic.Int64
	var working sync.WaitGroup
	errs := make([]error, cell.Workers)
	for i := range cell.Workers {
		working.Go(func() {
			for made.Load() < int64(payments) && errs[i] == nil {
				n, err := retry.Tx(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, drainPolicy, func(ctx context.Context, tx pgx.Tx) (int, error) {
					return makeForUpdate(ctx, tx, cell.Group)
				})
				made.Add(int64(n))
				errs[i] = err
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

func makeForUpdate(ctx context.Context, tx pgx.Tx, limit int) (int, error) {
	var orders []transfer.Order
	var ids []uuid.UUID
	rows, _ := tx.Query(ctx, claimForUpdateSQL, limit)
	var id, debit, credit uuid.UUID
	var amount decimal.Decimal
	var currency string
	_, err := pgx.ForEachRow(rows, []any{&id, &debit, &credit, &amount, &currency}, func() error {
		ids = append(ids, id)
		orders = append(orders, transfer.Order{ID: id, Command: transfer.Command{
			Kind: transfer.Between, DebitAccountID: debit, CreditAccountID: credit, Amount: amount, Currency: currency,
		}})
		return nil
	})
	if err != nil || len(orders) == 0 {
		return 0, err
	}
	outcomes, err := transfer.Move(ctx, tx, orders)
	if err != nil {
		return 0, err
	}
	for _, o := range outcomes {
		if o.Refusal != nil {
			return 0, o.Refusal
		}
	}
	_, err = tx.Exec(ctx, updateDoneSQL, ids)
	return len(ids), err
}

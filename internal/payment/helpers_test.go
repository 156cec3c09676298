package payment_test

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
	"github.com/rowlock/ledger/internal/verify"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// patient is a policy whose limits no test reaches, however slow the machine.
var patient = retry.Policy{
	Attempts: 1000, MinPause: time.Millisecond, MaxPause: 50 * time.Millisecond,
	StatementTimeout: time.Minute, LockTimeout: time.Minute,
}

// A ledger is a database of a test's own, with two accounts in USD.
type ledger struct {
	db         *testdb.DB
	rich, poor uuid.UUID // 1,000,000.00, and nothing
	payments   *payment.Service
	bell       *payment.Bell
}

func newLedger(t testing.TB) *ledger {
	t.Helper()
	db := testdb.New(t)
	db.AcquireTimeout = time.Minute
	l := &ledger{db: db, bell: payment.NewBell()}
	l.rich, l.poor = l.open(t), l.open(t)
	l.fund(t, l.rich, "1000000.00")
	l.payments = payment.New(db, patient, l.bell.Ring)
	return l
}

func (l *ledger) open(t testing.TB) uuid.UUID {
	t.Helper()
	account, _, err := accounts.New(l.db, patient).Open(t.Context(), accounts.Opening{Currency: "USD"})
	if err != nil {
		t.Fatalf("open an account: %v", err)
	}
	return account.ID
}

func (l *ledger) fund(t testing.TB, account uuid.UUID, amount string) {
	t.Helper()
	s := transfer.New(l.db, transfer.Pessimistic, transfer.Locking{}, patient)
	if _, _, err := s.Create(t.Context(), transfer.NewCredit(account, decimal.RequireFromString(amount), "USD")); err != nil {
		t.Fatalf("fund an account: %v", err)
	}
}

// pay is a command that can be carried out.
func (l *ledger) pay(amount string) payment.Command {
	return payment.Command{DebitAccountID: l.rich, CreditAccountID: l.poor, Amount: decimal.RequireFromString(amount), Currency: "USD"}
}

func (l *ledger) enqueue(t testing.TB, c payment.Command) payment.Payment {
	t.Helper()
	p, _, err := l.payments.Enqueue(t.Context(), c)
	if err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	return p
}

func (l *ledger) get(t testing.TB, id uuid.UUID) payment.Payment {
	t.Helper()
	p, err := l.payments.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("get payment: %v", err)
	}
	return p
}

func (l *ledger) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := l.db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (l *ledger) count(t testing.TB, sql string, args ...any) (n int) {
	t.Helper()
	if err := l.db.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// countStatus counts the payments of a status.
func (l *ledger) countStatus(t testing.TB, status string) int {
	t.Helper()
	return l.count(t, `SELECT count(*) FROM payments WHERE status = $1`, status)
}

// eventually waits until done, for as long as any machine may need.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after two minutes: %s", what)
		}
	}
}

// wantStatus waits until a payment has that status.
func (l *ledger) wantStatus(t testing.TB, id uuid.UUID, want string) payment.Payment {
	t.Helper()
	var p payment.Payment
	eventually(t, "payment "+want, func() bool {
		p = l.get(t, id)
		return p.Status == want
	})
	return p
}

// wantSound checks every invariant of the ledger.
func (l *ledger) wantSound(t testing.TB) {
	t.Helper()
	report, err := verify.Ledger(t.Context(), l.db, patient)
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	for _, f := range report.Findings {
		t.Errorf("%s: %s", f.Kind, f.Detail)
	}
}

// A crew is workers at work, and what they told.
type crew struct {
	*payment.Workers
	stop     context.CancelFunc
	done     chan struct{}
	mu       sync.Mutex
	attempts map[string]int // by code
	errs     []error
	state    payment.State
	oldest   time.Duration
	losses   atomic.Int32
}

// brisk is how workers work in tests: with short pauses, and a poll that only a
// test which waits for it sets shorter.
func brisk(name string) payment.Work {
	return payment.Work{
		Name: name, Workers: 2, Timeout: time.Minute, Poll: 50 * time.Millisecond, Housekeeping: 50 * time.Millisecond,
		Pause: payment.Pause{Min: time.Millisecond, Max: 50 * time.Millisecond},
		Group: 100, LockWait: payment.DefaultLockWait, Lease: time.Minute,
	}
}

// start sets workers to work until the test ends.
func (l *ledger) start(t testing.TB, work payment.Work) *crew {
	t.Helper()
	return l.startOn(t, l.db, l.bell, patient, work)
}

func (l *ledger) startOn(t testing.TB, db retry.Beginner, bell *payment.Bell, policy retry.Policy, work payment.Work) *crew {
	t.Helper()
	c := &crew{done: make(chan struct{}), attempts: map[string]int{}}
	work.Hooks = payment.Hooks{
		OnClaim: func(time.Duration) {},
		OnAttempt: func(code string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.attempts[code]++
		},
		OnLeaseLost: func() { c.losses.Add(1) },
		OnOldest: func(waited time.Duration) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.oldest = waited
		},
		OnState: func(s payment.State) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.state = s
		},
		OnError: func(err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.errs = append(c.errs, err)
		},
	}
	beats := l.pool(t, 1)
	c.Workers = payment.NewWorkers(db, beats, policy, bell, work)
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() {
		defer close(c.done)
		c.Run(ctx)
	}()
	t.Cleanup(c.end)
	return c
}

// end stops the crew and waits until it has.
func (c *crew) end() {
	c.stop()
	<-c.done
}

func (c *crew) told(code string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attempts[code]
}

func (c *crew) wantNoErrors(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range c.errs {
		t.Errorf("workers: %v", err)
	}
}

// pool is another pool on the ledger's database.
func (l *ledger) pool(t testing.TB, size int) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: l.db.URL, PoolSize: size, AcquireTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// A lossyDB loses the answers of some COMMITs, which it carries out or not.
type lossyDB struct {
	retry.Beginner
	lose    atomic.Int32 // how many of the next ones
	carried bool
}

func (db *lossyDB) BeginWith(ctx context.Context, begin *pgx.Batch) (pgx.Tx, error) {
	tx, err := db.Beginner.BeginWith(ctx, begin)
	return &lossyTx{Tx: tx, db: db}, err
}

type lossyTx struct {
	pgx.Tx
	db *lossyDB
}

func (tx *lossyTx) Commit(ctx context.Context) error {
	if tx.db.lose.Add(-1) < 0 {
		return tx.Tx.Commit(ctx)
	}
	if tx.db.carried {
		if err := tx.Tx.Commit(ctx); err != nil {
			return err
		}
	}
	return io.ErrUnexpectedEOF // no answer of the server's
}

// Conn hides the connection, so that it is not closed for what was not its fault.
func (tx *lossyTx) Conn() *pgx.Conn { return nil }

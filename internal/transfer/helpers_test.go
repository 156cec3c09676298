package transfer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/idempotency"
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

// A ledger is a database of a test's own.
type ledger struct {
	db       *testdb.DB
	accounts *accounts.Service
}

func newLedger(t testing.TB) *ledger {
	t.Helper()
	db := testdb.New(t)
	db.AcquireTimeout = time.Minute
	return &ledger{db: db, accounts: accounts.New(db, patient)}
}

func (l *ledger) service(mode *transfer.Mode) *transfer.Service {
	return transfer.New(l.db, mode, transfer.Locking{}, patient)
}

// open opens an account that can pay the balance and go down to the minimum.
func (l *ledger) open(t testing.TB, currency, balance, minimum string) uuid.UUID {
	t.Helper()
	account, _, err := l.accounts.Open(t.Context(), accounts.Opening{Currency: currency, MinBalance: number(minimum)})
	if err != nil {
		t.Fatalf("open an account: %v", err)
	}
	if amount := number(balance); !amount.IsZero() {
		create(t, l.service(transfer.Pessimistic), transfer.NewCredit(account.ID, amount, currency))
	}
	return account.ID
}

// openPair opens two accounts, the one with the lower id first.
func (l *ledger) openPair(t testing.TB, currency, balance string) (low, high uuid.UUID) {
	t.Helper()
	low, high = l.open(t, currency, balance, "0"), l.open(t, currency, balance, "0")
	if low.String() > high.String() {
		low, high = high, low
	}
	return low, high
}

func (l *ledger) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := l.db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (l *ledger) wantBalance(t testing.TB, id uuid.UUID, want string) {
	t.Helper()
	account, err := l.accounts.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("get account: %v", err)
	}
	if !account.Balance.Equal(number(want)) {
		t.Errorf("balance = %s, want %s", account.Balance, want)
	}
}

func count(t testing.TB, l *ledger, sql string, args ...any) (n int) {
	t.Helper()
	if err := l.db.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// faultsSQL lists what no ledger may have, in any mode that keeps money.
const faultsSQL = `
	WITH statement AS (
	  SELECT account_id, version, balance_after, created_at,
	         CASE direction WHEN 'credit' THEN amount ELSE -amount END AS change,
	         lag(version, 1, 0::bigint) OVER w AS last_version,
	         lag(balance_after, 1, 0::numeric) OVER w AS last_balance,
	         lag(created_at) OVER w AS last_created_at
	    FROM entries
	  WINDOW w AS (PARTITION BY account_id ORDER BY version)
	), totals AS (
	  SELECT account_id, sum(change) AS total, max(version) AS version, max(created_at) AS created_at FROM statement GROUP BY account_id
	)
	SELECT 'money in ' || currency || ' does not add up: ' || sum(balance) FROM accounts GROUP BY currency HAVING sum(balance) <> 0
	 UNION ALL
	SELECT 'account ' || a.id || ' has ' || a.balance || ' and entries of ' || coalesce(t.total, 0)
	  FROM accounts a LEFT JOIN totals t ON t.account_id = a.id
	 WHERE a.balance <> coalesce(t.total, 0)
	 UNION ALL
	SELECT 'account ' || a.id || ' has version ' || a.version || ' and entries up to ' || coalesce(t.version, 0)
	  FROM accounts a LEFT JOIN totals t ON t.account_id = a.id
	 WHERE a.version <> coalesce(t.version, 0)
	 UNION ALL
	SELECT 'account ' || a.id || ' remembers ' || a.last_entry_at || ' and has an entry of ' || t.created_at
	  FROM accounts a JOIN totals t ON t.account_id = a.id
	 WHERE a.last_entry_at < t.created_at
	 UNION ALL
	SELECT 'entry ' || version || ' of ' || account_id || ' follows ' || last_version FROM statement WHERE version <> last_version + 1
	 UNION ALL
	SELECT 'entry ' || version || ' of ' || account_id || ' leaves ' || balance_after || ' after ' || last_balance || ' and ' || change
	  FROM statement WHERE balance_after <> last_balance + change
	 UNION ALL
	SELECT 'entry ' || version || ' of ' || account_id || ' is of ' || created_at || ', the one before of ' || last_created_at
	  FROM statement WHERE created_at < last_created_at`

// wantSound checks that money, versions, balances after and times agree, and
// with them all that `ledger verify` knows.
func (l *ledger) wantSound(t testing.TB) {
	t.Helper()
	rows, _ := l.db.Query(t.Context(), faultsSQL)
	faults, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("look for faults: %v", err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
	report, err := verify.Ledger(t.Context(), l.db, patient)
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	for _, f := range report.Findings {
		t.Errorf("%s: %s", f.Kind, f.Detail)
	}
}

func number(s string) decimal.Decimal { return decimal.RequireFromString(s) }

func between(debit, credit uuid.UUID, amount, currency string) transfer.Command {
	return transfer.Command{Kind: transfer.Between, DebitAccountID: debit, CreditAccountID: credit, Amount: number(amount), Currency: currency}
}

func keyed(c transfer.Command, key string) transfer.Command {
	c.Key = &idempotency.Key{Principal: "tester", Value: key}
	return c
}

func create(t testing.TB, s *transfer.Service, c transfer.Command) transfer.Transfer {
	t.Helper()
	made, replayed, err := s.Create(t.Context(), c)
	if err != nil || replayed {
		t.Fatalf("Create = replayed %v, error %v, want a new transfer", replayed, err)
	}
	return made
}

func wantError(t testing.TB, s *transfer.Service, c transfer.Command, want error) {
	t.Helper()
	if _, _, err := s.Create(t.Context(), c); !errors.Is(err, want) {
		t.Errorf("error = %v, want %v", err, want)
	}
}

// A way is a mode, with or without groups, and on an engine that locks one row
// at a time or any number.
type way struct {
	*transfer.Mode
	grouped, eachRow bool
}

func (w way) String() string {
	name := w.Name
	if w.grouped {
		name += " grouped"
	}
	if w.eachRow {
		name += " row by row"
	}
	return name
}

func (w way) service(db retry.Beginner, policy retry.Policy) *transfer.Service {
	return w.locking(db, transfer.Locking{}, policy)
}

func (w way) locking(db retry.Beginner, locking transfer.Locking, policy retry.Policy) *transfer.Service {
	if w.eachRow {
		db, locking.EachRow = shardedDB{db}, true
	}
	s := transfer.New(db, w.Mode, locking, policy)
	if w.grouped {
		s = s.Grouped(grouping)
	}
	return s
}

// grouping is as users have it.
var grouping = transfer.Grouping{Size: 128, Lanes: 2, Queue: 1024, LockWait: 50 * time.Millisecond, Waiters: 4}

// grouped is the pessimistic mode as users have it.
var grouped = way{Mode: transfer.Pessimistic, grouped: true}

// ways returns all modes, grouped, and the pessimistic one row by row.
func ways() []way {
	all := []way{grouped, {transfer.Pessimistic, true, true}, {transfer.Pessimistic, false, true}}
	for _, mode := range transfer.Modes() {
		all = append(all, way{Mode: mode})
	}
	return all
}

// inEveryMode runs a test in all ways, in those that keep money, or in those
// that lock first.
func inEveryMode(t *testing.T, test func(t *testing.T, mode way)) {
	inModes(t, func(way) bool { return true }, test)
}

func inSafeModes(t *testing.T, test func(t *testing.T, mode way)) {
	inModes(t, func(mode way) bool { return !mode.LosesMoney }, test)
}

func inPessimisticModes(t *testing.T, test func(t *testing.T, mode way)) {
	inModes(t, func(mode way) bool { return mode.Mode == transfer.Pessimistic }, test)
}

func inModes(t *testing.T, wanted func(way) bool, test func(t *testing.T, mode way)) {
	t.Parallel()
	for _, mode := range ways() {
		if !wanted(mode) {
			continue
		}
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}

// conflicts counts what a policy's attempts lost, by SQLSTATE.
type conflicts struct {
	mu    sync.Mutex
	count map[string]int
}

func (c *conflicts) watch(p retry.Policy) retry.Policy {
	c.count = map[string]int{}
	p.OnConflict = func(conflict retry.Conflict) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.count[conflict.SQLState]++
	}
	return p
}

func (c *conflicts) of(sqlState string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count[sqlState]
}

func (c *conflicts) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, some := range c.count {
		n += some
	}
	return n
}

// together runs n functions at once and waits for all of them.
func together(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			f(i)
		})
	}
	done.Wait()
}

// session is another session with a transaction open, as another program or
// somebody with psql has. It ends with the test.
func (l *ledger) session(t testing.TB) pgx.Tx {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), l.db.URL)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	return tx
}

// waitForWaiter returns when n sessions wait for a lock.
func (l *ledger) waitForWaiters(t testing.TB, n int) {
	t.Helper()
	for range 60_000 {
		if count(t, l, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("no %d sessions wait for a lock", n)
}

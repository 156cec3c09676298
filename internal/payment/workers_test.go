package payment_test

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
	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// bulk enqueues n payments of 0.01 from rich to poor in one statement.
func (l *ledger) bulk(t testing.TB, n int) {
	t.Helper()
	l.exec(t, `
		INSERT INTO payments (id, debit_account_id, credit_account_id, amount, currency, max_attempts, run_at, status, queued_at)
		SELECT gen_random_uuid(), $1, $2, 0.01, 'USD', 5, now(), 'queued', clock_timestamp() FROM generate_series(1, $3)`, l.rich, l.poor, n)
}

func (l *ledger) wantBalance(t testing.TB, id uuid.UUID, want string) {
	t.Helper()
	account, err := accounts.New(l.db, patient).Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if !account.Balance.Equal(decimal.RequireFromString(want)) {
		t.Errorf("balance = %s, want %s", account.Balance, want)
	}
}

// Ten workers of two processes, each with fewer connections than workers.
func TestTenWorkersMakeTenThousandPaymentsOnceEach(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.bulk(t, 10_000)
	var crews []*crew
	for _, name := range []string{"a", "b"} {
		work := brisk(name)
		work.Workers, work.Group = 5, 50
		crews = append(crews, l.startOn(t, l.pool(t, 2), payment.NewBell(), patient, work))
	}
	eventually(t, "10,000 payments", func() bool { return l.countStatus(t, payment.Done) == 10_000 })
	for _, c := range crews {
		c.end()
		c.wantNoErrors(t)
	}
	if n := l.count(t, `SELECT count(*) FROM transfers t JOIN payments p ON p.id = t.id`); n != 10_000 {
		t.Errorf("%d payments have a transfer, want all", n)
	}
	if n := crews[0].told("") + crews[1].told(""); n != 10_000 {
		t.Errorf("%d attempts succeeded, want 10,000", n)
	}
	l.wantBalance(t, l.poor, "100.00")
	l.wantSound(t)
}

func TestADonePaymentNamesItsTransfer(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	c := l.pay("12.34")
	c.Description, c.Metadata = "rent", map[string]string{"a": "b"}
	id := l.enqueue(t, c).ID
	l.start(t, brisk("w"))
	p := l.wantStatus(t, id, payment.Done)
	if p.Attempts != 1 || len(p.Failures) != 0 || p.LastCode != "" || p.FinishedAt == nil {
		t.Errorf("done = %+v, want one attempt and no failure", p)
	}
	made, err := transfer.New(l.db, transfer.Pessimistic, transfer.Locking{}, patient).Get(t.Context(), id)
	if err != nil || !made.Amount.Equal(c.Amount) || made.Description != "rent" || made.Metadata["a"] != "b" ||
		made.DebitAccountID != l.rich || made.CreditAccountID != l.poor || made.Kind != transfer.Between {
		t.Errorf("transfer = %+v, %v", made, err)
	}
}

func TestAPaymentIsMadeWhenItIsTime(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.start(t, brisk("w"))
	c := l.pay("1.00")
	c.RunAt = time.Now().Add(300 * time.Millisecond)
	soon := l.enqueue(t, c)
	c.RunAt = time.Now().Add(time.Hour)
	later := l.enqueue(t, c)
	done := l.wantStatus(t, soon.ID, payment.Done)
	if done.FinishedAt.Before(soon.RunAt) {
		t.Errorf("made at %v, before %v", done.FinishedAt, soon.RunAt)
	}
	if p := l.get(t, later.ID); p.Status != payment.Scheduled {
		t.Errorf("the one in an hour is %s", p.Status)
	}
	approval := l.pay("1.00")
	approval.NeedsApproval = true
	id := l.enqueue(t, approval).ID
	if _, err := l.payments.Approve(t.Context(), id, "boss"); err != nil {
		t.Fatal(err)
	}
	l.wantStatus(t, id, payment.Done)
}

// A refusal follows its schedule, and is seen meanwhile.
func TestARefusedPaymentIsTriedAgainUntilItsAttemptsEnd(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.start(t, brisk("w"))
	c := payment.Command{DebitAccountID: l.poor, CreditAccountID: l.rich, Amount: decimal.RequireFromString("5.00"), Currency: "USD", MaxAttempts: 3}
	p := l.wantStatus(t, l.enqueue(t, c).ID, payment.Failed)
	if p.Attempts != 3 || len(p.Failures) != 3 || p.LastCode != "insufficient-funds" || p.FinishedAt == nil {
		t.Fatalf("failed = %+v, want after 3 attempts", p)
	}
	for i, f := range p.Failures {
		if f.Attempt != i+1 || f.Code != "insufficient-funds" || f.Detail == "" || f.At.IsZero() || i > 0 && f.At.Before(p.Failures[i-1].At) {
			t.Errorf("failure %d = %+v", i, f)
		}
	}
	l.fund(t, l.poor, "5.00")
	if _, err := l.payments.Retry(t.Context(), p.ID); err != nil {
		t.Fatal(err)
	}
	l.wantStatus(t, p.ID, payment.Done)
	l.wantBalance(t, l.poor, "0.00")

	work := brisk("patient")
	work.Pause = payment.Pause{Min: time.Hour, Max: time.Hour}
	slow := newLedger(t)
	slow.start(t, work)
	id := slow.enqueue(t, payment.Command{DebitAccountID: slow.poor, CreditAccountID: slow.rich, Amount: decimal.RequireFromString("5.00"), Currency: "USD"}).ID
	waiting := slow.wantStatus(t, id, payment.Scheduled)
	if wait := waiting.RunAt.Sub(waiting.Failures[0].At); waiting.LastCode != "insufficient-funds" || wait < 29*time.Minute || wait > time.Hour {
		t.Errorf("%s, next attempt %v later, want insufficient-funds, and half an hour to an hour", waiting.LastCode, wait)
	}
}

func TestWhatCanNeverSucceedFailsAtOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	closed := l.open(t)
	if _, err := accounts.New(l.db, patient).Close(t.Context(), closed); err != nil {
		t.Fatal(err)
	}
	l.start(t, brisk("w"))
	toClosed := l.pay("5.00")
	toClosed.CreditAccountID = closed
	otherCurrency := l.pay("5.00")
	otherCurrency.Currency = "EUR"
	for code, c := range map[string]payment.Command{"account-closed": toClosed, "currency-mismatch": otherCurrency} {
		p := l.wantStatus(t, l.enqueue(t, c).ID, payment.Failed)
		if p.Attempts != 1 || p.LastCode != code || len(p.Failures) != 1 {
			t.Errorf("%s: %+v, want one attempt", code, p)
		}
	}
}

// Row 46 of the lessons: 100 that can never be made hold up nobody.
func TestHopelessPaymentsHoldUpNobody(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for range 100 {
		l.enqueue(t, payment.Command{
			DebitAccountID: l.poor, CreditAccountID: l.rich, Amount: decimal.RequireFromString("500000.00"), Currency: "USD", MaxAttempts: 100, Priority: 9,
		})
	}
	l.bulk(t, 1000)
	work := brisk("w")
	work.Workers, work.Group = 1, 50
	c := l.start(t, work)
	eventually(t, "1,000 good payments", func() bool { return l.countStatus(t, payment.Done) == 1000 })
	c.end()
	if n := l.countStatus(t, payment.Done) + l.countStatus(t, payment.Failed); n != 1000 {
		t.Errorf("%d payments were finished, want the 1,000 good ones", n)
	}
	l.wantSound(t)
}

// Row 46 again: old payments under a steady stream of urgent ones.
func TestAStreamOfUrgentPaymentsStarvesNobody(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.bulk(t, 10)
	l.exec(t, `UPDATE payments SET queued_at = queued_at - interval '10 minutes'`)
	urgent := func(n int) {
		l.exec(t, `
			INSERT INTO payments (id, debit_account_id, credit_account_id, amount, currency, max_attempts, run_at, status, priority, queued_at)
			SELECT gen_random_uuid(), $1, $2, 0.01, 'USD', 5, now(), 'queued', 9, clock_timestamp() FROM generate_series(1, $3)`, l.rich, l.poor, n)
	}
	urgent(2000)
	ctx, stop := context.WithCancel(t.Context())
	var stream sync.WaitGroup
	stream.Go(func() {
		for ctx.Err() == nil {
			urgent(100)
		}
	})
	work := brisk("w")
	work.Workers, work.Group = 1, 5
	l.start(t, work)
	eventually(t, "the old ones", func() bool {
		return l.count(t, `SELECT count(*) FROM payments WHERE priority = 0 AND status = 'done'`) == 10
	})
	if n := l.count(t, `SELECT count(*) FROM payments WHERE priority = 9 AND status = 'queued'`); n == 0 {
		t.Error("no urgent payment waits: the test does not see what it is for")
	}
	stop()
	stream.Wait()
}

// One payment that no transaction can make must not take the others with it.
func TestAFaultIsOnePaymentsAlone(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.exec(t, `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a fault'; END $$`)
	l.exec(t, `CREATE TRIGGER fail BEFORE INSERT ON transfers FOR EACH ROW WHEN (NEW.amount = 6.66) EXECUTE FUNCTION fail()`)
	l.bulk(t, 50)
	c := l.pay("6.66")
	c.MaxAttempts, c.Priority = 2, 9
	bad := l.enqueue(t, c).ID
	l.bulk(t, 50)
	crew := l.start(t, brisk("w"))
	p := l.wantStatus(t, bad, payment.Failed)
	if p.Attempts != 2 || len(p.Failures) != 2 || p.LastCode != payment.CodeInternal {
		t.Errorf("failed = %+v, want after 2 attempts for %s", p, payment.CodeInternal)
	}
	eventually(t, "the others", func() bool { return l.countStatus(t, payment.Done) == 100 })
	if n := l.count(t, `SELECT count(*) FROM payments WHERE status = 'done' AND attempts <> 1`); n != 0 {
		t.Errorf("%d of the others have other than one attempt", n)
	}
	crew.end()
	if len(crew.errs) < 2 {
		t.Errorf("%d errors were reported, want each failed attempt's", len(crew.errs))
	}
	l.wantSound(t)
}

// An account that somebody keeps locked delays its own payments alone, and
// burns none of their attempts.
func TestALockedAccountDelaysItsOwnPaymentsOnly(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	locked := l.open(t)
	c := l.pay("1.00")
	c.CreditAccountID, c.Priority, c.MaxAttempts = locked, 9, 1
	delayed := l.enqueue(t, c).ID
	l.bulk(t, 200)
	work := brisk("w")
	work.LockWait = 20 * time.Millisecond
	_, err := retry.Tx(t.Context(), l.db, pgx.TxOptions{}, patient, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if _, err := tx.Exec(ctx, `SELECT FROM accounts WHERE id = $1 FOR UPDATE`, locked); err != nil {
			return struct{}{}, err
		}
		l.start(t, work)
		eventually(t, "the others", func() bool { return l.countStatus(t, payment.Done) == 200 })
		if p := l.get(t, delayed); p.Status != payment.Queued || p.Attempts != 0 {
			t.Errorf("the delayed one is %s after %d attempts, want it queued as it was", p.Status, p.Attempts)
		}
		return struct{}{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l.wantStatus(t, delayed, payment.Done)
	l.wantSound(t)
}

// All pay from one account, and a commit takes its time: workers take turns, and
// none gives up.
func TestAPayrollFromOneAccountIsMade(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET commit_delay = 10000', current_database()); END $$`)
	l.exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET commit_siblings = 0', current_database()); END $$`)
	l.bulk(t, 1000)
	work := brisk("w")
	work.Workers, work.Group = 6, 20
	c := l.startOn(t, l.pool(t, 8), l.bell, patient, work)
	eventually(t, "the payroll", func() bool { return l.countStatus(t, payment.Done) == 1000 })
	c.end()
	c.wantNoErrors(t)
	if n := l.count(t, `SELECT count(*) FROM payments WHERE attempts <> 1`); n != 0 {
		t.Errorf("%d payments have other than one attempt", n)
	}
	l.wantSound(t)
}

// A lock that is not an account's, here one that a trigger of somebody's waits
// for: the payment that meets it is set aside, and holds up no others.
func TestALockThatNobodyCanFindDelaysItsPaymentOnly(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.exec(t, `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no lock' USING ERRCODE = '55P03'; END $$`)
	l.exec(t, `CREATE TRIGGER wait BEFORE INSERT ON transfers FOR EACH ROW WHEN (NEW.amount = 6.66) EXECUTE FUNCTION wait()`)
	c := l.pay("6.66")
	c.Priority = 9
	id := l.enqueue(t, c).ID
	l.bulk(t, 200)
	work := brisk("w")
	work.Pause = payment.Pause{Min: time.Hour, Max: time.Hour}
	l.start(t, work)
	eventually(t, "the others", func() bool { return l.countStatus(t, payment.Done) == 200 })
	if p := l.wantStatus(t, id, payment.Scheduled); p.LastCode != payment.CodeLockUnavailable || p.Attempts != 0 {
		t.Errorf("set aside with %q after %d attempts, want %s and none", p.LastCode, p.Attempts, payment.CodeLockUnavailable)
	}
}

// A commit without an answer may have made the payments, or not. Either way
// each is made once.
func TestALostAnswerOfAGroupMakesNothingTwice(t *testing.T) {
	t.Parallel()
	for _, carried := range []bool{true, false} {
		l := newLedger(t)
		l.bulk(t, 100)
		db := &lossyDB{Beginner: l.db, carried: carried}
		db.lose.Store(20)
		work := brisk("w")
		work.Group = 10
		c := l.startOn(t, db, l.bell, patient, work)
		eventually(t, "100 payments", func() bool { return l.countStatus(t, payment.Done) == 100 })
		c.end()
		l.wantBalance(t, l.poor, "1.00")
		l.wantSound(t)
	}
}

// A worker's session dies in the middle of its transaction.
func TestAKilledSessionLosesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.bulk(t, 2000)
	work := brisk("w")
	work.Workers, work.Group = 3, 10
	db := l.pool(t, 5)
	once := patient
	once.Attempts = 1 // so that workers see it
	c := l.startOn(t, db, l.bell, once, work)
	killed := 0
	eventually(t, "2,000 payments", func() bool {
		if killed < 50 { // without an end, a slow machine would never get a transaction done
			killed += l.count(t, `
				SELECT count(pg_terminate_backend(pid))
				  FROM pg_stat_activity
				 WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle' AND backend_xid IS NOT NULL`)
		}
		return l.countStatus(t, payment.Done) == 2000
	})
	if killed == 0 {
		t.Error("no session was killed in the middle: this test shows nothing")
	}
	c.end()
	if n := l.count(t, `SELECT count(*) FROM payments WHERE attempts <> 1`); n != 0 {
		t.Errorf("%d payments have other than one attempt", n)
	}
	l.wantBalance(t, l.poor, "20.00")
	l.wantSound(t)
}

// Row 56 of the lessons: a stop finishes what has begun.
func TestAStopLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.bulk(t, 3000)
	work := brisk("w")
	work.Workers, work.Group = 4, 10
	c := l.start(t, work)
	eventually(t, "some payments", func() bool { return l.countStatus(t, payment.Done) > 100 })
	c.end()
	c.wantNoErrors(t)
	done := l.countStatus(t, payment.Done)
	if queued := l.countStatus(t, payment.Queued); done+queued != 3000 {
		t.Errorf("%d done and %d queued, want 3000 together", done, queued)
	}
	if n := l.count(t, `SELECT count(*) FROM payments WHERE status = 'queued' AND attempts > 0`); n != 0 {
		t.Errorf("%d attempts were burnt", n)
	}
	l.wantSound(t)
}

func TestTheStateOfTheQueueIsTold(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	work := brisk("w")
	work.Workers = 0
	c := l.start(t, work)
	l.bulk(t, 3)
	scheduled, approval := l.pay("1.00"), l.pay("1.00")
	scheduled.RunAt, approval.NeedsApproval = time.Now().Add(time.Hour), true
	l.enqueue(t, scheduled)
	l.enqueue(t, approval)
	// A transaction that holds vacuum back is seen, too.
	holder, err := l.db.BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(context.WithoutCancel(t.Context()))
	if _, err := holder.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the state", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		s := c.state
		return s.Queued == 3 && s.Scheduled == 1 && s.AwaitingApproval == 1 && s.Processing == 0 && c.oldest > 0 && s.OldestSnapshot > 0
	})
	c.wantNoErrors(t)
}

// Idle workers hear of a payment although they never look by themselves: those
// of the process that took it in, and those of another one, also after their
// connection was lost.
func TestIdleWorkersAreWoken(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	work := brisk("here")
	work.Poll = time.Hour
	here := l.start(t, work)
	l.wantStatus(t, l.enqueue(t, l.pay("1.00")).ID, payment.Done)
	here.end()

	var errs sync.Map
	onError := func(err error) { errs.Store(err, true) }
	ctx, stop := context.WithCancel(t.Context())
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	bell := payment.NewBell()
	background.Go(func() { l.bell.Notify(ctx, l.db, patient, onError) })
	background.Go(func() {
		bell.Listen(ctx, func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, l.db.URL) }, onError)
	})
	const listeners = `FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN ledger_payments'`
	listening := func() bool { return l.count(t, `SELECT count(*) `+listeners) == 1 }
	eventually(t, "a listener", listening)

	work.Name = "elsewhere"
	l.startOn(t, l.db, bell, patient, work)
	time.Sleep(100 * time.Millisecond) // so that it is idle, if the machine is quick
	l.wantStatus(t, l.enqueue(t, l.pay("1.00")).ID, payment.Done)

	l.exec(t, `SELECT pg_terminate_backend(pid, 60000) `+listeners)
	eventually(t, "another listener", listening)
	l.wantStatus(t, l.enqueue(t, l.pay("1.00")).ID, payment.Done)
	said := false
	errs.Range(func(any, any) bool { said = true; return false })
	if !said {
		t.Error("nobody was told that the listener was lost")
	}
}

// Row 49 of the lessons: NOTIFY takes a lock of the whole server at commit, so
// neither a payment's transaction nor a transfer's has one.
func TestNoTransactionOfMoneyNotifies(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	conn, err := pgx.Connect(t.Context(), l.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `LISTEN ledger_payments`); err != nil {
		t.Fatal(err)
	}
	id := l.enqueue(t, l.pay("1.00")).ID // nobody runs Notify
	l.start(t, brisk("w"))
	l.wantStatus(t, id, payment.Done)
	// What was notified before comes before our own.
	l.exec(t, `SELECT pg_notify('ledger_payments', 'the test')`)
	n, err := conn.WaitForNotification(t.Context())
	if err != nil || n.Payload != "the test" {
		t.Errorf("notification = %v, %v, want the test's own first", n, err)
	}
}

// Without the listener polling is all there is, and it is enough.
func TestPollingIsEnough(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	deaf := payment.New(l.db, patient, nil)
	l.start(t, brisk("w"))
	p, _, err := deaf.Enqueue(t.Context(), l.pay("1.00"))
	if err != nil {
		t.Fatal(err)
	}
	l.wantStatus(t, p.ID, payment.Done)
}

// Workers go on when the database is back.
func TestWorkersOutliveAnOutage(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	db := &downDB{Beginner: l.db}
	db.set(true)
	c := l.startOn(t, db, l.bell, patient, brisk("w"))
	id := l.enqueue(t, l.pay("1.00")).ID
	eventually(t, "an error", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.errs) > 0
	})
	db.set(false)
	if p := l.wantStatus(t, id, payment.Done); p.Attempts != 1 {
		t.Errorf("%d attempts, want 1", p.Attempts)
	}
}

// A downDB may be out of order.
type downDB struct {
	retry.Beginner
	mu   sync.Mutex
	down bool
}

func (db *downDB) set(down bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.down = down
}

func (db *downDB) BeginWith(ctx context.Context, begin *pgx.Batch) (pgx.Tx, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.down {
		return nil, errors.Join(retry.ErrUnavailable, errors.New("out of order"))
	}
	return db.Beginner.BeginWith(ctx, begin)
}

// Whoever is first has it: a payment is called off or made, and never both.
func TestACancelAndAWorkerRaceAndOneWins(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	var ids []uuid.UUID
	for range 200 {
		ids = append(ids, l.enqueue(t, l.pay("0.01")).ID)
	}
	work := brisk("w")
	work.Group = 3
	c := l.start(t, work)
	canceled := 0
	for i := len(ids) - 1; i >= 0; i-- { // from the end, where the workers come last
		p, err := l.payments.Cancel(t.Context(), ids[i])
		var refused *payment.StatusError
		switch {
		case err == nil && p.Status == payment.Canceled:
			canceled++
		case !errors.As(err, &refused) || refused.Status != payment.Done:
			t.Errorf("cancel = %s, %v, want it canceled or done", p.Status, err)
		}
	}
	eventually(t, "the rest", func() bool { return l.countStatus(t, payment.Done) == len(ids)-canceled })
	c.end()
	c.wantNoErrors(t)
	l.wantSound(t)
}

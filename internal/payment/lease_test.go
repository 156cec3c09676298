package payment_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/payment"
	"github.com/rowlock/ledger/internal/retry"
)

// decides answers always the same.
func decides(d payment.Decision) payment.Decide {
	return func(context.Context, payment.Payment) (payment.Decision, error) { return d, nil }
}

var allow = payment.Decision{Verdict: payment.Allow}

// asking is how workers work that ask first.
func asking(name string, decide payment.Decide) payment.Work {
	work := brisk(name)
	work.Decide = decide
	return work
}

// takeAway ends the lease of a payment, as the time does.
func (l *ledger) takeAway(t testing.TB, id uuid.UUID) {
	t.Helper()
	l.exec(t, `UPDATE payments SET leased_until = now() - interval '1 second' WHERE id = $1 AND status = 'processing'`, id)
}

func TestADecisionIsDone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		decision payment.Decision
		err      error
		status   string
		code     string
		attempts int
		made     bool
	}{
		{"allow", allow, nil, payment.Done, "", 1, true},
		{"deny", payment.Decision{Verdict: payment.Deny, Reason: "fraud"}, nil, payment.Failed, payment.CodeDenied, 1, false},
		{"later", payment.Decision{Verdict: payment.Later, After: time.Hour}, nil, payment.Scheduled, payment.CodeLater, 0, false},
		{"no answer", payment.Decision{}, errors.New("timeout"), payment.Scheduled, payment.CodeHookUnavailable, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			work := asking("w", func(context.Context, payment.Payment) (payment.Decision, error) { return tt.decision, tt.err })
			work.Pause = payment.Pause{Min: time.Hour, Max: time.Hour}
			l.start(t, work)
			p := l.wantStatus(t, l.enqueue(t, l.pay("5.00")).ID, tt.status)
			if p.LastCode != tt.code || p.Attempts != tt.attempts || p.LeasedUntil != nil {
				t.Errorf("payment = %+v, want code %q, %d attempts, no lease", p, tt.code, tt.attempts)
			}
			if tt.code == payment.CodeDenied && (len(p.Failures) != 1 || p.Failures[0].Detail != "fraud") {
				t.Errorf("failures = %+v, want the reason", p.Failures)
			}
			if wait := time.Until(p.RunAt); tt.status == payment.Scheduled && (wait < 20*time.Minute || wait > time.Hour+time.Minute) {
				t.Errorf("the next attempt is in %v", wait)
			}
			if n := l.count(t, `SELECT count(*) FROM transfers WHERE id = $1`, p.ID); (n == 1) != tt.made {
				t.Errorf("%d transfers", n)
			}
			l.wantSound(t)
		})
	}
}

func TestTheDecisionIsMadeOutsideAnyTransaction(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.start(t, asking("w", func(_ context.Context, p payment.Payment) (payment.Decision, error) {
		if p.Status != payment.Processing || p.Attempts != 1 || p.LeasedUntil == nil {
			t.Errorf("asked about %+v, want one that is leased, in its first attempt", p)
		}
		eventually(t, "no transaction waits for the decision", func() bool { // the housekeeper's ends
			return l.count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`) == 0
		})
		return allow, nil
	}))
	l.wantStatus(t, l.enqueue(t, l.pay("5.00")).ID, payment.Done)
}

// A worker that was given a payment twice over, here the first of two: it comes
// back from a long sleep with its answer, and is too late.
func TestALeaseThatHasEndedIsAFence(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	asked, wakeUp := make(chan struct{}), make(chan struct{})
	sleeper := asking("sleeper", func(context.Context, payment.Payment) (payment.Decision, error) {
		close(asked)
		<-wakeUp
		return allow, nil
	})
	sleeper.Workers = 1
	first := l.startOn(t, l.db, payment.NewBell(), patient, sleeper)
	id := l.enqueue(t, l.pay("5.00")).ID
	<-asked
	first.stop() // so that it claims no other, and no heartbeat prolongs
	l.takeAway(t, id)

	second := l.start(t, asking("second", decides(allow)))
	p := l.wantStatus(t, id, payment.Done)
	if p.Attempts != 2 || len(p.Failures) != 1 || p.Failures[0].Code != payment.CodeLeaseExpired {
		t.Errorf("made = %+v, want in the second attempt, after a lease that ended", p)
	}
	close(wakeUp)
	first.end()
	second.end()
	if n := first.losses.Load(); n != 1 {
		t.Errorf("%d leases were lost, want 1", n)
	}
	l.wantBalance(t, l.poor, "5.00")
	l.wantSound(t)
}

// The lease of one that came back is no longer its own although the payment is
// processing again, by the same worker's name: the number tells.
func TestTheNumberOfALeaseIsTheFence(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	var asked atomic.Int32
	firstAsked, secondAsked := make(chan struct{}), make(chan struct{})
	firstMay, secondMay := make(chan struct{}), make(chan struct{})
	work := asking("same name", func(context.Context, payment.Payment) (payment.Decision, error) {
		if asked.Add(1) == 1 {
			close(firstAsked)
			<-firstMay
			return allow, nil
		}
		close(secondAsked)
		<-secondMay
		return payment.Decision{Verdict: payment.Deny, Reason: "the second one says no"}, nil
	})
	work.Workers = 1
	first := l.startOn(t, l.db, payment.NewBell(), patient, work)
	id := l.enqueue(t, l.pay("5.00")).ID
	<-firstAsked
	first.stop()
	l.takeAway(t, id)
	second := l.startOn(t, l.db, payment.NewBell(), patient, work)
	<-secondAsked
	close(firstMay)
	first.end()
	if p := l.get(t, id); p.Status != payment.Processing {
		t.Errorf("the first one's answer made it %s", p.Status)
	}
	close(secondMay)
	p := l.wantStatus(t, id, payment.Failed)
	if p.LastCode != payment.CodeDenied {
		t.Errorf("code = %s, want the second one's answer", p.LastCode)
	}
	second.end()
	l.wantSound(t)
}

// A payment that kills its worker ends as failed, and those behind it are made.
func TestAPaymentThatKillsItsWorkersFails(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	c := l.pay("6.66")
	c.MaxAttempts, c.Priority = 2, 9
	bad := l.enqueue(t, c).ID
	good := l.enqueue(t, l.pay("1.00")).ID
	for range 2 {
		died := make(chan struct{})
		work := asking(uuid.NewString(), func(ctx context.Context, p payment.Payment) (payment.Decision, error) {
			if p.ID != bad {
				return allow, nil
			}
			close(died)
			<-ctx.Done()
			return payment.Decision{}, ctx.Err()
		})
		work.Workers, work.Lease = 1, time.Second // so that it does not insist for long
		db := &downDB{Beginner: l.db}
		crew := l.startOn(t, db, payment.NewBell(), retry.Policy{Attempts: 1}, work)
		<-died
		db.set(true) // it can tell nobody any more
		crew.end()
		l.takeAway(t, bad)
		reaper := brisk("reaper")
		reaper.Workers = 0
		r := l.start(t, reaper)
		eventually(t, "the lease to be taken back", func() bool { return l.get(t, bad).Status != payment.Processing })
		r.end()
		l.exec(t, `UPDATE payments SET run_at = now() WHERE status = 'scheduled'`)
	}
	p := l.wantStatus(t, bad, payment.Failed)
	if p.Attempts != 2 || p.LastCode != payment.CodeLeaseExpired || len(p.Failures) != 2 {
		t.Errorf("failed = %+v, want after two leases", p)
	}
	l.start(t, asking("last", decides(allow)))
	l.wantStatus(t, good, payment.Done)
}

// Row 48 of the lessons: handlers that hold every connection of the pool delay
// no heartbeat. The work takes longer than the lease.
func TestHeartbeatsKeepALeaseWhileThePoolIsFull(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	pool := l.pool(t, 2)
	var runs sync.Map
	work := asking("w", func(ctx context.Context, p payment.Payment) (payment.Decision, error) {
		if _, twice := runs.LoadOrStore(p.ID, true); twice {
			t.Errorf("payment %s was worked on twice", p.ID)
		}
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return payment.Decision{}, err
		}
		defer conn.Release()
		select {
		case <-time.After(5 * time.Second):
			return allow, nil
		case <-ctx.Done():
			return payment.Decision{}, ctx.Err()
		}
	})
	work.Lease, work.Workers = 4*time.Second, 2
	c := l.startOn(t, pool, l.bell, patient, work)
	for range 4 {
		l.enqueue(t, l.pay("1.00"))
	}
	eventually(t, "four payments", func() bool { return l.countStatus(t, payment.Done) == 4 })
	c.end()
	if n := l.count(t, `SELECT count(*) FROM payments WHERE attempts <> 1`); n != 0 || c.losses.Load() != 0 {
		t.Errorf("%d payments have other than one attempt, %d leases were lost", n, c.losses.Load())
	}
	l.wantSound(t)
}

// Without heartbeats the watchdog ends the work before the lease ends.
func TestTheWatchdogEndsTheWorkBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	type ended struct {
		leased time.Time
		err    error
	}
	ends := make(chan ended, 10)
	work := asking("w", func(ctx context.Context, p payment.Payment) (payment.Decision, error) {
		<-ctx.Done()
		ends <- ended{*p.LeasedUntil, ctx.Err()}
		return allow, nil // all the same: nobody may act on it
	})
	work.Lease, work.Workers, work.Pause = 3*time.Second, 1, payment.Pause{Min: time.Hour, Max: time.Hour}
	// No heartbeat gets through.
	l.exec(t, `CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no heartbeat'; END $$`)
	l.exec(t, `CREATE TRIGGER stall BEFORE UPDATE OF leased_until ON payments FOR EACH ROW WHEN (OLD.status = 'processing' AND NEW.status = 'processing') EXECUTE FUNCTION stall()`)
	c := l.start(t, work)
	id := l.enqueue(t, l.pay("1.00")).ID
	e := <-ends
	if now := time.Now(); now.After(e.leased) {
		t.Errorf("the work ended %v after the lease", now.Sub(e.leased))
	}
	p := l.wantStatus(t, id, payment.Scheduled)
	if p.Attempts != 0 || p.LastCode != payment.CodeUnavailable {
		t.Errorf("payment = %+v, want it given back", p)
	}
	c.end()
	l.wantSound(t)
}

func TestAStopGivesLeasesBackAndBurnsNoAttempt(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	asked := make(chan struct{}, 2)
	c := l.start(t, asking("w", func(ctx context.Context, _ payment.Payment) (payment.Decision, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return payment.Decision{}, ctx.Err()
	}))
	l.enqueue(t, l.pay("1.00"))
	l.enqueue(t, l.pay("2.00"))
	<-asked
	<-asked
	c.end()
	if n := c.told(""); n != 0 {
		t.Errorf("%d attempts were told of as if they had made a payment", n)
	}
	if n := l.count(t, `SELECT count(*) FROM payments WHERE status = 'queued' AND attempts = 0 AND leased_by IS NULL`); n != 2 {
		t.Errorf("%d payments are back in the queue as they were, want 2", n)
	}
	l.start(t, asking("next", decides(allow)))
	eventually(t, "both", func() bool { return l.countStatus(t, payment.Done) == 2 })
	l.wantSound(t)
}

// A commit without an answer, of the lease or of what follows it.
func TestALostAnswerAroundALeaseMakesNothingTwice(t *testing.T) {
	t.Parallel()
	for _, carried := range []bool{true, false} {
		t.Run(fmt.Sprintf("carried out %v", carried), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			for range 20 {
				l.enqueue(t, l.pay("1.00"))
			}
			db := &lossyDB{Beginner: l.db, carried: carried}
			work := asking("w", func(_ context.Context, p payment.Payment) (payment.Decision, error) {
				db.lose.Store(3)
				return allow, nil
			})
			c := l.startOn(t, db, l.bell, patient, work)
			db.lose.Store(3)
			eventually(t, "20 payments", func() bool { return l.countStatus(t, payment.Done) == 20 })
			c.end()
			if n := l.count(t, `SELECT count(*) FROM payments WHERE attempts <> 1`); n != 0 || c.losses.Load() != 0 {
				t.Errorf("%d payments have other than one attempt, %d leases were lost", n, c.losses.Load())
			}
			l.wantBalance(t, l.poor, "20.00")
			l.wantSound(t)
		})
	}
}

// The database goes away while the hook is asked, for less than the lease: what
// was allowed, and not made, is given back when it returns.
func TestAnOutageBurnsNoAttempt(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	db := &downDB{Beginner: l.db}
	work := asking("w", func(context.Context, payment.Payment) (payment.Decision, error) {
		db.set(true)
		time.AfterFunc(300*time.Millisecond, func() { db.set(false) })
		return allow, nil
	})
	work.Workers = 1
	once := patient
	once.Attempts = 1
	c := l.pay("1.00")
	c.MaxAttempts = 1
	id := l.enqueue(t, c).ID
	l.startOn(t, db, l.bell, once, work)
	eventually(t, "it to be given back", func() bool { return l.get(t, id).LastCode == payment.CodeUnavailable })
	if p := l.get(t, id); p.Attempts > 1 || len(p.Failures) > 0 {
		t.Errorf("payment = %+v, want no attempt counted", p)
	}
}

// A payment that waits for its account, with its row locked, keeps no heartbeat
// from the others.
func TestHeartbeatsDoNotWaitForWhatIsBeingMade(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	locked, other := l.open(t), l.open(t)
	l.fund(t, other, "2.00")
	work := asking("w", func(ctx context.Context, p payment.Payment) (payment.Decision, error) {
		if p.CreditAccountID == locked {
			return allow, nil
		}
		select {
		case <-time.After(6 * time.Second):
		case <-ctx.Done():
		}
		return allow, ctx.Err()
	})
	work.Lease = 4 * time.Second
	toLocked := l.pay("1.00")
	toLocked.CreditAccountID = locked
	stuck := l.enqueue(t, toLocked).ID
	_, err := retry.Tx(t.Context(), l.db, pgx.TxOptions{}, patient, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if _, err := tx.Exec(ctx, `SELECT FROM accounts WHERE id = $1 FOR UPDATE`, locked); err != nil {
			return struct{}{}, err
		}
		c := l.start(t, work)
		elsewhere := l.pay("2.00") // since the first one may hold its debit account
		elsewhere.DebitAccountID = other
		p := l.wantStatus(t, l.enqueue(t, elsewhere).ID, payment.Done)
		if p.Attempts != 1 || c.losses.Load() != 0 {
			t.Errorf("%d attempts, %d leases lost, want 1 and none", p.Attempts, c.losses.Load())
		}
		return struct{}{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l.wantStatus(t, stuck, payment.Done)
	l.wantSound(t)
}

// An attempt that finds an account locked is given back.
func TestAnAllowedPaymentThatMeetsALockIsGivenBack(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	impatient := patient
	impatient.LockTimeout = 20 * time.Millisecond
	_, err := retry.Tx(t.Context(), l.db, pgx.TxOptions{}, patient, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if _, err := tx.Exec(ctx, `SELECT FROM accounts WHERE id = $1 FOR UPDATE`, l.poor); err != nil {
			return struct{}{}, err
		}
		l.startOn(t, l.db, l.bell, impatient, asking("w", decides(allow)))
		id := l.enqueue(t, l.pay("1.00")).ID
		eventually(t, "one given back", func() bool {
			p := l.get(t, id)
			return p.LastCode == payment.CodeLockUnavailable && p.Status != payment.Processing && p.Attempts == 0
		})
		return struct{}{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it", func() bool { return l.countStatus(t, payment.Done) == 1 })
}

// Row 47 of the lessons: a worker whose clock differs from the database's by ten
// minutes, here seen from the other side: the database's functions of time are
// replaced by some that differ.
func TestTheClockOfAWorkerDoesNotMatter(t *testing.T) {
	t.Parallel()
	for _, skew := range []string{"10 minutes", "-10 minutes"} {
		t.Run(skew, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.exec(t, `CREATE SCHEMA skewed`)
			for _, name := range []string{"clock_timestamp", "now"} {
				l.exec(t, fmt.Sprintf(`CREATE FUNCTION skewed.%s() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.%s() + interval ''%s'''`, name, name, skew))
			}
			l.exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = skewed, pg_catalog, public', current_database()); END $$`)
			skewed := l.pool(t, 10)
			payments := payment.New(skewed, patient, l.bell.Ring)

			var runs sync.Map
			work := asking("w", func(ctx context.Context, p payment.Payment) (payment.Decision, error) {
				if _, twice := runs.LoadOrStore(p.ID, true); twice {
					t.Errorf("payment %s was worked on twice", p.ID)
				}
				select {
				case <-time.After(5 * time.Second): // longer than the lease
				case <-ctx.Done():
				}
				return allow, ctx.Err()
			})
			work.Lease = 4 * time.Second
			one := l.startOn(t, skewed, l.bell, patient, work)
			work.Name = "x"
			other := l.startOn(t, skewed, l.bell, patient, work)
			c := l.pay("1.00")
			var due []uuid.UUID
			for range 4 {
				p, _, err := payments.Enqueue(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				due = append(due, p.ID)
			}
			for _, id := range due {
				if p := l.wantStatus(t, id, payment.Done); p.Attempts != 1 {
					t.Errorf("%d attempts, want 1", p.Attempts)
				}
			}
			one.end()
			other.end()
			if n := one.losses.Load() + other.losses.Load(); n != 0 {
				t.Errorf("%d leases were lost", n)
			}
		})
	}
}

package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// An answer is what [transfer.Service.Create] returned.
type answer struct {
	transfer transfer.Transfer
	replayed bool
	err      error
}

// ask sends c, and returns where its answer comes.
func ask(t testing.TB, s *transfer.Service, c transfer.Command) <-chan answer {
	answered := make(chan answer, 1)
	go func() {
		made, replayed, err := s.Create(t.Context(), c)
		answered <- answer{made, replayed, err}
	}()
	return answered
}

// inOneGroup sends commands that move as one group, in their order. Another
// transfer, of a command of the test's, goes ahead and holds the lane.
func inOneGroup(t *testing.T, db retry.Beginner, g transfer.Grouping, locking transfer.Locking, policy retry.Policy, ahead transfer.Command, cs []transfer.Command) (*transfer.Service, []<-chan answer) {
	t.Helper()
	atWork, begin := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(atWork) })
	g.Lanes, g.OnGroup = 1, func(int) { once(); <-begin }
	if locking.EachRow {
		db = shardedDB{db}
	}
	s := transfer.New(db, transfer.Pessimistic, locking, policy).Grouped(g)
	first := ask(t, s, ahead)
	<-atWork
	var answers []<-chan answer
	for i, c := range cs {
		answers = append(answers, ask(t, s, c))
		waitForQueued(t, s, i+1)
	}
	close(begin)
	if a := <-first; a.err != nil {
		t.Fatalf("the transfer ahead: %v", a.err)
	}
	return s, answers
}

func waitForQueued(t *testing.T, s *transfer.Service, n int) {
	t.Helper()
	waitUntil(t, fmt.Sprintf("%d are queued", n), func() bool { queued, _ := s.Waiting(); return queued == n })
}

func waitForParked(t *testing.T, s *transfer.Service, n int) {
	t.Helper()
	waitUntil(t, fmt.Sprintf("%d are parked", n), func() bool { _, parked := s.Waiting(); return parked == n })
}

func waitUntil(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for range 60_000 {
		if reached() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("waited in vain until %s", what)
}

func wantNoAnswer(t *testing.T, answers []<-chan answer) {
	t.Helper()
	for i, answered := range answers {
		select {
		case a := <-answered:
			t.Errorf("%d was answered while it had to wait: %+v", i, a)
		default:
		}
	}
}

// hold keeps accounts locked until letGo.
func (l *ledger) hold(t *testing.T, lock string, ids ...uuid.UUID) (letGo func()) {
	t.Helper()
	other := l.session(t)
	if _, err := other.Exec(t.Context(), `SELECT FROM accounts WHERE id = ANY($1) ORDER BY id `+lock, ids); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := other.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// The promise of groups: a row that somebody else keeps delays the transfers
// on it, and nobody else's.
func TestAHeldAccountHoldsUpOnlyItsOwnTransfers(t *testing.T) {
	inModes(t, func(mode way) bool { return mode.grouped }, testAHeldAccount)
}

func testAHeldAccount(t *testing.T, mode way) {
	l := newLedger(t)
	s := mode.service(l.db, patient)
	var ids []uuid.UUID
	for range 10 {
		ids = append(ids, l.open(t, "USD", "1000", "0"))
	}
	held, others := ids[0], ids[1:]
	letGo := l.hold(t, "FOR UPDATE", held)

	const holders = 12
	var waiting []<-chan answer
	for i := range holders {
		c := between(held, others[i%len(others)], "1", "USD")
		if i%2 == 0 {
			c = keyed(c, fmt.Sprint(i))
		}
		waiting = append(waiting, ask(t, s, c))
	}
	waitForParked(t, s, holders)
	together(20, func(i int) {
		for n := range 50 {
			from := (i + n) % len(others)
			c := between(others[from], others[(from+1)%len(others)], "0.01", "USD")
			if n%2 == 0 {
				c = keyed(c, fmt.Sprintf("%d of %d", n, i))
			}
			if _, replayed, err := s.Create(t.Context(), c); err != nil || replayed {
				t.Errorf("beside a held account: replayed %v, error %v, want a new transfer", replayed, err)
			}
		}
	})
	wantNoAnswer(t, waiting)
	if n := count(t, l, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`); n > 1 {
		t.Errorf("%d sessions wait for one row, want one", n)
	}
	letGo()
	for i, answered := range waiting {
		if a := <-answered; a.err != nil || a.replayed {
			t.Errorf("%d, when the account was free: replayed %v, error %v, want a new transfer", i, a.replayed, a.err)
		}
	}
	l.wantBalance(t, held, "988")
	l.wantSound(t)
}

// The probe takes the lock that the group takes: a foreign key's check is not
// in its way, and so the row is not busy.
func TestOnlyWhatIsInTheWayIsBusy(t *testing.T) {
	t.Parallel()
	for _, locking := range []transfer.Locking{{NoKeyUpdate: true}, {NoKeyUpdate: true, NoWait: true}, {NoKeyUpdate: true, EachRow: true}} {
		t.Run(fmt.Sprintf("%+v", locking), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			a, b := l.openPair(t, "USD", "100")
			c, d := l.openPair(t, "USD", "100")
			letGo := l.hold(t, "FOR UPDATE", a)
			defer l.hold(t, "FOR KEY SHARE", b, c, d)()
			s, answers := inOneGroup(t, l.db, grouping, locking, patient, between(c, d, "1", "USD"), []transfer.Command{
				between(a, b, "1", "USD"), between(c, b, "1", "USD"), keyed(between(c, d, "1", "USD"), "k"), between(uuid.Must(uuid.NewV7()), b, "1", "USD"),
			})
			for i, want := range map[int]error{1: nil, 2: nil, 3: transfer.ErrAccountNotFound} {
				if a := <-answers[i]; !errors.Is(a.err, want) {
					t.Errorf("%d: error = %v, want %v: nothing was in the way", i, a.err, want)
				}
			}
			var want error = retry.ErrLockUnavailable
			if !locking.NoWait {
				waitForParked(t, s, 1)
				wantNoAnswer(t, answers[:1])
				letGo()
				want = nil
			}
			if a := <-answers[0]; !errors.Is(a.err, want) {
				t.Errorf("error = %v, want %v", a.err, want)
			}
			l.wantSound(t)
		})
	}
}

func TestAKeyThatIsBeingUsedHoldsUpOnlyItself(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"carried out", "given up"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			a, b := l.openPair(t, "USD", "100")
			c, d := l.openPair(t, "USD", "100")
			busy := keyed(between(a, b, "1", "USD"), "busy")

			// Another process is at work on the key, and not yet done.
			once := patient
			once.Attempts = 1
			var open pgx.Tx
			slow := &lossyDB{Beginner: l.db, lose: func(_ context.Context, tx pgx.Tx) { open = tx }}
			wantError(t, transfer.New(slow, transfer.Pessimistic, transfer.Locking{}, once), busy, retry.ErrCommitUnknown)

			s, answers := inOneGroup(t, l.db, grouping, transfer.Locking{}, patient, between(c, d, "1", "USD"), []transfer.Command{
				keyed(between(c, d, "1", "USD"), "a"), busy, keyed(between(c, d, "1", "USD"), "z"), between(d, c, "1", "USD"),
			})
			for _, i := range []int{0, 2, 3} {
				if a := <-answers[i]; a.err != nil || a.replayed {
					t.Errorf("beside a busy key: replayed %v, error %v, want a new transfer", a.replayed, a.err)
				}
			}
			waitForParked(t, s, 1)
			wantNoAnswer(t, answers[1:2])
			finish := open.Commit
			if end == "given up" {
				finish = open.Rollback
			}
			if err := finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = open.Rollback(t.Context()) // gives the connection back
			if a := <-answers[1]; a.err != nil || a.replayed != (end == "carried out") {
				t.Errorf("when the other was %s: replayed %v, error %v", end, a.replayed, a.err)
			}
			l.wantBalance(t, a, "99")
			l.wantSound(t)
		})
	}
}

// One account cannot be read, and the others' transfers are made.
func TestABadAccountHurtsOnlyItsOwnTransfers(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	a, b := l.openPair(t, "USD", "100")
	bad := l.open(t, "USD", "100", "0")
	l.exec(t, `ALTER TABLE accounts DROP CONSTRAINT accounts_balance_range`)
	l.exec(t, `UPDATE accounts SET balance = 'NaN' WHERE id = $1`, bad)
	_, answers := inOneGroup(t, l.db, grouping, transfer.Locking{}, patient, between(a, b, "1", "USD"), []transfer.Command{
		between(a, b, "1", "USD"), keyed(between(bad, b, "1", "USD"), "bad"), keyed(between(b, a, "1", "USD"), "good"), between(a, b, "1000", "USD"),
	})
	for i, wantErr := range []bool{false, true, false, true} {
		if a := <-answers[i]; (a.err != nil) != wantErr {
			t.Errorf("%d: error = %v, want one: %v", i, a.err, wantErr)
		}
	}
	if n := count(t, l, `SELECT count(*) FROM idempotency_keys`); n != 1 {
		t.Errorf("%d keys are claimed, want the good one", n)
	}
	l.wantBalance(t, a, "99")
}

// The database ends the session of a group that waits, twice.
func TestAGroupWhoseSessionEndsIsMadeOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	a, b := l.openPair(t, "USD", "100")
	letGo := l.hold(t, "FOR UPDATE", b)
	patientGroups := grouping
	patientGroups.LockWait = time.Minute
	c, d := l.openPair(t, "USD", "100")
	_, answers := inOneGroup(t, l.db, patientGroups, transfer.Locking{}, patient, between(c, d, "1", "USD"), []transfer.Command{
		between(a, b, "1", "USD"), keyed(between(a, b, "1", "USD"), "k"), keyed(between(a, b, "1000", "USD"), "poor"),
	})
	for range 2 {
		l.waitForWaiters(t, 1)
		l.exec(t, `SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	}
	l.waitForWaiters(t, 1)
	letGo()
	for i, want := range []error{nil, nil, transfer.ErrInsufficientFunds} {
		if a := <-answers[i]; !errors.Is(a.err, want) || a.replayed {
			t.Errorf("%d: replayed %v, error %v, want %v", i, a.replayed, a.err, want)
		}
	}
	l.wantBalance(t, a, "98")
	l.wantSound(t)
}

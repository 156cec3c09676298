package transfer_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// A transfer that waits for a row must judge what it finds when it gets it.
func TestFundsAndStatusAreJudgedAfterTheLock(t *testing.T) {
	inSafeModes(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		low, high := l.openPair(t, "USD", "0")
		for _, tt := range []struct {
			name     string
			meantime string
			command  transfer.Command
			want     error // nil: done
		}{
			{"drained", `UPDATE accounts SET balance = 0, version = version + 1 WHERE id = $1`, between(low, high, "100", "USD"), transfer.ErrInsufficientFunds},
			{"drained by a part", `UPDATE accounts SET balance = 99.99, version = version + 1 WHERE id = $1`, between(low, high, "100", "USD"), transfer.ErrInsufficientFunds},
			{"frozen payer", `UPDATE accounts SET status = 'frozen' WHERE id = $1`, between(low, high, "100", "USD"), transfer.ErrAccountFrozen},
			{"frozen payee", `UPDATE accounts SET status = 'frozen' WHERE id = $1`, between(high, low, "100", "USD"), transfer.ErrAccountFrozen},
			{"closed payee", `UPDATE accounts SET status = 'closed', balance = 0 WHERE id = $1`, between(high, low, "100", "USD"), transfer.ErrAccountClosed},
			{"touched", `UPDATE accounts SET name = 'touched' WHERE id = $1`, between(low, high, "100", "USD"), nil},
		} {
			l.exec(t, `UPDATE accounts SET balance = 100, status = 'open' WHERE id IN ($1, $2)`, low, high)
			other := l.session(t)
			if _, err := other.Exec(t.Context(), tt.meantime, low); err != nil {
				t.Fatal(err)
			}
			answered := make(chan error)
			go func() {
				_, _, err := mode.service(l.db, patient).Create(t.Context(), tt.command)
				answered <- err
			}()
			l.waitForWaiters(t, 1)
			if err := other.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-answered; !errors.Is(err, tt.want) {
				t.Errorf("%s while it waited: error = %v, want %v", tt.name, err, tt.want)
			}
		}
	})
}

// The lower id is locked first, whichever side it is, and also across modes: a
// transfer that waits for the higher one holds the lower one, and not the other
// way round.
func TestLocksAreTakenInTheOrderOfIDs(t *testing.T) {
	t.Parallel()
	for _, mode := range []*transfer.Mode{transfer.Pessimistic, transfer.Atomic} {
		for _, opposite := range []bool{false, true} {
			l := newLedger(t)
			low, high := l.openPair(t, "USD", "100")
			l.exec(t, `UPDATE accounts SET min_balance = -100 WHERE kind = 'customer'`)
			debit, credit := low, high
			if opposite {
				debit, credit = high, low
			}
			for _, tt := range []struct {
				held, probed uuid.UUID
				locked       bool
			}{{high, low, true}, {low, high, false}} {
				other := l.session(t)
				if _, err := other.Exec(t.Context(), `SELECT FROM accounts WHERE id = $1 FOR UPDATE`, tt.held); err != nil {
					t.Fatal(err)
				}
				answered := make(chan error)
				go func() {
					_, _, err := l.service(mode).Create(t.Context(), between(debit, credit, "1", "USD"))
					answered <- err
				}()
				l.waitForWaiters(t, 1)
				free := count(t, l, `SELECT count(*) FROM (SELECT id FROM accounts WHERE id = $1 FOR UPDATE SKIP LOCKED) free`, tt.probed)
				if locked := free == 0; locked != tt.locked {
					t.Errorf("%s, opposite %v: while it waits, the other account is locked: %v, want %v", mode.Name, opposite, locked, tt.locked)
				}
				if err := other.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-answered; err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// The mode that looks at nothing again still meets the table's own guard, and
// then sees that the account is closed.
func TestNoneDoesNotPayIntoAnAccountThatWasClosed(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	low, high := l.openPair(t, "USD", "0")
	l.exec(t, `UPDATE accounts SET balance = 100 WHERE id = $1`, high)
	other := l.session(t)
	if _, err := other.Exec(t.Context(), `UPDATE accounts SET status = 'closed' WHERE id = $1`, low); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error)
	go func() {
		_, _, err := l.service(transfer.None).Create(t.Context(), between(high, low, "100", "USD"))
		answered <- err
	}()
	l.waitForWaiters(t, 1)
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; !errors.Is(err, transfer.ErrAccountClosed) {
		t.Errorf("error = %v, want %v", err, transfer.ErrAccountClosed)
	}
}

func TestFundsThatComeWhileItWaitsCount(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	low, high := l.openPair(t, "USD", "0")
	other := l.session(t)
	if _, err := other.Exec(t.Context(), `UPDATE accounts SET balance = 100, version = version + 1 WHERE id = $1`, low); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error)
	go func() {
		_, _, err := l.service(transfer.Pessimistic).Create(t.Context(), between(low, high, "100", "USD"))
		answered <- err
	}()
	l.waitForWaiters(t, 1)
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("error = %v, want none", err)
	}
}

func TestAHeldRowIsNoRefusal(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		low, high := l.openPair(t, "USD", "100")
		other := l.session(t)
		if _, err := other.Exec(t.Context(), `SELECT FROM accounts WHERE id IN ($1, $2) FOR UPDATE`, low, high); err != nil {
			t.Fatal(err)
		}
		var lost conflicts
		impatient := lost.watch(patient)
		impatient.LockTimeout = time.Millisecond
		s := mode.service(l.db, impatient)
		c := keyed(between(low, high, "1", "USD"), "k")
		wantError(t, s, c, retry.ErrLockUnavailable)
		if lost.of("55P03") != 0 {
			t.Error("a lock timeout was repeated")
		}
		if err := other.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		create(t, mode.service(l.db, patient), c) // the key is still free
		l.wantSound(t)
	})
}

func TestNoWaitAnswersAtOnce(t *testing.T) {
	inPessimisticModes(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		low, high := l.openPair(t, "USD", "100")
		other := l.session(t)
		if _, err := other.Exec(t.Context(), `SELECT FROM accounts WHERE id = $1 FOR UPDATE`, high); err != nil {
			t.Fatal(err)
		}
		for _, locking := range []transfer.Locking{{NoWait: true}, {NoWait: true, NoKeyUpdate: true}} {
			s := mode.locking(l.db, locking, patient) // which would wait for a minute
			wantError(t, s, between(low, high, "1", "USD"), retry.ErrLockUnavailable)
			wantError(t, s, between(high, low, "1", "USD"), retry.ErrLockUnavailable)
		}
		if err := other.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		create(t, mode.locking(l.db, transfer.Locking{NoWait: true}, patient), between(low, high, "1", "USD"))
	})
}

// A foreign key of somebody else's table holds its row FOR KEY SHARE, which
// only the stronger lock waits for.
func TestNoKeyUpdateLetsForeignKeysBeChecked(t *testing.T) {
	inPessimisticModes(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		low, high := l.openPair(t, "USD", "100")
		other := l.session(t)
		if _, err := other.Exec(t.Context(), `SELECT FROM accounts WHERE id = $1 FOR KEY SHARE`, high); err != nil {
			t.Fatal(err)
		}
		c := between(low, high, "1", "USD")
		wantError(t, mode.locking(l.db, transfer.Locking{NoWait: true}, patient), c, retry.ErrLockUnavailable)
		create(t, mode.locking(l.db, transfer.Locking{NoWait: true, NoKeyUpdate: true}, patient), c)
	})
}

// The atomic mode once locked the lower account after the higher one when it
// took a refused transfer back, and opposite transfers deadlocked.
func TestAnAtomicRefusalWaitsForNoRow(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	low, high := l.openPair(t, "USD", "0")
	create(t, l.service(transfer.Pessimistic), transfer.NewCredit(low, number("1"), "USD"))
	create(t, l.service(transfer.Pessimistic), transfer.NewCredit(high, number("1"), "USD"))
	other := l.session(t)
	if _, err := other.Exec(t.Context(), `SELECT FROM accounts WHERE id = $1 FOR UPDATE`, low); err != nil {
		t.Fatal(err)
	}
	impatient := patient
	impatient.LockTimeout = time.Millisecond
	s := transfer.New(l.db, transfer.Atomic, transfer.Locking{}, impatient)
	wantError(t, s, between(low, high, "2", "USD"), transfer.ErrInsufficientFunds)
}

// Row 26 of the lessons: an unreadable row is an error, no zero and no panic.
func TestABalanceThatIsNoNumberIsAnError(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	low, high := l.openPair(t, "USD", "100")
	l.exec(t, `ALTER TABLE accounts DROP CONSTRAINT accounts_balance_range`)
	for _, bad := range []uuid.UUID{low, high} {
		l.exec(t, `UPDATE accounts SET balance = 'NaN' WHERE id = $1`, bad)
		if account, err := l.accounts.Get(t.Context(), bad); err == nil {
			t.Errorf("account with a balance of NaN = %+v, want an error", account)
		}
		for _, mode := range ways() {
			for _, c := range []transfer.Command{between(low, high, "1", "USD"), between(high, low, "1", "USD"), transfer.NewCredit(bad, number("1"), "USD"), transfer.NewDebit(bad, number("1"), "USD")} {
				made, _, err := mode.service(l.db, patient).Create(t.Context(), keyed(c, mode.String()))
				var refusal *transfer.Refusal
				if err == nil || errors.As(err, &refusal) || !strings.Contains(err.Error(), "NaN") {
					t.Errorf("%s: %s of an account with NaN = %s, %v, want an error that names it", mode.Name, c.Kind, made.ID, err)
				}
			}
		}
		l.exec(t, `UPDATE accounts SET balance = 100 WHERE id = $1`, bad)
	}
	create(t, l.service(transfer.Pessimistic), between(low, high, "1", "USD"))
}

package transfer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/retry"
)

func TestABusyRowHoldsUpOnlyWhoNeedsIt(t *testing.T) {
	inBubble(t, Grouping{}, func(t *testing.T, f *fakeDB) {
		f.keep(account[0], true)
		f.sendAll("a")
		f.send(t.Context(), "held", command(0, 1))
		f.sendAll("b")
		f.send(t.Context(), "held too", command(2, 0))
		time.Sleep(lockWait + 3*groupTime)
		f.wantAnswer(nil, "a", "b")
		f.send(t.Context(), "held later", command(0, 3)) // costs no group its time
		f.sendAll("c")
		time.Sleep(groupTime + ms)
		f.wantAnswer(nil, "c")
		f.wantWaiting(0, 3)
		f.wantWaits(1)
		f.keep(account[0], false)
		f.wantMoved("a", "held b held too!", "b", "c", "held held too held later")
		f.wantAnswer(nil, "held", "held too", "held later")
	})
}

func TestWhoeverWaitedStandsWhereHeStood(t *testing.T) {
	inBubble(t, Grouping{Size: 3}, func(t *testing.T, f *fakeDB) {
		f.keep(account[0], true)
		f.keep(account[1], true)
		f.send(t.Context(), "first", command(0, 3))
		f.send(t.Context(), "second", command(1, 3))
		f.send(t.Context(), "third", command(0, 3))
		time.Sleep(3 * lockWait)
		f.fail = func(names string) error { // lets go while another is at work
			if names == "a" {
				f.keep(account[1], false)
				f.keep(account[0], false)
				time.Sleep(10 * ms)
			}
			return nil
		}
		for _, name := range []string{"a", "b", "c"} {
			f.send(t.Context(), name, command(4, 5))
		}
		f.wantMoved("first!", "second!", "a", "first second third", "b c")
	})
}

func TestWaitsForLocksEndAtTheLockTimeout(t *testing.T) {
	inBubble(t, Grouping{}, func(t *testing.T, f *fakeDB) {
		f.keep(account[0], true)
		f.send(t.Context(), "early", command(0, 1)) // waits from 50 ms on
		time.Sleep(time.Second)
		f.send(t.Context(), "late", command(0, 1)) // from 1 s on
		time.Sleep(1500 * ms)
		f.wantAnswer(retry.ErrLockUnavailable, "early")
		f.wantAnswerAt("early", lockWait+lockTimeout)
		f.keep(account[0], false)
		f.wantMoved("early!", "late")
		f.wantAnswer(nil, "late")
	})
}

func TestThereAreNoMoreWaitersThanPlaces(t *testing.T) {
	inBubble(t, Grouping{Waiters: 4}, func(t *testing.T, f *fakeDB) {
		for i := range 8 {
			f.keep(account[i], true)
			f.send(t.Context(), fmt.Sprint(i), command(i, 9))
		}
		time.Sleep(time.Second)
		f.mu.Lock()
		if f.waiters != 4 {
			t.Errorf("%d waiters, want 4", f.waiters)
		}
		f.mu.Unlock()
		for i := range 8 {
			f.keep(account[i], false)
		}
		f.callers.Wait()
		f.wantAnswer(nil, "0", "1", "2", "3", "4", "5", "6", "7")
	})
}

// All want one row, and the room is full of them: the queue is not.
func TestTheWaitingRoomLeavesRoomForOthers(t *testing.T) {
	inBubble(t, Grouping{Queue: 10}, func(t *testing.T, f *fakeDB) {
		f.keep(account[0], true)
		for i := range 20 {
			f.send(t.Context(), fmt.Sprint(i), command(0, 1))
			time.Sleep(2 * groupTime)
		}
		f.sendAll("a")
		time.Sleep(groupTime + ms)
		f.wantAnswer(nil, "a")
		f.wantAnswer(retry.ErrLockUnavailable, "19")
		f.wantWaiting(0, 6)
		f.keep(account[0], false)
		f.callers.Wait()
		f.wantAnswer(nil, "0", "1", "2", "3", "4")
	})
}

func TestWhoLeavesTheWaitingRoomIsDropped(t *testing.T) {
	inBubble(t, Grouping{}, func(t *testing.T, f *fakeDB) {
		f.keep(account[0], true)
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f.send(impatient, "impatient", command(0, 1))
		f.send(t.Context(), "patient", command(0, 1))
		time.Sleep(1500 * ms)
		f.wantAnswer(retry.ErrUnavailable, "impatient")
		f.wantAnswerAt("impatient", time.Second)
		f.keep(account[0], false)
		f.wantMoved("impatient!", "patient")
		f.wantAnswer(nil, "patient")
	})
}

func TestNoWaitAnswersAGroupAtOnce(t *testing.T) {
	inBubble(t, Grouping{}, func(t *testing.T, f *fakeDB) {
		f.noWait = true
		f.keep(account[0], true)
		f.sendAll("a")
		f.send(t.Context(), "held", command(0, 1))
		f.sendAll("b")
		f.wantMoved("a", "held b!", "b")
		f.wantAnswer(nil, "a", "b")
		f.wantAnswer(retry.ErrLockUnavailable, "held")
		f.wantAnswerAt("held", groupTime)
		f.wantWaits(0)
	})
}

func TestABusyKeyHoldsUpOnlyWhoNeedsIt(t *testing.T) {
	for _, noWait := range []bool{false, true} { // which is about accounts
		t.Run(fmt.Sprintf("nowait %v", noWait), func(t *testing.T) {
			inBubble(t, Grouping{}, func(t *testing.T, f *fakeDB) {
				f.noWait = noWait
				k := command(1, 2)
				k.Key = &idempotency.Key{Value: "k"}
				f.keep(*k.Key, true)
				f.sendAll("a")
				f.send(t.Context(), "k1", k)
				f.sendAll("b")
				time.Sleep(time.Second)
				f.send(t.Context(), "k2", k)
				f.sendAll("c")
				time.Sleep(groupTime + ms)
				f.wantAnswer(nil, "a", "b", "c")
				f.keep(*k.Key, false)
				f.wantMoved("a", "k1 b!", "k1!", "b", "c", "k1", "k2")
				f.wantAnswer(nil, "k1", "k2")
			})
		})
	}
}

// Which key it was nobody can see, so all run apart: a busy row that is found
// meanwhile says nothing of it.
func TestABusyKeySendsItsGroupApart(t *testing.T) {
	inBubble(t, Grouping{}, func(t *testing.T, f *fakeDB) {
		k := command(1, 2)
		k.Key = &idempotency.Key{Value: "k"}
		f.keep(*k.Key, true)
		f.keep(account[0], true)
		f.sendAll("a")
		f.send(t.Context(), "k", k)
		f.send(t.Context(), "held", command(0, 1))
		f.sendAll("b")
		time.Sleep(time.Second)
		f.wantAnswer(nil, "a", "b")
		f.wantWaiting(0, 2)
		f.wantWaits(2)
		f.keep(*k.Key, false)
		time.Sleep(groupTime / 2)
		f.keep(account[0], false)
		f.wantMoved("a", "k held b!", "k!", "held!", "b", "k", "held")
	})
}

// A lock that is gone whenever somebody looks: nobody waits for it for ever.
func TestALockThatComesAndGoesEndsAtTheLockTimeout(t *testing.T) {
	inBubble(t, Grouping{}, func(t *testing.T, f *fakeDB) {
		f.fail = func(names string) error {
			if strings.Contains(names, "unlucky") {
				return retry.ErrLockUnavailable
			}
			return nil
		}
		f.sendAll("a", "unlucky", "b")
		f.callers.Wait()
		f.wantAnswer(nil, "a", "b")
		f.wantAnswer(retry.ErrLockUnavailable, "unlucky")
		f.wantAnswerAt("unlucky", lockTimeout+3*groupTime) // after a, with b, and apart
	})
}

package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/retry"
)

func TestAGroupFillsWhileOneIsAtWork(t *testing.T) {
	inBubble(t, Grouping{}, func(t *testing.T, f *fakeDB) {
		f.sendAll("a", "b", "c")
		time.Sleep(groupTime + ms)
		f.sendAll("d")
		f.wantMoved("a", "b c", "d")
		f.wantAnswer(nil, "a", "b", "c", "d")
		f.wantAnswerAt("a", groupTime) // nobody waits for company
	})
}

func TestAGroupIsNoLargerThanItsSize(t *testing.T) {
	var sizes []int
	inBubble(t, Grouping{Size: 2, OnGroup: func(size int) { sizes = append(sizes, size) }}, func(t *testing.T, f *fakeDB) {
		f.sendAll("a", "b", "c", "d", "e", "f")
		f.wantMoved("a", "b c", "d e", "f")
		if want := []int{1, 2, 2, 1}; !slices.Equal(sizes, want) {
			t.Errorf("OnGroup was told %v, want %v", sizes, want)
		}
	})
}

func TestLanesWorkOnDifferentAccounts(t *testing.T) {
	inBubble(t, Grouping{Lanes: 2}, func(t *testing.T, f *fakeDB) {
		f.send(t.Context(), "a", command(1, 2))
		time.Sleep(ms)
		f.send(t.Context(), "b", command(2, 3)) // a has one of its accounts
		f.send(t.Context(), "c", command(3, 4)) // b is before it
		f.wantWaiting(2, 0)
		f.send(t.Context(), "d", command(5, 6))
		f.send(t.Context(), "e", command(7, 8)) // both lanes are at work
		f.wantWaiting(3, 0)
		f.wantMoved("a", "d", "b c e")
	})
}

func TestALaneBeginsNoSmallerGroupThanIsAtWork(t *testing.T) {
	inBubble(t, Grouping{Lanes: 2}, func(t *testing.T, f *fakeDB) {
		for i, name := range []string{"a", "b", "c", "d"} {
			f.send(t.Context(), name, command(0, i+1))
		}
		time.Sleep(groupTime + ms) // now three are at work
		f.send(t.Context(), "e", command(5, 6))
		f.send(t.Context(), "f", command(7, 8))
		f.wantWaiting(2, 0)
		f.send(t.Context(), "g", command(9, 5))
		f.wantWaiting(0, 0)
		f.wantMoved("a", "b c d", "e f g")
		f.wantAnswerAt("g", 2*groupTime+ms)
	})
}

func TestAFreeLaneTakesWhatAFullGroupLeaves(t *testing.T) {
	inBubble(t, Grouping{Lanes: 2, Size: 1}, func(t *testing.T, f *fakeDB) {
		f.send(t.Context(), "a", command(1, 2))
		f.send(t.Context(), "b", command(1, 3))
		f.send(t.Context(), "c", command(2, 4))
		f.callers.Wait()
		f.wantAnswerAt("b", 2*groupTime)
		f.wantAnswerAt("c", 2*groupTime)
	})
}

func TestTwoOfOneKeyAreNotAtWorkAtOnce(t *testing.T) {
	inBubble(t, Grouping{Lanes: 2}, func(t *testing.T, f *fakeDB) {
		for i, name := range []string{"k1", "k2"} {
			c := command(2*i, 2*i+1)
			c.Key = &idempotency.Key{Value: "k"}
			f.send(t.Context(), name, c)
		}
		f.wantMoved("k1", "k2")
	})
}

func TestTwoOfOneKeyNeverShareAGroup(t *testing.T) {
	inBubble(t, Grouping{}, func(t *testing.T, f *fakeDB) {
		k := command(1, 2)
		k.Key = &idempotency.Key{Value: "k"}
		other := k
		other.Key = &idempotency.Key{Principal: "somebody else", Value: "k2"}
		f.sendAll("a")
		f.send(t.Context(), "k1", k)
		f.send(t.Context(), "k2", k)
		f.sendAll("b")
		f.send(t.Context(), "other", other)
		f.send(t.Context(), "k3", k)
		f.wantMoved("a", "k1 b other", "k2", "k3")
	})
}

func TestAFullQueueRefusesEarly(t *testing.T) {
	inBubble(t, Grouping{Queue: 2}, func(t *testing.T, f *fakeDB) {
		f.sendAll("a", "b", "c", "d")
		f.wantAnswer(ErrOverloaded, "d") // at once
		f.wantMoved("a", "b c")
		f.sendAll("e")
		f.wantMoved("a", "b c", "e")
	})
}

func TestWhoLeavesBeforeTheGroupBeginsIsDropped(t *testing.T) {
	inBubble(t, Grouping{Queue: 4}, func(t *testing.T, f *fakeDB) {
		gone, leave := context.WithCancel(t.Context())
		closed := make(chan struct{})
		noted := command(1, 2)
		noted.Left = closed // the caller waits on, but whom he works for has left
		f.sendAll("a", "b")
		f.send(gone, "gone", command(1, 2))
		f.send(t.Context(), "left", noted)
		f.sendAll("c")
		leave()
		close(closed)
		synctest.Wait()
		f.wantAnswer(retry.ErrUnavailable, "gone") // at once
		f.sendAll("d")                             // gone's place in the queue is free
		f.wantMoved("a", "b c d")
		f.wantAnswer(retry.ErrUnavailable, "gone", "left")
		f.wantAnswer(nil, "a", "b", "c", "d")
	})
}

func TestWhoLeavesAfterTheGroupBeganIsMadeAllTheSame(t *testing.T) {
	inBubble(t, Grouping{}, func(t *testing.T, f *fakeDB) {
		impatient, cancel := context.WithTimeout(t.Context(), groupTime+groupTime/2)
		defer cancel()
		f.sendAll("a")
		f.send(impatient, "impatient", command(1, 2))
		f.sendAll("b")
		f.wantMoved("a", "impatient b")
		f.wantAnswer(nil, "a", "b")
		f.wantAnswer(retry.ErrCommitUnknown, "impatient")
		f.wantAnswerAt("impatient", groupTime+groupTime/2)
	})
}

func TestABadMemberHurtsNoOther(t *testing.T) {
	inBubble(t, Grouping{}, func(t *testing.T, f *fakeDB) {
		broken := errors.New("broken")
		f.fail = func(names string) error {
			if strings.Contains(names, "bad") {
				return broken
			}
			return nil
		}
		f.sendAll("a", "b", "bad", "c")
		f.wantMoved("a", "b bad c!", "b", "bad!", "c")
		f.wantAnswer(nil, "a", "b", "c")
		f.wantAnswer(broken, "bad")
	})
}

// The rest of a group that runs apart may take long.
func TestAGroupApartKeepsNoLaneShut(t *testing.T) {
	inBubble(t, Grouping{Lanes: 2}, func(t *testing.T, f *fakeDB) {
		broken := errors.New("broken")
		f.fail = func(names string) error {
			if len(names) > 1 {
				return broken
			}
			return nil
		}
		f.sendAll("a", "b", "c", "d")
		time.Sleep(2*groupTime + ms) // b, c and d are apart
		f.send(t.Context(), "e", command(3, 4))
		f.wantMoved("a", "b c d!", "b", "e", "c", "d")
	})
}

func TestAPanicOfALoneCallerLeavesItsLaneToOthers(t *testing.T) {
	var panicked bool
	onGroup := func(int) {
		if !panicked {
			panicked = true
			panic("told by a test")
		}
	}
	inBubble(t, Grouping{OnGroup: onGroup}, func(t *testing.T, f *fakeDB) {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic, want the caller's")
				}
			}()
			f.move(t.Context(), moveOf(command(1, 2)))
		}()
		f.sendAll("a")
		f.wantMoved("a")
	})
}

func TestErrorsThatAreNoMembersFaultGoToAll(t *testing.T) {
	for _, tt := range []error{
		retry.ErrUnavailable,
		&retry.ExhaustedError{Attempts: 20, Last: retry.ErrConflict},
		retry.ErrCommitUnknown,
		// What was tried to find it out met a lock: not to be mistaken for a
		// group that met one, which would be made again.
		fmt.Errorf("%w: %w", retry.ErrCommitUnknown, retry.ErrLockUnavailable),
	} {
		t.Run(tt.Error(), func(t *testing.T) {
			inBubble(t, Grouping{}, func(t *testing.T, f *fakeDB) {
				f.fail = func(string) error { return tt }
				f.sendAll("a", "b", "c")
				f.wantMoved("a!", "b c!")
				f.wantAnswer(tt, "a", "b", "c")
			})
		})
	}
}

func TestGroupsWorkForCallersWithoutADeadline(t *testing.T) {
	inBubble(t, Grouping{}, func(t *testing.T, f *fakeDB) {
		ctx, cancel := lastDeadline([]*member{{ctx: t.Context()}})
		defer cancel()
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != unboundedWait {
			t.Errorf("the group's deadline is %v from now (%v), want %v", time.Until(deadline), ok, unboundedWait)
		}
	})
}

// Whatever happens at whatever time, everybody is answered, nobody's transfer
// is made twice, and the answer is true.
func TestEveryCallerGetsOneTrueAnswer(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := Grouping{Size: 1 + int(seed%7), Lanes: 1 + int(seed%3), Queue: 20, Waiters: 2}
			inBubble(t, g, func(t *testing.T, f *fakeDB) {
				random := rand.New(rand.NewPCG(seed, 0))
				f.noWait = seed%5 == 0
				var failing sync.Mutex
				faults := rand.New(rand.NewPCG(seed, 1))
				f.fail = func(names string) error {
					failing.Lock()
					defer failing.Unlock()
					return map[int]error{
						0: retry.ErrUnavailable, 1: retry.ErrCommitUnknown, 2: errors.New("broken"), 3: retry.ErrLockUnavailable,
						4: fmt.Errorf("%w: %w", retry.ErrCommitUnknown, retry.ErrLockUnavailable),
					}[faults.IntN(25)]
				}
				for i := range 100 {
					c := command(random.IntN(5), 5+random.IntN(5))
					if random.IntN(2) == 0 {
						c.Key = &idempotency.Key{Value: fmt.Sprint(random.IntN(4))}
						f.keep(*c.Key, random.IntN(20) == 0)
					}
					ctx, cancel := context.WithCancel(t.Context())
					if random.IntN(4) == 0 {
						ctx, cancel = context.WithTimeout(t.Context(), time.Duration(random.IntN(200))*ms)
					}
					defer cancel()
					f.send(ctx, fmt.Sprint(i), c)
					f.keep(account[random.IntN(5)], random.IntN(10) == 0)
					time.Sleep(time.Duration(random.IntN(15)) * ms)
				}
				for l := range maps.Clone(f.kept) {
					f.keep(l, false)
				}
				f.callers.Wait()
				time.Sleep(2 * unboundedWait) // those whose callers left run to the end
				f.wantTrueAnswers(100)
			})
		})
	}
}

func (f *fakeDB) wantTrueAnswers(n int) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.groups.mu.Lock()
	defer f.groups.mu.Unlock()
	if len(f.answers) != n || len(f.queue)+f.parked+f.lanes+f.members+len(f.atWork.accounts)+len(f.atWork.keys)+len(f.room)+len(f.places) != 0 {
		f.t.Errorf("%d answers, and %d queued, %d parked, %d lanes, %d members, %d accounts and %d keys at work, %d rows, %d waiters in the end, want %d and none",
			len(f.answers), len(f.queue), f.parked, f.lanes, f.members, len(f.atWork.accounts), len(f.atWork.keys), len(f.room), len(f.places), n)
	}
	for name, err := range f.answers {
		made := f.made[name]
		switch {
		case made > 1:
			f.t.Errorf("%s was made %d times", name, made)
		case err == nil && made != 1:
			f.t.Errorf("%s was answered as made, and was not", name)
		case err != nil && !errors.Is(err, retry.ErrCommitUnknown) && made != 0:
			f.t.Errorf("%s was answered %v, and was made", name, err)
		}
	}
}

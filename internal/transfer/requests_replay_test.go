package transfer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/transfer"
)

// A requestKind is a kind of request that has an effect, made afresh: it prepares
// what it needs on two accounts that can pay 100.
type requestKind struct {
	name    string
	refused bool // it is a batch of which no member is made
	new     func(t *testing.T, l *ledger, from, to uuid.UUID) request
}

func requestKinds() []requestKind {
	hold := func(t *testing.T, l *ledger, from, to uuid.UUID) uuid.UUID {
		return openHold(t, l.service(transfer.Pessimistic), from, to, "10").ID
	}
	return []requestKind{
		{"hold", false, func(_ *testing.T, _ *ledger, from, to uuid.UUID) request {
			c := holdOf(from, to, "10")
			c.ExpiresAt, c.Description, c.Metadata = time.Now().Add(24*time.Hour), "hotel", map[string]string{"room": "12"}
			return holding(c)
		}},
		{"capture of a part", false, func(t *testing.T, l *ledger, from, to uuid.UUID) request {
			return capturing(transfer.Capture{HoldID: hold(t, l, from, to), Amount: "4", Reference: uuid.NewString(), Metadata: map[string]string{"a": "b"}})
		}},
		{"final capture", false, func(t *testing.T, l *ledger, from, to uuid.UUID) request {
			return capturing(transfer.Capture{HoldID: hold(t, l, from, to), Amount: "4", Final: true})
		}},
		{"capture of all", false, func(t *testing.T, l *ledger, from, to uuid.UUID) request {
			return capturing(transfer.Capture{HoldID: hold(t, l, from, to)})
		}},
		{"reversal of a part", false, func(t *testing.T, l *ledger, from, to uuid.UUID) request {
			return reversing(transfer.Reversal{TransferID: create(t, l.service(transfer.Pessimistic), between(from, to, "10", "USD")).ID, Amount: "4"})
		}},
		{"reversal of all", false, func(t *testing.T, l *ledger, from, to uuid.UUID) request {
			return reversing(transfer.Reversal{TransferID: create(t, l.service(transfer.Pessimistic), between(from, to, "10", "USD")).ID, Reference: uuid.NewString()})
		}},
		{"transfer with a reference", false, func(_ *testing.T, _ *ledger, from, to uuid.UUID) request {
			return creating(named(between(from, to, "10", "USD"), uuid.NewString()))
		}},
		{"atomic batch", false, func(_ *testing.T, _ *ledger, from, to uuid.UUID) request {
			return batching(true, between(from, to, "100", "USD"), named(between(to, from, "150", "USD"), uuid.NewString()), between(from, to, "50", "USD"))
		}},
		{"independent batch", false, func(_ *testing.T, _ *ledger, from, to uuid.UUID) request {
			return batching(false, between(from, to, "1000", "USD"), between(from, to, "1", "USD"), between(to, from, "1000", "USD"), between(to, from, "1", "USD"))
		}},
		{"batch of refusals", true, func(_ *testing.T, _ *ledger, from, to uuid.UUID) request {
			return batching(false, between(from, to, "1000", "USD"), between(to, from, "1000", "USD"))
		}},
	}
}

func effects(t *testing.T, l *ledger) int {
	t.Helper()
	return count(t, l, `SELECT (SELECT count(*) FROM transfers) + (SELECT count(*) FROM holds)`)
}

func TestEveryRequestIsReplayedAsItWasAnswered(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		s := mode.service(l.db, patient)
		for _, kind := range requestKinds() {
			from, to := l.openPair(t, "USD", "100")
			r := kind.new(t, l, from, to)
			first := r.send(t, s, kind.name)
			if first.err != nil || first.replayed {
				t.Fatalf("%s: replayed %v, error %v, want it done", kind.name, first.replayed, first.err)
			}
			before := effects(t, l)
			again := r.send(t, s, kind.name)
			if again.err != nil || !again.replayed {
				t.Errorf("%s: replayed %v, error %v, want a replay", kind.name, again.replayed, again.err)
			}
			if diff := cmp.Diff(first.made, again.made, sameAnswers); diff != "" {
				t.Errorf("%s: the replay differs (-first +replay):\n%s", kind.name, diff)
			}
			if n := effects(t, l); n != before {
				t.Errorf("%s: %d effects, want %d: a replay has none", kind.name, n, before)
			}
		}
		l.wantSound(t)
	})
}

func TestALostAnswerOfEveryRequestIsFoundOut(t *testing.T) {
	for name := range fates(t, nil) {
		t.Run(name, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, mode way) {
				l := newLedger(t)
				for _, kind := range requestKinds() {
					for _, key := range []string{"", kind.name} {
						if kind.refused && key == "" && strings.Contains(name, "waits") {
							continue // it writes nothing, so nobody waits for it
						}
						from, to := l.openPair(t, "USD", "100")
						r := kind.new(t, l, from, to)
						lossy := &lossyDB{Beginner: l.db, lose: fates(t, l)[name]}
						lossy.after.Store(reads(kind))
						before := effects(t, l)
						got := r.send(t, mode.service(lossy, patient), key)
						if got.err != nil || got.replayed {
							t.Fatalf("%s under %q: replayed %v, error %v, want an answer that is no replay", kind.name, key, got.replayed, got.err)
						}
						lossy.once.Do(func() { t.Errorf("%s: no answer was lost", kind.name) })
						wantOnce(t, l, before, kind.name, got)
						if key == "" {
							continue
						}
						again := r.send(t, mode.service(l.db, patient), key)
						if diff := cmp.Diff(got.made, again.made, sameAnswers); diff != "" || !again.replayed {
							t.Errorf("%s: replayed %v, and the replay differs (-first +replay):\n%s", kind.name, again.replayed, diff)
						}
					}
				}
				l.wantSound(t)
			})
		})
	}
}

// reads is how many transactions a request has that only look.
func reads(kind requestKind) int32 {
	switch kind.name {
	case "capture of a part", "final capture", "capture of all", "reversal of a part", "reversal of all":
		return 1
	}
	return 0
}

// wantOnce checks that there is what was answered, once, and nothing else.
func wantOnce(t *testing.T, l *ledger, before int, name string, got result) {
	t.Helper()
	want := 1
	switch made := got.made.(type) {
	case transfer.Batch:
		want = 0
		for _, o := range made.Outcomes {
			if o.Refusal == nil {
				want++
			}
		}
		if n := count(t, l, `SELECT count(*) FROM transfers WHERE batch_id = $1`, made.ID); n != want {
			t.Errorf("%s: %d members are stored, want %d", name, n, want)
		}
	case transfer.Transfer:
		stored, err := l.service(transfer.Pessimistic).Get(t.Context(), made.ID)
		if diff := cmp.Diff(stored, made); diff != "" || err != nil {
			t.Errorf("%s: error %v, and what was answered is not what is stored (-stored +answered):\n%s", name, err, diff)
		}
	case transfer.Hold:
		stored, err := l.service(transfer.Pessimistic).GetHold(t.Context(), made.ID)
		if diff := cmp.Diff(stored, made, sameAnswers); diff != "" || err != nil {
			t.Errorf("%s: error %v, and what was answered is not what is stored (-stored +answered):\n%s", name, err, diff)
		}
	}
	if n := effects(t, l) - before; n != want {
		t.Errorf("%s: %d effects, want %d", name, n, want)
	}
}

func TestADryRunAnswersAsIfAndKeepsNothing(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		s := mode.service(l.db, patient)
		for _, kind := range requestKinds() {
			from, to := l.openPair(t, "USD", "100")
			r := kind.new(t, l, from, to)
			before := l.contents(t)
			call := callUnder(kind.name)
			call.DryRun = true
			rehearsed := r(t.Context(), s, call)
			if rehearsed.err != nil || rehearsed.replayed {
				t.Fatalf("%s: replayed %v, error %v, want it rehearsed", kind.name, rehearsed.replayed, rehearsed.err)
			}
			if diff := cmp.Diff(before, l.contents(t)); diff != "" {
				t.Errorf("%s: the dry run has left something (-before +after):\n%s", kind.name, diff)
			}
			made := r.send(t, s, kind.name)
			if made.err != nil || made.replayed {
				t.Errorf("%s: replayed %v, error %v, want the key free after a dry run", kind.name, made.replayed, made.err)
			}
			if diff := cmp.Diff(rehearsed.made, made.made, sameAnswers, butForIDsAndTimes); diff != "" {
				t.Errorf("%s: the dry run was answered with something else (-dry +made):\n%s", kind.name, diff)
			}
			before = l.contents(t)
			replay := r(t.Context(), s, call)
			if diff := cmp.Diff(made.made, replay.made, sameAnswers); diff != "" || !replay.replayed {
				t.Errorf("%s: a dry run under a used key: replayed %v (-first +replay):\n%s", kind.name, replay.replayed, diff)
			}
			if diff := cmp.Diff(before, l.contents(t)); diff != "" {
				t.Errorf("%s: the dry run has left something (-before +after):\n%s", kind.name, diff)
			}
		}
		l.wantSound(t)
	})
}

// butForIDsAndTimes are what two makings of the same thing differ in.
var butForIDsAndTimes = cmp.FilterPath(func(p cmp.Path) bool {
	switch p.Last().String() {
	case ".ID", ".TxID", ".BatchID", ".TransferID", ".CreatedAt", ".EndedAt":
		return true
	}
	return false
}, cmp.Ignore())

// A void has no key: once more is the same.
func TestAVoidIsDoneOnce(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		for name, lose := range fates(t, l) {
			from, to := l.openPair(t, "USD", "100")
			h := openHold(t, l.service(transfer.Pessimistic), from, to, "10")
			lossy := &lossyDB{Beginner: l.db, lose: lose}
			lossy.after.Store(1)
			first := voiding(h.ID).done(t, mode.service(lossy, patient))
			lossy.once.Do(func() { t.Errorf("%s: no answer was lost", name) })
			again := voiding(h.ID).done(t, mode.service(l.db, patient))
			if diff := cmp.Diff(first.made, again.made, sameAnswers); diff != "" {
				t.Errorf("%s: once more is answered with something else (-first +second):\n%s", name, diff)
			}
			l.wantHold(t, h.ID, transfer.HoldVoided, "0")
			l.wantHeld(t, from, "0")
		}
		l.wantSound(t)
	})
}

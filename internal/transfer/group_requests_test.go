package transfer_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/transfer"
)

// inOneGroupOf sends requests that move as groups of one lane, in their order.
// Another one, ahead, holds the lane until all have come.
func inOneGroupOf(t *testing.T, l *ledger, g transfer.Grouping, ahead request, rs ...request) (results []result, sizes []int) {
	t.Helper()
	atWork, begin := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(atWork) })
	g.Lanes, g.OnGroup = 1, func(size int) { sizes = append(sizes, size); once(); <-begin }
	s := transfer.New(l.db, transfer.Pessimistic, transfer.Locking{}, patient).Grouped(g)
	var answered sync.WaitGroup
	answered.Go(func() { ahead.done(t, s) })
	<-atWork
	results = make([]result, len(rs))
	for i, r := range rs {
		answered.Go(func() { results[i] = r.send(t, s, fmt.Sprint(i)) })
		waitForQueued(t, s, i+1)
	}
	close(begin)
	answered.Wait()
	return results, sizes
}

func wantErrors(t *testing.T, results []result, wants ...error) {
	t.Helper()
	for i, want := range wants {
		if got := results[i].err; !errors.Is(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%d: error = %v, want %v", i, got, want)
		}
	}
}

// What one member of a group leaves is what the next one finds, and whoever is
// refused is refused alone.
func TestMembersOfAGroupMeetInMemory(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	s := l.service(transfer.Pessimistic)
	a, b := l.openPair(t, "USD", "100")
	h := openHold(t, s, a, b, "10")
	sale := create(t, s, between(a, b, "10", "USD"))
	results, sizes := inOneGroupOf(t, l, grouping, creating(between(b, a, "1", "USD")),
		creating(named(between(a, b, "1", "USD"), "r")),
		creating(named(between(a, b, "1", "USD"), "r")),
		creating(named(between(b, a, "1", "USD"), "r")), // another customer's
		capturing(transfer.Capture{HoldID: h.ID, Amount: "6"}),
		capturing(transfer.Capture{HoldID: h.ID, Amount: "6"}),
		capturing(transfer.Capture{HoldID: h.ID}),
		voiding(h.ID),
		reversing(transfer.Reversal{TransferID: sale.ID, Amount: "6"}),
		reversing(transfer.Reversal{TransferID: sale.ID, Amount: "6"}),
		reversing(transfer.Reversal{TransferID: sale.ID}),
		batching(true, named(between(a, b, "1", "USD"), "s"), named(between(a, b, "1", "USD"), "r")),
		creating(named(between(a, b, "1", "USD"), "s")), // the batch above has not used it
		holding(holdOf(a, b, "1000")),
		holding(holdOf(a, b, "81")), // of 90
		creating(between(a, b, "1", "USD")),
	)
	wantErrors(t, results, nil, transfer.ErrReferenceUsed, nil, nil, transfer.ErrCaptureExceedsHold, nil, transfer.ErrHoldStatus,
		nil, transfer.ErrReversalExceedsTransfer, nil, transfer.ErrReferenceUsed, nil, transfer.ErrInsufficientFunds, nil, nil)
	if want := []int{1, 15}; !slices.Equal(sizes, want) {
		t.Errorf("groups of %v, want %v", sizes, want)
	}
	var refusal *transfer.Refusal
	if errors.As(results[10].err, &refusal) && (refusal.Index == nil || *refusal.Index != 1) {
		t.Errorf("the batch was refused for member %v, want 1", refusal.Index)
	}
	l.wantHold(t, h.ID, transfer.HoldCaptured, "10")
	l.wantSound(t)
}

func TestBatchesShareAGroupUpToTheSizeOfOne(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	a, b := l.openPair(t, "USD", "100")
	many := func(n int) request { return batching(true, slices.Repeat(several(a, b), n/2)...) }
	results, sizes := inOneGroupOf(t, l, grouping, creating(between(a, b, "1", "USD")),
		many(400), many(598), creating(between(a, b, "1", "USD")), creating(between(a, b, "1", "USD")), many(1000), many(2))
	wantErrors(t, results, nil, nil, nil, nil, nil, nil)
	if want := []int{1, 4, 1, 1}; !slices.Equal(sizes, want) {
		t.Errorf("groups of %v, want %v: at most %d transfers", sizes, want, transfer.MaxBatch)
	}
	l.wantSound(t)
}

// several is there and back.
func several(a, b uuid.UUID) []transfer.Command {
	return []transfer.Command{between(a, b, "1", "USD"), between(b, a, "1", "USD")}
}

package bench

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A tally is what callers have seen. Latencies are kept one by one and sorted
// into a histogram when all is over: a histogram for each caller would push
// what is measured out of the processor's caches.
type tally struct {
	// While measured. Latencies, in microseconds, are of calls that were
	// answered with what was made or refused; codes counts all transfers that
	// were not made.
	latencies []uint32
	made      int64
	codes     map[string]int64
	example   error // of no answer

	// Warm-up included: how many were certainly made, and perhaps.
	allMade, allUnknown int64
}

func newTally() *tally { return &tally{codes: map[string]int64{}} }

// count takes note of one answer, to a call for n transfers.
func (t *tally) count(code string, err error, n int, took time.Duration, measured bool) {
	if err != nil {
		code, t.example = noAnswerCode, err
	}
	switch {
	case code == "":
		t.allMade += int64(n)
	case code != refusedCode:
		t.allUnknown += int64(n)
	}
	if !measured {
		return
	}
	if code == "" {
		t.made += int64(n)
	} else {
		t.codes[code] += int64(n)
	}
	if code == "" || code == refusedCode {
		t.latencies = append(t.latencies, uint32(min(took.Microseconds(), math.MaxUint32)))
	}
}

func (t *tally) add(u *tally) {
	t.latencies = append(t.latencies, u.latencies...)
	t.made += u.made
	t.allMade += u.allMade
	t.allUnknown += u.allUnknown
	if u.example != nil {
		t.example = u.example
	}
	for code, n := range u.codes {
		t.codes[code] += n
	}
}

// A Latency is how long answers took.
type Latency struct {
	P50  time.Duration `json:"p50_ns"`
	P90  time.Duration `json:"p90_ns"`
	P99  time.Duration `json:"p99_ns"`
	P999 time.Duration `json:"p99_9_ns"`
	Max  time.Duration `json:"max_ns"`
}

// Percentiles returns the latency's parts in their order, and their names.
func (l Latency) Percentiles() (names []string, values []time.Duration) {
	return []string{"p50", "p90", "p99", "p99.9", "max"}, []time.Duration{l.P50, l.P90, l.P99, l.P999, l.Max}
}

// The histogram's precision: three digits of microseconds, up to an hour.
const (
	highestLatency = int64(time.Hour / time.Microsecond)
	latencyDigits  = 3
)

// latency sums up the latencies.
func (t *tally) latency() (Latency, error) {
	h := hdrhistogram.New(1, highestLatency, latencyDigits)
	for _, us := range t.latencies {
		if err := h.RecordValue(min(int64(us), highestLatency)); err != nil {
			return Latency{}, fmt.Errorf("record a latency: %w", err)
		}
	}
	at := func(percent float64) time.Duration {
		return time.Duration(h.ValueAtQuantile(percent)) * time.Microsecond
	}
	l := Latency{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9)}
	if len(t.latencies) > 0 {
		l.Max = time.Duration(slices.Max(t.latencies)) * time.Microsecond
	}
	return l, nil
}

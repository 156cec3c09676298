package bench

import (
	"math/rand/v2"
	"testing"
)

func TestEveryWorkloadPicksTwoAccounts(t *testing.T) {
	for _, w := range Workloads() {
		for _, n := range []int{2, 3, 10, 101} {
			pick := w.picker(rand.New(rand.NewPCG(1, 2)), n)
			for range 2000 {
				debit, credit := pick()
				if debit == credit && !(w.Declines && n < 3) || min(debit, credit) < 0 || max(debit, credit) >= n {
					t.Fatalf("%s, %d accounts: from %d to %d", w.Name, n, debit, credit)
				}
			}
		}
	}
}

func TestWorkloadsAreWhatTheySay(t *testing.T) {
	const n, rounds = 100, 10_000
	tests := []struct {
		workload  string
		what      string
		holds     func(debit, credit int) bool
		least, to float64 // of all picks
	}{
		{"hot", "one side is the hot account", func(d, c int) bool { return d == hotAccount(n) || c == hotAccount(n) }, 1, 1},
		{"hot", "the hot account pays", func(d, _ int) bool { return d == hotAccount(n) }, 0.45, 0.55},
		{"pairs", "both are of a pair", func(d, c int) bool { return d/2 == c/2 && d < 2*hotPairs }, 1, 1},
		{"pairs", "the first pays", func(d, c int) bool { return d < c }, 0.45, 0.55},
		{"declines", "the poor pay", func(d, _ int) bool { return d%2 == 1 }, 0.45, 0.55},
		{"declines", "the poor are paid", func(_, c int) bool { return c%2 == 1 }, 0, 0},
		{"zipf", "the first account takes part", func(d, c int) bool { return d == 0 || c == 0 }, 0.2, 0.6},
		{"uniform", "the first account takes part", func(d, c int) bool { return d == 0 || c == 0 }, 0.01, 0.03},
	}
	for _, tt := range tests {
		w, err := WorkloadByName(tt.workload)
		if err != nil {
			t.Fatal(err)
		}
		pick := w.picker(rand.New(rand.NewPCG(3, 4)), n)
		held := 0
		for range rounds {
			if tt.holds(pick()) {
				held++
			}
		}
		if got := float64(held) / rounds; got < tt.least || got > tt.to {
			t.Errorf("%s: %s in %.3f of all, want %g to %g", tt.workload, tt.what, got, tt.least, tt.to)
		}
	}
}

func TestWorkloadByNameNamesThemAll(t *testing.T) {
	if _, err := WorkloadByName("nonsense"); err == nil {
		t.Error("error = nil for an unknown workload")
	}
}

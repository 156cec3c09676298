package bench

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3}},
		{[]float64{9, 1, 2}, Spread{2, 1, 9}},
		{[]float64{4, 1, 2, 10}, Spread{3, 1, 10}},
	} {
		if got := spread(tt.values); got != tt.want {
			t.Errorf("spread(%v) = %v, want %v", tt.values, got, tt.want)
		}
	}
}

func TestRatio(t *testing.T) {
	if got := ratio(3, 0); got != 0 {
		t.Errorf("3 to nothing = %v, want 0", got)
	}
	if got := ratio(3, 2); got != 1.5 {
		t.Errorf("3 to 2 = %v, want 1.5", got)
	}
}

func grouped(workload string, clients int) Cell {
	return Cell{Kind: Service, Mode: "pessimistic", GroupSize: DefaultGroup, Workload: workload, Clients: clients}
}

// rounds returns results of a cell at these rates, one a round.
func rounds(cell Cell, rates ...float64) (results []Result) {
	for i, rate := range rates {
		results = append(results, Result{
			Cell: cell, Round: i + 1, PerSecond: rate, Made: int64(rate), Latency: Latency{P50: time.Millisecond, P99: 3 * time.Millisecond, Max: time.Second / 2},
			Cost: Cost{ServiceRSS: []int64{100 * mebibyte}, WAL: int64(1000 * rate)}, Verdict: Verdict{Verified: true},
		})
	}
	return results
}

func rowOf(t *testing.T, s Summary, cell Cell) Row {
	t.Helper()
	for _, r := range s.Rows {
		if r.Cell == cell {
			return r
		}
	}
	t.Fatalf("no row for %+v", cell)
	return Row{}
}

func exampleSummary() Summary {
	base := Cell{Kind: Base, Workload: "uniform", Clients: BaseConnections}
	baseHot, pipelined, pgbench := base, base, base
	baseHot.Workload, pipelined.Kind, pgbench.Kind = "hot", Pipelined, PgBench
	loaded := grouped("uniform", 64)
	loaded.Preload = manyRows
	open := grouped("uniform", 64)
	open.Rate = 150
	return Summarize(slices.Concat(
		rounds(base, 100, 200, 100), rounds(baseHot, 50, 50, 50), rounds(pipelined, 200, 400, 200), rounds(pgbench, 100, 200, 100),
		rounds(baseAtOne, 100, 100, 100),
		rounds(grouped("uniform", 1), 70, 80, 50),
		rounds(grouped("uniform", 64), 300, 600, 310), rounds(grouped("hot", 64), 300, 300, 310),
		rounds(loaded, 270, 600, 290), rounds(open, 150, 150, 150),
	), Conditions{Accounts: 100, Duration: time.Second, Keys: true}, Machine{Processors: 2})
}

// A ratio is taken within each round: the machine was twice as fast in the
// second, and that makes no difference.
func TestRatiosAreWithinRounds(t *testing.T) {
	s := exampleSummary()
	loaded := grouped("uniform", 64)
	loaded.Preload = manyRows
	for _, tt := range []struct {
		name string
		got  Spread
		want Spread
	}{
		{"uniform to base", rowOf(t, s, grouped("uniform", 64)).ToBase, Spread{3, 3, 3.1}},
		{"uniform to pipelined", rowOf(t, s, grouped("uniform", 64)).ToPipelined, Spread{1.5, 1.5, 1.55}},
		{"hot to base hot", rowOf(t, s, grouped("hot", 64)).ToBase, Spread{6, 6, 6.2}},
		{"hot to uniform", rowOf(t, s, grouped("hot", 64)).ToUniform, Spread{1, 0.5, 1}},
		{"one client to base at one", rowOf(t, s, grouped("uniform", 1)).ToBase, Spread{0.7, 0.5, 0.8}},
		{"preloaded to empty", rowOf(t, s, loaded).ToEmpty, Spread{290.0 / 310, 0.9, 1}},
	} {
		for i, d := range []float64{tt.got.Median - tt.want.Median, tt.got.Min - tt.want.Min, tt.got.Max - tt.want.Max} {
			if math.Abs(d) > 1e-9 {
				t.Errorf("%s = %+v, want %+v (part %d)", tt.name, tt.got, tt.want, i)
			}
		}
	}
}

func TestTargets(t *testing.T) {
	got := map[string]bool{}
	for _, target := range exampleSummary().Targets {
		got[target.Name] = target.Met
	}
	want := map[string]bool{
		"64 clients, uniform, × base":        true,
		"64 clients, hot, × base":            false,
		"64 clients, hot, × uniform":         true,
		"1 client, uniform, × base at 1":     true,
		"5,000,000 transfers before, × none": true,
		"open loop, p99 × p50":               true,
		"open loop, longest, seconds":        true,
	}
	for name, met := range want {
		if was, ok := got[name]; !ok || was != met {
			t.Errorf("%s: met %v, listed %v; want %v", name, was, ok, met)
		}
	}
	if len(got) != len(want) {
		t.Errorf("targets %v, want no more than %v", got, want)
	}
}

func TestABaseThatIsTooSlowVoidsTheComparison(t *testing.T) {
	base := Cell{Kind: Base, Workload: "uniform", Clients: BaseConnections}
	by := base
	by.Kind = PgBench
	for _, tt := range []struct {
		base float64
		void bool
	}{{79, true}, {81, false}} {
		s := Summarize(append(rounds(base, tt.base), rounds(by, 100)...), Conditions{}, Machine{})
		if s.Void != tt.void {
			t.Errorf("base at %v of pgbench's 100: void %v, want %v", tt.base, s.Void, tt.void)
		}
	}
}

func TestFailuresAreNotThroughput(t *testing.T) {
	r := Result{}
	tally := newTally()
	tally.made, tally.codes = 6, map[string]int64{refusedCode: 4, "overloaded": 90}
	if err := r.fill(tally, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	if r.PerSecond != 5 || r.Answered() != 10 || r.Failed() != 90 {
		t.Errorf("%v a second, %d answered, %d failed; want 5, 10 and 90", r.PerSecond, r.Answered(), r.Failed())
	}
}

func TestMemoryGrowth(t *testing.T) {
	for _, tt := range []struct {
		rss  []int64
		want float64
	}{
		{[]int64{1, 2, 3}, 0},
		{[]int64{1, 10, 10, 10}, 1}, // it has grown while it began, and not since
		{[]int64{1, 1, 10, 10, 15, 15, 20, 20}, 2},
	} {
		if got := (Cost{ServiceRSS: tt.rss}).RSSGrowth(); got != tt.want {
			t.Errorf("growth of %v = %v, want %v", tt.rss, got, tt.want)
		}
	}
}

func TestGrid(t *testing.T) {
	g := Grid{
		Modes: []string{"pessimistic", "atomic"}, GroupSizes: []string{"1", DefaultGroup}, Workloads: []string{"zipf", "uniform", "hot"},
		Clients: []int{1, 64}, Preloads: []int64{0}, PgBench: true,
	}
	var names []string
	for _, c := range g.Cells() {
		names = append(names, c.Name()+"/"+c.Workload)
	}
	got := strings.Join(names, " ")
	want := "pessimistic/grouped/zipf pessimistic/grouped/zipf pessimistic/ungrouped/zipf pessimistic/ungrouped/zipf atomic/zipf atomic/zipf" +
		" base/uniform base/uniform base-pipelined/uniform pgbench/uniform" +
		" pessimistic/grouped/uniform pessimistic/grouped/uniform pessimistic/ungrouped/uniform pessimistic/ungrouped/uniform atomic/uniform atomic/uniform" +
		" base/hot base-pipelined/hot pgbench/hot" +
		" pessimistic/grouped/hot pessimistic/grouped/hot pessimistic/ungrouped/hot pessimistic/ungrouped/hot atomic/hot atomic/hot"
	if got != want {
		t.Errorf("cells\n%s\nwant\n%s", got, want)
	}
	open, ok := g.OpenLoop(rounds(grouped("uniform", 64), 100, 301, 200), 0.5)
	if !ok || open.Rate != 100 {
		t.Errorf("open loop %+v, %v; want half of the median of 200", open, ok)
	}
	if _, ok := g.OpenLoop(nil, 0.5); ok {
		t.Error("an open loop at a share of an unknown rate")
	}
}

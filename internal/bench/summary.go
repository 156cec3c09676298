package bench

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// A Spread is a figure over several rounds.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spread sums values up; of an even number the median is the mean of the two
// in the middle.
func spread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Spread{Median: median, Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// A Row is one cell over all rounds. A ratio is the median of the ratios within
// each round, and zero where there is nothing to compare with.
type Row struct {
	Cell
	Rounds    int     `json:"rounds"`
	PerSecond Spread  `json:"per_second"`
	Latency   Latency `json:"latency"` // medians; the greatest maximum

	ToBase      Spread `json:"to_base"`
	ToPipelined Spread `json:"to_base_pipelined"`
	ToEmpty     Spread `json:"to_empty"` // a preloaded ledger to one without
	ToUniform   Spread `json:"to_uniform"`

	GroupMean   float64 `json:"group_mean"`
	ServiceCPU  float64 `json:"service_cpu_us"` // microseconds a transfer
	DatabaseCPU float64 `json:"database_cpu_us"`
	WAL         float64 `json:"wal_bytes"` // a transfer
	HotRatio    float64 `json:"hot_ratio"`
	Others      float64 `json:"others"` // share of the processors that was used by whoever else was there, the most of all rounds
	PeakRSS     int64   `json:"peak_rss"`
	Retries     int64   `json:"retries"` // in all rounds
	Deadlocks   int64   `json:"deadlocks"`
	Failed      int64   `json:"failed"`
	Refused     int64   `json:"refused"`

	Findings []string `json:"findings,omitempty"`
}

// A Summary is a comparison's outcome.
type Summary struct {
	Conditions
	At      time.Time `json:"at"`
	Machine Machine   `json:"machine"`
	Rows    []Row     `json:"rows"`
	Targets []Target  `json:"targets,omitempty"`
	Notes   []string  `json:"notes,omitempty"`
	Void    bool      `json:"void"` // *base* was too slow for its ratios to mean anything
}

// leastOfPgBench is what *base* must reach of pgbench's rate: below it, pgx and
// not the database is what the service is compared with.
const leastOfPgBench = 0.8

// Summarize joins the rounds of each cell, in the order in which they came.
func Summarize(results []Result, c Conditions, m Machine) Summary {
	s := Summary{Conditions: c, Machine: m}
	byCell := map[Cell][]Result{}
	var order []Cell
	for _, r := range results {
		if byCell[r.Cell] == nil {
			order = append(order, r.Cell)
		}
		byCell[r.Cell] = append(byCell[r.Cell], r)
		if r.At.After(s.At) {
			s.At = r.At
		}
	}
	for _, cell := range order {
		s.Rows = append(s.Rows, newRow(cell, byCell))
	}
	s.judgeBase(byCell)
	s.judgeMachine()
	s.Targets = Targets(s.Rows)
	return s
}

func newRow(cell Cell, byCell map[Cell][]Result) Row {
	results := byCell[cell]
	row := Row{Cell: cell, Rounds: len(results)}
	of := func(figure func(Result) float64) Spread {
		var values []float64
		for _, r := range results {
			values = append(values, figure(r))
		}
		return spread(values)
	}
	took := func(figure func(Latency) time.Duration) Spread {
		return of(func(r Result) float64 { return float64(figure(r.Latency)) })
	}
	row.PerSecond = of(func(r Result) float64 { return r.PerSecond })
	row.Latency = Latency{
		P50:  time.Duration(took(func(l Latency) time.Duration { return l.P50 }).Median),
		P90:  time.Duration(took(func(l Latency) time.Duration { return l.P90 }).Median),
		P99:  time.Duration(took(func(l Latency) time.Duration { return l.P99 }).Median),
		P999: time.Duration(took(func(l Latency) time.Duration { return l.P999 }).Median),
		Max:  time.Duration(took(func(l Latency) time.Duration { return l.Max }).Max),
	}
	row.GroupMean = of(func(r Result) float64 { return r.Groups.Mean }).Median
	row.ServiceCPU = of(func(r Result) float64 { return r.PerTransfer(micros(r.Cost.ServiceCPU)) }).Median
	row.DatabaseCPU = of(func(r Result) float64 { return r.PerTransfer(micros(r.Cost.DatabaseCPU)) }).Median
	row.WAL = of(func(r Result) float64 { return r.PerTransfer(float64(r.Cost.WAL)) }).Median
	row.HotRatio = of(func(r Result) float64 { return r.HotRatio }).Median
	row.Others = of(func(r Result) float64 {
		return ratio(r.Cost.OthersCPU.Seconds(), r.Duration.Seconds()*float64(runtime.NumCPU()))
	}).Max
	for _, r := range results {
		row.PeakRSS = max(row.PeakRSS, r.Cost.PeakRSS())
		row.Retries += r.Retries()
		row.Deadlocks += r.Deadlocks()
		row.Failed += r.Failed()
		row.Refused += r.Codes[refusedCode]
		row.Findings = append(row.Findings, r.Verdict.Findings...)
	}
	row.compare(byCell)
	return row
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// compare fills in the ratios.
func (row *Row) compare(byCell map[Cell][]Result) {
	results := byCell[row.Cell]
	if base, ok := baseOf(row.Cell); ok {
		row.ToBase = ratios(results, byCell[base])
		base.Kind = Pipelined
		row.ToPipelined = ratios(results, byCell[base])
	}
	if row.Preload > 0 {
		empty := row.Cell
		empty.Preload = 0
		row.ToEmpty = ratios(results, byCell[empty])
	}
	if row.Workload == "hot" && row.Rate == 0 {
		even := row.Cell
		even.Workload = "uniform"
		row.ToUniform = ratios(results, byCell[even])
	}
}

// ratios compares the rates of two cells in the rounds that both have.
func ratios(of, to []Result) Spread {
	var values []float64
	for _, a := range of {
		for _, b := range to {
			if a.Round == b.Round && b.PerSecond > 0 {
				values = append(values, a.PerSecond/b.PerSecond)
			}
		}
	}
	return spread(values)
}

// judgeBase says whether *base* was fast enough to be compared with.
func (s *Summary) judgeBase(byCell map[Cell][]Result) {
	compared := false
	for _, w := range []string{"uniform", "hot"} {
		base := Cell{Kind: Base, Workload: w, Clients: BaseConnections}
		by := base
		by.Kind = PgBench
		if len(byCell[base]) == 0 || len(byCell[by]) == 0 {
			continue
		}
		compared = true
		got := ratios(byCell[base], byCell[by]).Median
		s.Notes = append(s.Notes, fmt.Sprintf("base reaches %.2f of pgbench's rate with the same statements, %s", got, w))
		if got < leastOfPgBench {
			s.Void = true
			s.Notes = append(s.Notes, fmt.Sprintf("VOID: it must reach %.1f", leastOfPgBench))
		}
	}
	if !compared {
		s.Notes = append(s.Notes, "base was not compared with pgbench, which was not there or not asked")
	}
}

// mostOthers is the share of the processors that others may have before the
// figures say more of them than of us. The kernel's own work is in it.
const mostOthers = 0.15

// judgeMachine says whether the machine was ours.
func (s *Summary) judgeMachine() {
	disturbed, most := 0, 0.0
	for _, r := range s.Rows {
		if r.Others > mostOthers {
			disturbed++
			most = max(most, r.Others)
		}
	}
	if disturbed > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("DISTURBED: in %d of %d rows, others on this machine took more than %.0f %% of the processors, up to %.0f %%",
			disturbed, len(s.Rows), 100*mostOthers, 100*most))
	}
}

// Sort puts the rows in the order of tables: by workload, clients and what was
// there before, then as they were measured.
func (s *Summary) Sort() {
	place := map[string]int{}
	for i, w := range workloads {
		place[w.Name] = i
	}
	slices.SortStableFunc(s.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(place[a.Workload], place[b.Workload]), cmp.Compare(kindPlace[a.Kind], kindPlace[b.Kind]),
			cmp.Compare(a.Preload, b.Preload), cmp.Compare(a.Clients, b.Clients))
	})
}

var kindPlace = map[Kind]int{Base: 0, Pipelined: 1, PgBench: 2, Service: 3}

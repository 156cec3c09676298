package bench

import (
	"fmt"
	"time"

	"github.com/rowlock/ledger/internal/transfer"
)

// A Target is what the project wants of its default service, and what was
// measured of it.
type Target struct {
	Name string  `json:"name"`
	Want string  `json:"want"`
	Got  float64 `json:"got"`
	Met  bool    `json:"met"`
}

// A goal is a line of the table of targets.
type goal struct {
	name    string
	least   bool // limit is the least, and else the most
	limit   float64
	of      Cell // Preload and Rate are the least that a row must have
	measure func(Row) float64
}

const (
	million   = 1_000_000
	mebibyte  = 1 << 20
	manyRows  = 5 * million
	openLoop  = 1 // any rate
	mostRSS   = 128
	mostStall = time.Second
)

// goals are for the default mode and group size; the numbers are ratios but for
// the last ones.
var goals = []goal{
	{"64 clients, uniform, × base", true, 3.0, Cell{Workload: "uniform", Clients: 64}, func(r Row) float64 { return r.ToBase.Median }},
	{"64 clients, hot, × base", true, 8.0, Cell{Workload: "hot", Clients: 64}, func(r Row) float64 { return r.ToBase.Median }},
	{"64 clients, hot, × uniform", true, 0.9, Cell{Workload: "hot", Clients: 64}, func(r Row) float64 { return r.ToUniform.Median }},
	{"256 clients, uniform, × base", true, 4.0, Cell{Workload: "uniform", Clients: 256}, func(r Row) float64 { return r.ToBase.Median }},
	{"1 client, uniform, × base at 1", true, 0.6, Cell{Workload: "uniform", Clients: 1}, func(r Row) float64 { return r.ToBase.Median }},
	{"5,000,000 transfers before, × none", true, 0.85, Cell{Workload: "uniform", Clients: 64, Preload: manyRows}, func(r Row) float64 { return r.ToEmpty.Median }},
	{"open loop, p99 × p50", false, 4.0, Cell{Workload: "uniform", Clients: 64, Rate: openLoop}, func(r Row) float64 {
		return ratio(float64(r.Latency.P99), float64(r.Latency.P50))
	}},
	{"open loop, longest, seconds", false, mostStall.Seconds(), Cell{Workload: "uniform", Clients: 64, Rate: openLoop}, func(r Row) float64 {
		return r.Latency.Max.Seconds()
	}},
	{"64 clients, an account locked by somebody else, p99 of the others, ms", false, 250, Cell{Workload: "locked", Clients: 64}, func(r Row) float64 {
		return float64(r.Latency.P99) / float64(time.Millisecond)
	}},
	{"256 clients, service's memory, MiB", false, mostRSS, Cell{Workload: "uniform", Clients: 256}, func(r Row) float64 {
		return float64(r.PeakRSS) / mebibyte
	}},
}

// Targets returns the targets that rows say something about.
func Targets(rows []Row) []Target {
	var targets []Target
	for _, g := range goals {
		for _, r := range rows {
			if !g.about(r) {
				continue
			}
			got := g.measure(r)
			if got == 0 { // what it is compared with was not measured
				continue
			}
			sign, met := "≤", got <= g.limit
			if g.least {
				sign, met = "≥", got >= g.limit
			}
			targets = append(targets, Target{Name: g.name, Want: fmt.Sprintf("%s %g", sign, g.limit), Got: got, Met: met})
		}
	}
	return targets
}

// about reports whether g is about a row.
func (g goal) about(r Row) bool {
	return r.Kind == Service && r.Mode == transfer.Pessimistic.Name && r.GroupSize == DefaultGroup &&
		r.Workload == g.of.Workload && r.Clients == g.of.Clients &&
		(r.Preload > 0) == (g.of.Preload > 0) && r.Preload >= g.of.Preload && (r.Rate > 0) == (g.of.Rate > 0)
}

func (t Target) String() string {
	verdict := "met"
	if !t.Met {
		verdict = "MISSED"
	}
	return fmt.Sprintf("target: %s: want %s, got %.2f: %s", t.Name, t.Want, t.Got, verdict)
}

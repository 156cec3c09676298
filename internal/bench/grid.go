package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Grid is everything that a comparison combines.
type Grid struct {
	Modes      []string
	GroupSizes []string // of the modes that group; see [DefaultGroup]
	Workloads  []string
	Clients    []int
	Preloads   []int64 // transfers that are already there; 0 for none
	Batch      int     // transfers in a request to a service; 0: one, that is no batch
	PgBench    bool    // whether there is a pgbench to compare *base* with
}

// Cells returns the cells of g, workload by workload: *base*, and then the modes,
// larger groups first. A machine whose speed changes with the minutes spoils a
// ratio the less, the nearer its two sides were measured.
func (g Grid) Cells() []Cell {
	var cells []Cell
	for _, w := range g.Workloads {
		for _, base := range g.bases(w) {
			if !slices.Contains(cells, base) {
				cells = append(cells, base)
			}
		}
		for _, mode := range g.Modes {
			for _, size := range slices.Backward(g.sizes(mode)) {
				for _, clients := range g.Clients {
					for _, preload := range g.Preloads {
						cells = append(cells, Cell{Kind: Service, Mode: mode, GroupSize: size, Workload: w, Clients: clients, Preload: preload, Batch: g.Batch})
					}
				}
			}
		}
	}
	return cells
}

// bases are what a workload is compared with, where there is a base for it.
func (g Grid) bases(workload string) (cells []Cell) {
	if workload != "uniform" && workload != "hot" {
		return nil
	}
	if slices.Contains(g.Clients, 1) {
		cells = append(cells, baseAtOne)
	}
	cells = append(cells, Cell{Kind: Base, Workload: workload, Clients: BaseConnections}, Cell{Kind: Pipelined, Workload: workload, Clients: BaseConnections})
	if g.PgBench {
		cells = append(cells, Cell{Kind: PgBench, Workload: workload, Clients: BaseConnections})
	}
	return cells
}

// baseAtOne is what one client is compared with, whatever its workload: alone,
// it meets nobody on a hot account either.
var baseAtOne = Cell{Kind: Base, Workload: "uniform", Clients: 1}

// sizes are the group sizes of a mode: those that cannot group have one.
func (g Grid) sizes(mode string) []string {
	if groups(mode) {
		return g.GroupSizes
	}
	return []string{"1"}
}

// baseOf returns the cell that c is compared with; ok is false for a workload
// without one.
func baseOf(c Cell) (base Cell, ok bool) {
	switch {
	case c.Rate > 0 || c.Kind == Base && c.Clients == 1:
		return Cell{}, false
	case c.Clients == 1 && c.Batch == 0:
		return baseAtOne, true
	case c.Workload == "uniform" || c.Workload == "hot":
		return Cell{Kind: Base, Workload: c.Workload, Clients: BaseConnections}, true
	}
	return Cell{}, false
}

// openClients is how many connections an open loop has: enough for a stall to
// be seen, and those of a closed cell whose rate is known.
const openClients = 64

// OpenLoop returns a cell that asks the first mode, at its first group size, for
// a share of the rate that it reached; ok is false where that was not measured.
func (g Grid) OpenLoop(results []Result, share float64) (cell Cell, ok bool) {
	cells := g.Cells()
	i := slices.IndexFunc(cells, func(c Cell) bool {
		return c.Kind == Service && c.Mode == g.Modes[0] && c.Workload == "uniform" && c.Clients == openClients && c.Preload == 0
	})
	if i < 0 {
		return Cell{}, false
	}
	cell = cells[i]
	var rates []float64
	for _, r := range results {
		if r.Cell == cell {
			rates = append(rates, r.PerSecond)
		}
	}
	cell.Rate = math.Floor(share * spread(rates).Median) // whole, so that it reads the same in a file
	return cell, cell.Rate > 0
}

// A Step is what a comparison has done, or is about to do.
type Step struct {
	Cell       Cell
	Round      int // counts from 1
	Done, Runs int
}

// Compare runs all cells in every round, so that what changes on the machine
// meanwhile changes for all, and every other round backwards, so that no cell
// always follows the same one. Runs that keep has are not repeated. A cell
// that loses money does not stop the others.
//
// The results are those of the runs that ended, whatever the error.
func (b *Bench) Compare(ctx context.Context, cells []Cell, rounds int, keep Store, before func(Step)) (results []Result, err error) {
	defer func() { err = errors.Join(err, b.Close(ctx)) }()
	var lost []error
	step := Step{Runs: rounds * len(cells)}
	for round := range rounds {
		order := slices.Clone(cells)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, cell := range order {
			step.Cell, step.Round = cell, round+1
			before(step)
			step.Done++
			r, found := keep.Find(cell, b.Conditions, round+1)
			if !found {
				r, err = b.Measure(ctx, cell, round+1)
				if err != nil && !errors.Is(err, ErrMoneyLost) {
					return results, fmt.Errorf("%s, %s, %d clients: %w", cell.Name(), cell.Workload, cell.Clients, err)
				}
				lost = append(lost, err)
				if err := keep.Add(r); err != nil {
					return results, err
				}
			}
			results = append(results, r)
		}
	}
	return results, errors.Join(lost...)
}

// Estimate is how long runs cells take about: preparing and verifying included.
func (c Conditions) Estimate(runs int) time.Duration {
	return time.Duration(runs) * (c.Warmup + c.Duration + overhead)
}

// overhead is the time around each run, about.
const overhead = 1500 * time.Millisecond

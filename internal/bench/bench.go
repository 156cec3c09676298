// Package bench measures how fast the ledger moves money, and checks that none
// was lost on the way.
//
// Its one idea: a figure alone says little, because machines and disks differ,
// so everything is a [Cell] of one grid, measured in the same rounds as a
// pinned *base* (base.go) that does the same work without the service, and is
// read as a ratio to it. Start reading at [Bench.Measure].
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowlock/ledger/internal/transfer"
)

// A Kind says what does the work of a cell.
type Kind string

const (
	Service   Kind = "service"        // `ledger serve`, over HTTP
	Base      Kind = "base"           // pgx, six round trips a transfer
	Pipelined Kind = "base-pipelined" // pgx, two round trips a transfer
	PgBench   Kind = "pgbench"        // base's statements, sent by pgbench
)

// A Cell is one combination of what is compared.
type Cell struct {
	Kind      Kind    `json:"kind"`
	Mode      string  `json:"mode,omitempty"`       // of a service
	GroupSize string  `json:"group_size,omitempty"` // of a service: a number, or [DefaultGroup]
	Workload  string  `json:"workload"`
	Clients   int     `json:"clients"`
	Rate      float64 `json:"rate,omitempty"`  // transfers a second; 0 is a closed loop
	Batch     int     `json:"batch,omitempty"` // transfers in a request to a service; 0: one, that is no batch
	Preload   int64   `json:"preload,omitempty"`
}

// DefaultGroup is the group size that the service chooses by itself.
const DefaultGroup = "default"

// Name is what the cell is called among others with its workload and clients.
func (c Cell) Name() string {
	name := string(c.Kind)
	if c.Kind == Service {
		name = cmp.Or(c.Mode, "service")
		if groups(c.Mode) {
			name += "/" + groupName(c.GroupSize)
		}
	}
	if c.Preload > 0 {
		name += fmt.Sprintf(" after %d", c.Preload)
	}
	if c.Batch > 0 {
		name += fmt.Sprintf(" in batches of %d", c.Batch)
	}
	if c.Rate > 0 {
		name += fmt.Sprintf(" at %.0f/s", c.Rate)
	}
	return name
}

// groups reports whether a mode can share a transaction among callers.
func groups(mode string) bool { return mode == transfer.Pessimistic.Name }

// mayLose reports whether a mode loses money by design.
func mayLose(mode string) bool {
	m, err := transfer.ModeByName(mode)
	return err == nil && m.LosesMoney
}

func groupName(size string) string {
	switch size {
	case "1":
		return "ungrouped"
	case DefaultGroup:
		return "grouped"
	}
	return "group-" + size
}

// Conditions are what all cells of a comparison have in common.
type Conditions struct {
	Accounts int           `json:"accounts"`
	Warmup   time.Duration `json:"warmup_ns"`
	Duration time.Duration `json:"duration_ns"`
	Keys     bool          `json:"keys"` // an Idempotency-Key on every request
}

// A Bench measures cells.
type Bench struct {
	Conditions

	// DatabaseURL is the server on which each cell gets a schema of its own.
	// With URL it is the database of the service there, and may be "".
	DatabaseURL string
	// Private says that nobody else uses the server: each cell may begin with a
	// checkpoint, so that none pays for the pages of the one before.
	Private bool

	// Binary is the program whose `serve` is measured, with the flags Serve. URL
	// is a service that is already there, and Token admits to it.
	Binary string
	Serve  []string
	URL    string
	Token  string

	// Progress, where not nil, is told how a run goes.
	Progress func(Progress)

	preloaded map[int64]*ledger // kept: they take long to fill
}

// Progress is how far a run is.
type Progress struct {
	Cell      Cell
	Phase     string // prepare, warm up, measure, verify
	Elapsed   time.Duration
	PerSecond float64 // since the last time
}

// ErrMoneyLost says that a ledger was not as it must be after a run.
var ErrMoneyLost = errors.New("money was lost or made")

// Measure runs one cell on a ledger of its own and verifies it. The error
// matches [ErrMoneyLost] where a mode lost money that must not; the result is
// then what was measured none the less.
func (b *Bench) Measure(ctx context.Context, cell Cell, round int) (result Result, err error) {
	workload, err := WorkloadByName(cell.Workload)
	if err != nil {
		return Result{}, err
	}
	b.tell(cell, "prepare")
	l, err := b.ledgerFor(ctx, cell, workload)
	if err != nil {
		return Result{}, fmt.Errorf("prepare a ledger: %w", err)
	}
	defer func() { err = errors.Join(err, l.release(ctx)) }()

	if err := l.noteUpdates(ctx); err != nil {
		return Result{}, fmt.Errorf("prepare a ledger: %w", err)
	}
	result = Result{Cell: cell, Conditions: b.Conditions, Round: round, At: time.Now().UTC()}
	run := map[Kind]func(context.Context, *ledger, Workload, *Result) error{
		Service: b.runService, Base: b.runBase, Pipelined: b.runBase, PgBench: b.runPgBench,
	}[cell.Kind]
	if err := run(ctx, l, workload, &result); err != nil {
		return Result{}, err
	}
	b.tell(cell, "verify")
	return result, b.verify(ctx, l, &result)
}

// Close removes what was kept between cells.
func (b *Bench) Close(ctx context.Context) error {
	var errs []error
	for _, l := range b.preloaded {
		errs = append(errs, l.drop(ctx))
	}
	b.preloaded = nil
	return errors.Join(errs...)
}

func (b *Bench) tell(cell Cell, phase string) {
	if b.Progress != nil {
		b.Progress(Progress{Cell: cell, Phase: phase})
	}
}

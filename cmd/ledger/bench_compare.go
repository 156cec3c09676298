package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/rowlock/ledger/internal/bench"
	"github.com/rowlock/ledger/internal/telemetry"
)

type benchCompareCmd struct {
	Modes      []string `help:"Modes to compare: ${modes}." default:"${modes}" enum:"${modes}"`
	GroupSizes []string `help:"Group sizes of the modes that group: numbers, or default." default:"1,default"`
	Workloads  []string `help:"Workloads: ${workloads}." default:"uniform,hot" enum:"${workloads}"`
	Clients    []int    `help:"Numbers of connections." default:"1,8,64,256"`
	Preload    []int64  `help:"Transfers that are in the ledger before." default:"0"`
	Rounds     int      `help:"How often everything is measured." default:"3"`
	Share      float64  `help:"Then measure latency at this share of the greatest rate of the first mode at 64 uniform clients, in an open loop. 0 does not." default:"0"`
	Format     string   `help:"Form of the results: table, markdown, csv, json." default:"table" enum:"table,markdown,csv,json"`
	HTML       string   `name:"html" help:"Write a page with charts to this file, too." placeholder:"FILE"`
	Charts     string   `help:"Write the charts as pictures to this directory, too." placeholder:"DIR"`
	benchFlags
}

// Run measures and prints. It exits with 1 when money was lost where it must
// not be, and after an interrupt, with what was measured until then.
func (c *benchCompareCmd) Run(ctx context.Context, con *console) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	store, err := c.store()
	if err != nil {
		return err
	}
	logger := telemetry.NewLogger(con.stderr, slog.LevelWarn)
	b, d, err := c.open(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(logger)) }()
	machine, err := bench.DescribeMachine(ctx, d.url)
	if err != nil {
		return fmt.Errorf("look at the database: %w", err)
	}
	_, noPgBench := exec.LookPath("pgbench")
	grid := bench.Grid{
		Modes: c.Modes, GroupSizes: c.GroupSizes, Workloads: c.Workloads, Clients: c.Clients, Preloads: c.Preload,
		Batch: c.Batch, PgBench: noPgBench == nil,
	}
	cells := grid.Cells()
	fmt.Fprintf(con.stderr, "%d runs of %d cells in about %v\n", c.Rounds*len(cells), len(cells), b.Estimate(c.Rounds*len(cells)).Round(time.Second))
	line := &benchLine{w: con.stderr}
	b.Progress = line.show
	results, err := b.Compare(ctx, cells, c.Rounds, store, line.step)
	if open, ok := grid.OpenLoop(results, c.Share); ok && err == nil {
		var more []bench.Result
		more, err = b.Compare(ctx, []bench.Cell{open}, c.Rounds, store, line.step)
		results = append(results, more...)
	}
	line.clear()
	summary := bench.Summarize(results, b.Conditions, machine)
	summary.Sort()
	write := map[string]func(io.Writer, bench.Summary) error{
		"table": bench.WriteTable, "markdown": bench.WriteMarkdown, "csv": bench.WriteCSV, "json": bench.WriteJSON[bench.Summary],
	}[c.Format]
	return errors.Join(err, write(con.stdout, summary), c.writePictures(summary))
}

// check returns what is wrong with the flags that are no names.
func (c *benchCompareCmd) check() error {
	for _, n := range c.Clients {
		if n < 1 {
			return fmt.Errorf("--clients %d: want at least 1", n)
		}
	}
	for _, n := range c.Preload {
		if n < 0 {
			return fmt.Errorf("--preload %d: want 0 or more", n)
		}
	}
	for _, size := range c.GroupSizes {
		if err := checkGroupSize(size); err != nil {
			return err
		}
	}
	if c.Rounds < 1 || c.Share < 0 || c.Share >= 1 {
		return errors.New("--rounds must be at least 1, and --share from 0 to below 1")
	}
	return nil
}

func (c *benchCompareCmd) writePictures(s bench.Summary) error {
	if c.Charts != "" {
		if err := bench.WriteCharts(c.Charts, s); err != nil {
			return err
		}
	}
	if c.HTML == "" {
		return nil
	}
	file, err := os.Create(c.HTML)
	if err != nil {
		return err
	}
	return errors.Join(bench.WriteHTML(file, s), file.Close())
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/rowlock/ledger/internal/bench"
	"github.com/rowlock/ledger/internal/telemetry"
)

type benchPaymentsCmd struct {
	Queues   []string `help:"Ways to claim: skip-locked, and for-update, the naive one, which waits for what others hold." default:"skip-locked,for-update" enum:"skip-locked,for-update"`
	Workers  []int    `help:"Numbers of workers." default:"1,2,4,8"`
	Groups   []int    `help:"Payments in one transaction at most." default:"1,100"`
	Finished []int64  `help:"Payments that were finished before." default:"0"`
	Snapshot bool     `help:"Keep an old transaction open meanwhile, which holds vacuum back."`
	Payments int      `help:"Payments that are made in each run." default:"5000"`
	Rounds   int      `help:"How often everything is measured." default:"3"`
	Accounts int      `help:"Accounts that money moves between." default:"10000"`
	Format   string   `help:"Form of the results: table, markdown, json." default:"table" enum:"table,markdown,json"`
	Charts   string   `help:"Write the scaling as a picture to this directory, too." placeholder:"DIR"`

	benchServerFlags
}

// Run measures and prints. It exits with 1 when money was lost.
func (c *benchPaymentsCmd) Run(ctx context.Context, con *console) (err error) {
	cells, err := c.cells()
	if err != nil {
		return err
	}
	logger := telemetry.NewLogger(con.stderr, slog.LevelWarn)
	d, err := c.openServer(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(logger)) }()
	machine, err := bench.DescribeMachine(ctx, d.url)
	if err != nil {
		return fmt.Errorf("look at the database: %w", err)
	}
	b := &bench.Bench{Conditions: bench.Conditions{Accounts: c.Accounts}, DatabaseURL: d.url, Private: d.server != nil}
	line := &benchLine{w: con.stderr}
	results, err := b.ComparePayments(ctx, cells, c.Payments, c.Rounds, func(done int, cell bench.PaymentCell) {
		line.say(fmt.Sprintf("[%d/%d] %s, groups of %d, %d workers", done+1, c.Rounds*len(cells), cell.Queue, cell.Group, cell.Workers))
	})
	line.clear()
	summary := bench.SummarizePayments(results, c.Accounts, c.Payments, machine)
	write := map[string]func(io.Writer, bench.PaymentSummary) error{
		"table": bench.WritePaymentTable, "markdown": bench.WritePaymentMarkdown, "json": bench.WritePaymentJSON,
	}[c.Format]
	err = errors.Join(err, write(con.stdout, summary))
	if c.Charts != "" && len(summary.Rows) > 0 {
		err = errors.Join(err, bench.WritePaymentCharts(c.Charts, summary))
	}
	return err
}

// cells are all combinations, those that are compared side by side.
func (c *benchPaymentsCmd) cells() (cells []bench.PaymentCell, err error) {
	if c.Rounds < 1 || c.Payments < 1 || c.Accounts < 2 {
		return nil, errors.New("--rounds and --payments must be at least 1, and --accounts at least 2")
	}
	for _, finished := range c.Finished {
		for _, group := range c.Groups {
			for _, workers := range c.Workers {
				if finished < 0 || group < 1 || group > maxGroupSize || workers < 1 || workers > 90 {
					return nil, fmt.Errorf("--finished must not be negative, --groups 1 to %d, --workers 1 to 90", maxGroupSize)
				}
				for _, queue := range c.Queues {
					cells = append(cells, bench.PaymentCell{Queue: bench.Queue(queue), Group: group, Workers: workers, Finished: finished, Snapshot: c.Snapshot})
				}
			}
		}
	}
	return cells, nil
}

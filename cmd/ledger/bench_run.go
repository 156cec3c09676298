package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"

	"github.com/rowlock/ledger/internal/bench"
	"github.com/rowlock/ledger/internal/telemetry"
)

type benchRunCmd struct {
	Workload  string  `help:"What is transferred between whom: ${workloads}." default:"uniform" enum:"${workloads}"`
	Mode      string  `help:"Mode of the service that is started: ${modes}." default:"pessimistic" enum:"${modes}"`
	GroupSize string  `help:"Its --group-size: a number, or default." default:"default"`
	Clients   int     `help:"Connections that send one request after the other." default:"64"`
	Rate      float64 `help:"Transfers a second to ask for, whatever the answers take. Without it, each client sends when it has its answer."`
	Preload   int64   `help:"Transfers that are in the ledger before."`
	URL       string  `help:"A service that is running already. Name its database with --database-url, or nothing is verified." placeholder:"URL"`
	Token     string  `help:"Bearer token for that service."`
	Format    string  `help:"Form of the result: text, json." default:"text" enum:"text,json"`
	benchFlags
}

// Run measures one cell and prints what it found. It exits with 1 when money
// was lost.
func (c *benchRunCmd) Run(ctx context.Context, con *console) (err error) {
	if c.Clients < 1 || c.Rate < 0 || c.Preload < 0 {
		return errors.New("--clients must be at least 1, and --rate and --preload not negative")
	}
	if err := checkGroupSize(c.GroupSize); err != nil {
		return err
	}
	store, err := c.store()
	if err != nil {
		return err
	}
	cell := bench.Cell{Kind: bench.Service, Mode: c.Mode, GroupSize: c.GroupSize, Workload: c.Workload, Clients: c.Clients, Rate: c.Rate, Preload: c.Preload, Batch: c.Batch}
	logger := telemetry.NewLogger(con.stderr, slog.LevelWarn)
	var b *bench.Bench
	if c.URL != "" {
		b = &bench.Bench{
			Conditions:  bench.Conditions{Accounts: c.Accounts, Warmup: c.Warmup, Duration: c.Duration, Keys: c.Keys},
			DatabaseURL: c.DatabaseURL, URL: strings.TrimSuffix(c.URL, "/"), Token: c.Token,
		}
	} else {
		var d *database
		if b, d, err = c.open(ctx, logger); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.close(logger)) }()
	}
	line := &benchLine{w: con.stderr}
	b.Progress = line.show
	results, err := b.Compare(ctx, []bench.Cell{cell}, 1, store, func(bench.Step) {})
	line.clear()
	write := map[string]func(io.Writer, bench.Result) error{"text": bench.WriteText, "json": bench.WriteJSON[bench.Result]}[c.Format]
	for _, r := range results {
		err = errors.Join(err, write(con.stdout, r))
	}
	return err
}

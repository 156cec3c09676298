package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/rowlock/ledger/internal/racelab"
	"github.com/rowlock/ledger/internal/racelab/locklab"
	"github.com/rowlock/ledger/internal/telemetry"
)

type labCmd struct {
	Scenarios   []string `arg:"" optional:"" help:"Scenarios to run. Default: all."`
	List        bool     `help:"List the scenarios and what they claim, and run none."`
	Explain     string   `help:"Run this scenario, and show its sessions side by side, statement by statement, with their waits." placeholder:"NAME"`
	Format      string   `help:"Form of the findings: table, json, markdown, junit." default:"table" enum:"table,json,markdown,junit" env:"LEDGER_LAB_FORMAT"`
	DatabaseURL string   `help:"Database to run them on, in schemas that are removed afterwards. Without it, a private server with no data." placeholder:"URL"`
	binaryFlags
}

// Run carries out scenarios and prints what was seen. It exits with 1 when
// something does not hold that a mode of the service relies on.
func (c *labCmd) Run(ctx context.Context, con *console) (err error) {
	if c.Explain != "" {
		c.Scenarios = append(c.Scenarios, c.Explain)
	}
	scenarios, err := locklab.ScenariosByName(c.Scenarios)
	if err != nil {
		return err
	}
	if c.List {
		for _, scenario := range scenarios {
			fmt.Fprintf(con.stdout, "%s\n    %s\n", scenario.Name, scenario.Claim)
		}
		return nil
	}
	logger := telemetry.NewLogger(con.stderr, slog.LevelWarn)
	d, err := c.openOrStart(ctx, logger, c.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(logger)) }()

	lab := locklab.Lab{
		Schema: func(ctx context.Context) (string, func(context.Context) error, error) {
			return racelab.WithSchema(ctx, d.url)
		},
	}
	findings, err := lab.Run(ctx, scenarios)
	if err != nil { // what was seen until then says nothing of the rest
		return err
	}
	write := map[string]func(io.Writer, []locklab.Finding) error{
		"table": locklab.WriteTable, "json": locklab.WriteJSON, "markdown": locklab.WriteMarkdown, "junit": locklab.WriteJUnit,
	}[c.Format]
	if c.Explain != "" {
		write = locklab.WriteTimelines
	}
	return errors.Join(write(con.stdout, findings), locklab.Verdict(findings))
}

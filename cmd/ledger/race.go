package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/schollz/progressbar/v3"

	"github.com/rowlock/ledger/internal/racelab"
	"github.com/rowlock/ledger/internal/telemetry"
	"github.com/rowlock/ledger/internal/transfer"
)

type raceCmd struct {
	Modes       string `help:"Modes to race, separated by commas, or all." default:"all"`
	Scenarios   string `help:"Scenarios to run, separated by commas, or all." default:"all"`
	Rounds      int    `help:"How often each scenario runs in each mode." default:"1"`
	Seed        uint64 `help:"Seed of the random requests." default:"1"`
	Format      string `help:"Form of the results: table, json, junit." default:"table" enum:"table,json,junit" env:"LEDGER_RACE_FORMAT"`
	DatabaseURL string `help:"PostgreSQL to race on, in schemas that are removed afterwards. Without it, a private server with no data." placeholder:"URL"`
	binaryFlags
}

// Run races and prints what each mode kept or lost. It exits with 1 when a mode
// that must keep money lost some, or one that must lose money lost none.
func (c *raceCmd) Run(ctx context.Context, con *console) (err error) {
	modes, err := parseModes(c.Modes)
	if err != nil {
		return err
	}
	scenarios, err := racelab.ScenariosByName(c.Scenarios)
	if err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	logger := telemetry.NewLogger(con.stderr, slog.LevelWarn)
	d, err := c.openOrStart(ctx, logger, c.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(logger)) }()

	lab := racelab.Lab{
		Start: racelab.ExecService(binary),
		Database: func(ctx context.Context) (string, func(context.Context) error, error) {
			return racelab.WithSchema(ctx, d.url)
		},
		Rounds: c.Rounds, Seed: c.Seed, Progress: progress(con.stderr),
	}
	results, err := lab.Run(ctx, modes, scenarios)
	if err == nil {
		var controls []racelab.Result
		controls, err = lab.Controls(ctx) // that the lab is not blind
		results = append(results, controls...)
	}
	write := map[string]func(io.Writer, []racelab.Result) error{
		"table": racelab.WriteTable, "json": racelab.WriteJSON, "junit": racelab.WriteJUnit,
	}[c.Format]
	return errors.Join(err, write(con.stdout, results), racelab.Verdict(results))
}

// parseModes reads a list of modes; "all" names every one.
func parseModes(list string) ([]string, error) {
	if list == "all" {
		return racelab.ModeNames(), nil
	}
	modes := strings.Split(list, ",")
	for _, name := range modes {
		if _, err := transfer.ModeByName(name); err != nil {
			return nil, err
		}
	}
	return modes, nil
}

// progress shows how far the races are, on a terminal.
func progress(w io.Writer) func(racelab.Progress) {
	if !isTerminal(w) {
		return nil
	}
	var bar *progressbar.ProgressBar
	return func(p racelab.Progress) {
		if bar == nil {
			bar = progressbar.NewOptions(p.Total, progressbar.OptionSetWriter(w), progressbar.OptionShowCount(),
				progressbar.OptionSetWidth(20), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
		}
		bar.Describe(fmt.Sprintf("%s, %s", p.Scenario, p.Mode))
		bar.Set(p.Done)
	}
}

package main

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/telemetry"
	"github.com/rowlock/ledger/internal/verify"
)

type verifyCmd struct {
	Format string `help:"Form of the report: text, json." default:"text" enum:"text,json" env:"LEDGER_VERIFY_FORMAT"`
	databaseFlags
}

// Run checks a live ledger and exits with 1 when something is off.
func (c *verifyCmd) Run(ctx context.Context, con *console) error {
	logger := telemetry.NewLogger(con.stderr, slog.LevelWarn)
	return c.withPool(ctx, logger, func(db *postgres.DB, policy retry.Policy) error {
		report, err := verify.Ledger(ctx, db, policy)
		if err != nil {
			return err
		}
		if c.Format == "json" {
			encoder := json.NewEncoder(con.stdout)
			encoder.SetIndent("", "  ")
			err = encoder.Encode(report)
		} else {
			err = report.WriteText(con.stdout)
		}
		if err == nil && !report.Clean() {
			err = exitStatus(1)
		}
		return err
	})
}

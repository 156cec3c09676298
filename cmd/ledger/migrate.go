package main

import (
	"context"
	"fmt"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/telemetry"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Apply the migrations that the database lacks."`
	Status migrateStatusCmd `cmd:"" help:"List the migrations and when each was applied."`
}

type migrateUpCmd struct{ databaseFlags }

// Run migrates; many may run at once.
func (c *migrateUpCmd) Run(ctx context.Context, con *console) error {
	logger := telemetry.NewLogger(con.stderr, slog.LevelInfo)
	d, err := c.open(ctx, logger)
	if err != nil {
		return err
	}
	defer d.close(logger)
	if err := postgres.Migrate(ctx, d.url, logger); err != nil {
		return err
	}
	fmt.Fprintln(con.stdout, "the database is up to date")
	return nil
}

type migrateStatusCmd struct{ databaseFlags }

// Run lists the migrations, and exits with 1 while one is pending.
func (c *migrateStatusCmd) Run(ctx context.Context, con *console) error {
	logger := telemetry.NewLogger(con.stderr, slog.LevelWarn)
	d, err := c.open(ctx, logger)
	if err != nil {
		return err
	}
	defer d.close(logger)
	states, err := postgres.Migrations(ctx, d.url)
	if err != nil {
		return err
	}
	pending := 0
	table := tabwriter.NewWriter(con.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VERSION\tNAME\tAPPLIED")
	for _, s := range states {
		applied := "pending"
		if s.AppliedAt.IsZero() {
			pending++
		} else {
			applied = s.AppliedAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%d\t%s\t%s\n", s.Version, s.Name, applied)
	}
	table.Flush()
	if pending > 0 {
		return fmt.Errorf("%d pending: run \"ledger migrate up\"", pending)
	}
	return nil
}

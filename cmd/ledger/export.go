package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/httpapi"
	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/telemetry"
	"github.com/rowlock/ledger/internal/transfer"
)

type exportCmd struct {
	Kind   string `help:"What to write: accounts, transfers, entries, holds." required:"" enum:"accounts,transfers,entries,holds" env:"LEDGER_EXPORT_KIND"`
	Format string `help:"Form of the lines: ndjson, csv." default:"ndjson" enum:"ndjson,csv" env:"LEDGER_EXPORT_FORMAT"`
	Out    string `help:"File to write, which appears when it is complete; - is standard output." default:"-" placeholder:"FILE" env:"LEDGER_EXPORT_OUT"`
	databaseFlags
}

// Help is shown after the flags' own.
func (exportCmd) Help() string {
	return `Examples:
  ledger export --kind accounts --database-url postgres://...
  ledger export --kind entries --format csv --out entries.csv --database-url postgres://...
  ledger export --kind transfers --database-url postgres://... | gzip > transfers.ndjson.gz

Lines have what the API has. The exit status is 0 only if all of them are written.`
}

// Run writes all there is of one kind, as it is at one moment.
func (c *exportCmd) Run(ctx context.Context, con *console) error {
	logger := telemetry.NewLogger(con.stderr, slog.LevelWarn)
	return c.withPool(ctx, logger, func(db *postgres.DB, policy retry.Policy) error {
		policy.StatementTimeout = exportTimeout
		e := exports[c.Kind]
		count, done := func() {}, func() {}
		if isTerminal(con.stderr) {
			rows, err := postgres.EstimatedRows(ctx, db, policy, e.table)
			if err != nil {
				return err
			}
			count, done = countLines(con.stderr, c.Kind, rows*e.perRow)
		}
		write := func(w io.Writer) error {
			buffered := bufio.NewWriterSize(w, 1<<16)
			if err := e.write(ctx, db, policy, buffered, c.Format, count); err != nil {
				return fmt.Errorf("export %s: %w", c.Kind, err)
			}
			return buffered.Flush()
		}
		defer done()
		if c.Out == "-" {
			return write(con.stdout)
		}
		return writeWhole(c.Out, write)
	})
}

// exportTimeout is for a whole table, and for whoever takes the lines to take
// them.
const exportTimeout = 24 * time.Hour

// An export writes all there is of one kind.
type export struct {
	table  string
	perRow int64 // lines that a row of it makes
	write  func(ctx context.Context, db retry.Beginner, policy retry.Policy, w io.Writer, form string, count func()) error
}

var exports = map[string]export{
	"accounts":  {"accounts", 1, exportOf(accounts.Each, httpapi.AccountLines)},
	"transfers": {"transfers", 1, exportOf(transfer.Each, httpapi.TransferLines)},
	"entries":   {"transfers", 2, exportOf(accounts.EachEntry, httpapi.EntryLines)},
	"holds":     {"holds", 1, exportOf(transfer.EachHold, httpapi.HoldLines)},
}

func exportOf[T any](
	each func(context.Context, retry.Beginner, retry.Policy, func(T) error) error,
	lines func(io.Writer, string) (func(T) error, error),
) func(context.Context, retry.Beginner, retry.Policy, io.Writer, string, func()) error {
	return func(ctx context.Context, db retry.Beginner, policy retry.Policy, w io.Writer, form string, count func()) error {
		line, err := lines(w, form)
		if err != nil {
			return err
		}
		return each(ctx, db, policy, func(item T) error {
			count()
			return line(item)
		})
	}
}

// countLines shows on a terminal how many lines there are, of about so many.
func countLines(w io.Writer, kind string, about int64) (count, done func()) {
	if about <= 0 {
		about = -1 // nobody knows: a spinner
	}
	bar := progressbar.NewOptions64(about, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(kind), progressbar.OptionShowCount(),
		progressbar.OptionShowIts(), progressbar.OptionSetItsString("lines"), progressbar.OptionSetWidth(20), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
	n := int64(0)
	count = func() {
		if n++; n == about {
			about *= 2 // it was about so many
			bar.ChangeMax64(about)
		}
		bar.Set64(n)
	}
	return count, func() { bar.Clear() }
}

// writeWhole makes a file of what write writes. It appears under its name, in
// place of what was there, when all of it is on the disk; until then, and after
// an error, there is nothing but what was there.
func writeWhole(name string, write func(io.Writer) error) (err error) {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file: write to it with --out - and a redirection", name)
	}
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.partial")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(file.Name())
		}
	}()
	if err := write(file); err != nil {
		return err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// syncDir makes sure that a name is on the disk, too.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

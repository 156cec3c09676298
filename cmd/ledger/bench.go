package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rowlock/ledger/internal/bench"
	"github.com/rowlock/ledger/internal/transfer"
)

type benchCmd struct {
	One      benchRunCmd      `cmd:"" name:"run" help:"Measure one workload, and verify the ledger after it."`
	Compare  benchCompareCmd  `cmd:"" help:"Measure modes, group sizes, workloads and clients side by side, in rounds, against a plain program without a service."`
	Payments benchPaymentsCmd `cmd:"" help:"Measure how fast workers drain the queue of payments, against a naive queue."`
}

// benchFlags are what the first two need to know.
type benchFlags struct {
	Accounts  int           `help:"Accounts that money moves between." default:"10000"`
	Warmup    time.Duration `help:"Time before measuring." default:"1s"`
	Duration  time.Duration `help:"Time to measure." default:"5s"`
	Keys      bool          `help:"Send an Idempotency-Key with every request." default:"true" negatable:""`
	Batch     int           `help:"Transfers in a request, by POST /v1/transfers/batch. 0: one, by POST /v1/transfers."`
	ServeFlag []string      `help:"A further flag of the service that is started, like --serve-flag=--pool-size=32. Repeatable." placeholder:"FLAG" sep:"none"`
	Results   string        `help:"Append every result to this file, and do not repeat what it has: an interrupted run goes on where it was." placeholder:"FILE"`

	benchServerFlags
}

// benchServerFlags say on which server everything is measured.
type benchServerFlags struct {
	Setting     []string `help:"A setting of the private server, like shared_buffers=1GB. Repeatable." placeholder:"NAME=VALUE" sep:"none"`
	DatabaseURL string   `help:"PostgreSQL to measure on, in schemas that are removed afterwards. Without it, a durable private server with no data." placeholder:"URL"`
	binaryFlags
}

// openServer starts the private server, where none is named.
func (f benchServerFlags) openServer(ctx context.Context, logger *slog.Logger) (*database, error) {
	if f.DatabaseURL != "" {
		if len(f.Setting) > 0 {
			return nil, errors.New("--setting is for the private server, and --database-url names another")
		}
		return &database{url: f.DatabaseURL}, nil
	}
	settings := map[string]string{"max_connections": benchConnections}
	for _, s := range f.Setting {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--setting %s: want NAME=VALUE", s)
		}
		settings[name] = value
	}
	return f.startEphemeral(ctx, logger, settings)
}

// benchConnections leaves room for *base*, the service and what looks at both.
const benchConnections = "100"

// open starts what is to be measured.
func (f benchFlags) open(ctx context.Context, logger *slog.Logger) (*bench.Bench, *database, error) {
	if err := f.check(); err != nil {
		return nil, nil, err
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find this program: %w", err)
	}
	d, err := f.openServer(ctx, logger)
	if err != nil {
		return nil, nil, err
	}
	return &bench.Bench{
		Conditions:  bench.Conditions{Accounts: f.Accounts, Warmup: f.Warmup, Duration: f.Duration, Keys: f.Keys},
		DatabaseURL: d.url, Private: d.server != nil, Binary: binary, Serve: f.ServeFlag,
	}, d, nil
}

func (f benchFlags) check() error {
	if f.Warmup < 0 || f.Duration <= 0 || f.Batch < 0 || f.Batch > transfer.MaxBatch {
		return fmt.Errorf("--warmup must not be negative, --duration must be positive, and --batch from 0 to %d", transfer.MaxBatch)
	}
	return nil
}

func (f benchFlags) store() (bench.Store, error) {
	if f.Results == "" {
		return bench.Store{}, nil
	}
	return bench.OpenStore(f.Results)
}

func checkGroupSize(size string) error {
	if n, err := strconv.Atoi(size); size != bench.DefaultGroup && (err != nil || n < 1) {
		return fmt.Errorf("group size %q: want a number from 1, or %s", size, bench.DefaultGroup)
	}
	return nil
}

// workloadNames is the list that flags accept.
func workloadNames() string {
	var names []string
	for _, w := range bench.Workloads() {
		names = append(names, w.Name)
	}
	return strings.Join(names, ",")
}

// A benchLine is one line on a terminal that says how far a benchmark is.
// Elsewhere it says nothing.
type benchLine struct {
	w    io.Writer
	done string
}

const eraseLine = "\r\x1b[K"

func (l *benchLine) step(s bench.Step) { l.done = fmt.Sprintf("[%d/%d] ", s.Done+1, s.Runs) }

func (l *benchLine) show(p bench.Progress) {
	if !isTerminal(l.w) {
		return
	}
	fmt.Fprintf(l.w, "%s%s%s, %s, %d clients: %s", eraseLine, l.done, p.Cell.Name(), p.Cell.Workload, p.Cell.Clients, p.Phase)
	if p.Elapsed > 0 {
		fmt.Fprintf(l.w, ", %v, %.0f/s", p.Elapsed.Round(time.Second), p.PerSecond)
	}
}

func (l *benchLine) say(text string) {
	if isTerminal(l.w) {
		fmt.Fprint(l.w, eraseLine, text)
	}
}

func (l *benchLine) clear() {
	if isTerminal(l.w) {
		fmt.Fprint(l.w, eraseLine)
	}
}

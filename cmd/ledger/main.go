// Command ledger is Rowlock: an HTTP service that moves money between accounts
// in PostgreSQL, and the tools to prove that it does so right.
//
// Every subcommand is a file of its own: a struct of flags, and its Run. A flag
// --name can be set by the environment as LEDGER_NAME, too.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/alecthomas/kong"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// commands is the whole command line.
type commands struct {
	Serve    serveCmd    `cmd:"" help:"Serve the HTTP API. Without a database URL, on a private PostgreSQL server."`
	Work     workCmd     `cmd:"" help:"Make queued payments, beside the workers of \"ledger serve\"."`
	Migrate  migrateCmd  `cmd:"" help:"Bring a database's schema up to date, or show what it lacks."`
	Verify   verifyCmd   `cmd:"" help:"Check every invariant of a live ledger: no money lost, made, or out of place."`
	Export   exportCmd   `cmd:"" help:"Write all accounts, transfers, entries or holds of a live ledger, in one snapshot, as CSV or JSON lines."`
	Race     raceCmd     `cmd:"" help:"Run the race suite: what each mode keeps, or loses, under contention."`
	Lab      labCmd      `cmd:"" help:"Try every claim about row locks that the service relies on, on any database."`
	Bench    benchCmd    `cmd:"" help:"Measure how fast money moves, in any mode, on any database, and verify that none was lost."`
	Postgres postgresCmd `cmd:"" help:"Run a command with a private PostgreSQL server that ends with it."`
	Token    tokenCmd    `cmd:"" help:"Make a bearer token, and the line of the token file that admits it."`

	Version kong.VersionFlag `help:"Print the version and exit." env:"-"`
}

// A console is what a command talks to.
type console struct {
	stdout, stderr io.Writer
}

// run carries out one command line and returns the exit status: 0, 1 for a
// failure, 2 for a command line that cannot be understood, or what the command
// asked for.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (status int) {
	defer func() { // --help and --version leave the parser by a panic
		if r := recover(); r != nil {
			left, ok := r.(exitStatus)
			if !ok {
				panic(r)
			}
			status = int(left)
		}
	}()
	parser, err := kong.New(&commands{},
		kong.Name("ledger"),
		kong.Description("Rowlock: a transfer ledger on PostgreSQL, right under contention and able to prove it."),
		kong.DefaultEnvars("LEDGER"),
		kong.Vars{"version": version(), "modes": modeNames(), "workloads": workloadNames(), "groupsize": strconv.Itoa(defaultGroupSize)},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Exit(func(code int) { panic(exitStatus(code)) }),
		kong.Writers(stdout, stderr),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(&console{stdout: stdout, stderr: stderr}),
	)
	if err != nil {
		panic(err) // the command line's own definition is wrong
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "ledger: %v\nRun \"ledger --help\" to see how it is used.\n", err)
		return 2
	}
	err = command.Run()
	var exit exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	}
	fmt.Fprintf(stderr, "ledger: %v\n", err)
	return 1
}

// An exitStatus ends the program with this status; what there is to say has
// been said.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// version is the module's version and the commit, as far as the build knows.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v += " " + s.Value
		}
	}
	return v + " " + info.GoVersion
}

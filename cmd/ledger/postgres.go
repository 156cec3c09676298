package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/rowlock/ledger/internal/telemetry"
)

type postgresCmd struct {
	Command        []string `arg:"" help:"The command, after --." placeholder:"CMD"`
	MaxConnections int      `help:"Connections that the server admits." default:"200"`
	binaryFlags
}

// Run starts a private server with no data, runs the command with its address
// in LEDGER_DATABASE_URL and LEDGER_TEST_DATABASE_URL, and stops the server.
// It exits with the command's status.
func (c *postgresCmd) Run(ctx context.Context, con *console) (err error) {
	logger := telemetry.NewLogger(con.stderr, slog.LevelWarn)
	d, err := c.startEphemeral(ctx, logger, map[string]string{"max_connections": fmt.Sprint(c.MaxConnections)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(logger)) }()

	command := exec.Command(c.Command[0], c.Command[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, con.stdout, con.stderr
	command.Env = append(os.Environ(), "LEDGER_DATABASE_URL="+d.url, "LEDGER_TEST_DATABASE_URL="+d.url)
	if err := command.Start(); err != nil {
		return fmt.Errorf("run %s: %w", c.Command[0], err)
	}
	stop := forward(command.Process)
	defer stop()
	var exit *exec.ExitError
	if err := command.Wait(); errors.As(err, &exit) {
		return exitStatus(max(1, exit.ExitCode())) // -1 where a signal ended it
	} else if err != nil {
		return fmt.Errorf("run %s: %w", c.Command[0], err)
	}
	return nil
}

// forward passes on what would stop us, so that the command ends first and the
// server after it. A terminal's Ctrl-C reaches the command by itself.
func forward(process *os.Process) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for s := range signals {
			process.Signal(s)
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}

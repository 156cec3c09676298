package localpg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// postmaster is the server's main process, from fork to reaping.
type postmaster struct {
	cmd    *exec.Cmd
	grace  time.Duration // immediateGrace, and less in a test
	exited chan struct{}
	err    error // how it ended; read after exited is closed
}

// startPostmaster starts cmd. A throwaway server ends at once when we are killed,
// where the kernel can do that; one that keeps data goes on until the next start
// shuts it down in order.
func startPostmaster(cmd *exec.Cmd, throwaway bool) (*postmaster, error) {
	p := &postmaster{cmd: cmd, grace: immediateGrace, exited: make(chan struct{})}
	if throwaway {
		dieWithUs(cmd.SysProcAttr, syscall.SIGQUIT)
	}
	started := make(chan error, 1)
	go func() {
		// The death that the kernel reports to a child is that of the thread which
		// forked it, so the thread is kept for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return p, nil
}

func (p *postmaster) pid() int { return p.cmd.Process.Pid }

func (p *postmaster) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// immediateGrace is how long an immediate shutdown may take before the process
// is killed. It writes nothing, so it takes long only where a disk hangs.
const immediateGrace = 10 * time.Second

// stop ends the process and returns once it is reaped.
func (p *postmaster) stop(ctx context.Context) error {
	if p.hasExited() {
		return nil
	}
	p.signal(syscall.SIGINT) // fast
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
	}
	p.signal(syscall.SIGQUIT) // immediate
	err := fmt.Errorf("fast shutdown of postgres did not end in time, it was stopped at once: %w", ctx.Err())
	select {
	case <-p.exited:
		return err
	case <-time.After(p.grace):
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
	return err
}

// signal fails only where the process has ended, which exited tells better.
func (p *postmaster) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// memoryGrace is how long the processes of a server whose main process was
// killed may take to notice.
const memoryGrace = 10 * time.Second

// launch starts the server and waits until it answers.
func (s *Server) launch(ctx context.Context) error {
	deadline := time.Now().Add(memoryGrace)
	for {
		cmd := s.account.command(context.WithoutCancel(ctx), "/", s.bin.path("postgres"), s.serverArgs()...)
		cmd.Stdout, cmd.Stderr = s.serverLog, s.serverLog
		var err error
		if s.postmaster, err = startPostmaster(cmd, s.opts.Ephemeral); err != nil {
			return err
		}
		err = s.awaitReady(ctx)
		if err == nil {
			return nil
		}
		// After a kill -9 of the main process its children end within moments, and
		// until then PostgreSQL refuses to start beside them.
		inUse := s.postmaster.hasExited() && strings.Contains(s.serverLog.tail(), "pre-existing shared memory block")
		if !inUse || time.Now().After(deadline) {
			return err
		}
		s.log.WarnContext(ctx, "waiting for the last processes of a killed server", "directory", s.dir)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// awaitReady asks until the server answers a query, ends, or ctx does.
func (s *Server) awaitReady(ctx context.Context) error {
	for {
		err := query(ctx, dsn(s.socketDir, "postgres"), func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "SELECT 1")
			return err
		})
		// Class 57: starting up, or recovering. Any other answer will not change.
		var pg *pgconn.PgError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &pg) && !strings.HasPrefix(pg.Code, "57"):
			return fmt.Errorf("ask postgres whether it is ready: %w", err)
		}
		select {
		case <-s.postmaster.exited:
			return fmt.Errorf("postgres ended before it was ready: %w; the end of its log:%s",
				s.postmaster.ending(), indentOutput([]byte(s.serverLog.tail())))
		case <-ctx.Done():
			return fmt.Errorf("wait for postgres to answer (%w): %w", err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ending is how the process ended; zero is no success for one that should run.
func (p *postmaster) ending() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

const findDatabaseSQL = `SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'ledger')`

const createDatabaseSQL = `CREATE DATABASE ledger`

// ensureDatabase makes the database where it is missing: after an initdb, or
// after a kill between that and this.
func (s *Server) ensureDatabase(ctx context.Context) error {
	err := query(ctx, dsn(s.socketDir, "postgres"), func(ctx context.Context, c *pgx.Conn) error {
		var exists bool
		if err := c.QueryRow(ctx, findDatabaseSQL).Scan(&exists); err != nil || exists {
			return err
		}
		_, err := c.Exec(ctx, createDatabaseSQL)
		return err
	})
	if err != nil {
		return fmt.Errorf("make sure that database %s exists: %w", databaseName, err)
	}
	return nil
}

// query runs fn on a connection of its own.
func query(ctx context.Context, dsn string, fn func(context.Context, *pgx.Conn) error) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	config.ConnectTimeout = 5 * time.Second
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return fn(ctx, conn)
}

func dsn(socketDir, database string) string {
	query := url.Values{"host": {socketDir}, "port": {"5432"}}.Encode()
	u := url.URL{
		Scheme: "postgres",
		User:   url.User(roleName),
		Path:   "/" + database,
		// libpq takes a plus for a plus.
		RawQuery: strings.ReplaceAll(query, "+", "%20"),
	}
	return u.String()
}

// Package localpg runs a private PostgreSQL server from local binaries: the
// embedded default of `ledger serve`, of `ledger postgres` and of the tests.
//
// The one idea: whoever holds the lock on a directory owns everything in it. A
// server found running there without a holder is an orphan and is stopped, and
// a directory of a throwaway server without a holder is removed, so that
// kill -9 leaves nothing that the next start does not put right.
//
// Start reading at [Start], which names the steps in their order.
package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Options says where and how a server runs. The zero value is a durable server
// on the default data directory.
type Options struct {
	// DataDir holds pgdata/, the lock file and the server's log. Empty means
	// [DefaultDataDir].
	DataDir string
	// Ephemeral asks for a fresh temporary directory that Stop removes. DataDir
	// must then be empty.
	Ephemeral bool
	// BinDir is a directory with initdb, postgres and pg_ctl; nothing else is
	// then searched. Empty means: search as [FindBinaries] says, then download.
	BinDir string
	// User is the OS user the server runs as when we are root, the data
	// directory belongs to root or is new, and there is no user "postgres".
	User string
	// CacheDir keeps downloaded binaries. Empty means [DefaultCacheDir].
	CacheDir string
	// DownloadURL is the base of a Maven-style repository with the binaries of
	// embedded-postgres. Empty means that library's default.
	DownloadURL string
	// NoDownload forbids the network; binaries that are in CacheDir are used.
	NoDownload bool
	// Settings are further PostgreSQL settings, such as max_connections. Those
	// that keep the server private cannot be changed, and those that make it
	// durable only where it is Ephemeral.
	Settings map[string]string
	// Logger hears what happens to the server. Nil discards it.
	Logger *slog.Logger

	// installed replaces systemBinDirs in tests, which cannot uninstall PostgreSQL.
	installed string
}

// Server is a running PostgreSQL server that belongs to this process alone.
type Server struct {
	opts    Options
	log     *slog.Logger
	account *account // whom the server runs as; nil is ourselves
	bin     binaries

	dir           string // what the lock covers
	lock          *dirLock
	leftSocketDir string // the last holder's, while it is still to be removed
	socketDir     string
	serverLog     *serverLog
	postmaster    *postmaster

	stopOnce sync.Once
	stopErr  error
}

// Start finds the binaries, makes or recovers the data directory, starts the
// server and returns when it has answered a query. A role "ledger" (superuser)
// and a database "ledger" then exist. ctx bounds the start alone: the server
// runs until [Server.Stop].
//
// The error matches, with errors.Is: [ErrInUse], [ErrNoBinaries],
// [ErrNoAccount], [ErrVersion], or ctx's own error. After any error no process
// and no temporary directory is left.
func Start(ctx context.Context, o Options) (*Server, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, log: o.Logger}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.release())
	}
	s.log.InfoContext(ctx, "postgres started",
		"version", s.bin.version, "directory", s.dir, "socket", s.socketDir, "pid", s.postmaster.pid())
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	var err error
	if s.account, err = chooseAccount(s.opts); err != nil {
		return err
	}
	if s.bin, err = findOrDownload(ctx, s.opts, s.account); err != nil {
		return err
	}
	if err := s.openDir(ctx); err != nil {
		return err
	}
	if err := s.recoverDir(ctx); err != nil {
		return err
	}
	if err := s.prepareCluster(ctx); err != nil {
		return err
	}
	if s.socketDir, err = newSocketDir(ctx, s.account, s.bin); err != nil {
		return err
	}
	if err := s.lock.write(s.socketDir); err != nil {
		return err
	}
	if s.serverLog, err = openServerLog(filepath.Join(s.dir, serverLogName), s.account); err != nil {
		return err
	}
	if err := s.launch(ctx); err != nil {
		return err
	}
	return s.ensureDatabase(ctx)
}

// complete fills in the defaults and refuses what contradicts itself.
func (o Options) complete() (Options, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := checkSettings(o.Settings, o.Ephemeral); err != nil {
		return o, err
	}
	var err error
	switch {
	case o.Ephemeral && o.DataDir != "":
		return o, errors.New("an ephemeral server has no data directory of its own: leave DataDir empty")
	case !o.Ephemeral && o.DataDir == "":
		if o.DataDir, err = DefaultDataDir(); err != nil {
			return o, err
		}
	case o.DataDir != "":
		if o.DataDir, err = filepath.Abs(o.DataDir); err != nil {
			return o, fmt.Errorf("data directory: %w", err)
		}
	}
	if o.CacheDir == "" {
		// Without a home there is no cache, which matters only to a download.
		o.CacheDir, _ = DefaultCacheDir()
	}
	return o, nil
}

// DSN is the address of the database, as a URL that pgx and psql both read.
func (s *Server) DSN() string { return dsn(s.socketDir, databaseName) }

// PsqlCommand is a shell command, quoted so that it works as pasted, that opens
// psql on the database.
func (s *Server) PsqlCommand() string {
	psql := "psql"
	if _, err := exec.LookPath(psql); err != nil {
		if own := filepath.Join(s.bin.dir, psql); isExecutable(own) {
			psql = shellQuote(own)
		}
	}
	return psql + " " + shellQuote(s.DSN())
}

func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Version is the server's version, such as "15.18".
func (s *Server) Version() string { return s.bin.version }

// Exited is closed when the server's main process has ended, by Stop or by a
// crash. Stop must be called in either case.
func (s *Server) Exited() <-chan struct{} { return s.postmaster.exited }

// Stop ends the server: a fast shutdown, which rolls back what is open and
// writes a checkpoint; when ctx is done first, an immediate one, from which the
// next start recovers what was committed. It removes the socket's directory, and
// an ephemeral server's data. Further calls wait for the first and return its
// error.
//
// An error says that the shutdown was not an orderly one or that something could
// not be removed. Whatever it returns, no process of the server is left, and
// nothing that was committed is lost.
func (s *Server) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		s.stopErr = errors.Join(s.postmaster.stop(ctx), s.release())
		s.log.InfoContext(ctx, "postgres stopped", "directory", s.dir)
	})
	return s.stopErr
}

// release ends what start began, however far it came, in reverse order: the lock
// goes last, because it is what keeps others away from the rest.
func (s *Server) release() error {
	var errs []error
	if s.postmaster != nil && !s.postmaster.hasExited() {
		ctx, cancel := context.WithTimeout(context.Background(), abandonedStartGrace)
		defer cancel()
		errs = append(errs, s.postmaster.stop(ctx))
	}
	if s.serverLog != nil {
		errs = append(errs, s.serverLog.Close())
	}
	if s.socketDir != "" {
		errs = append(errs, removeSocketDir(s.socketDir))
	}
	if s.lock != nil {
		if s.opts.Ephemeral {
			errs = append(errs, removeTree(s.dir))
		} else {
			errs = append(errs, s.lock.write(s.leftSocketDir))
		}
		errs = append(errs, s.lock.release())
	}
	return errors.Join(errs...)
}

// abandonedStartGrace is how long a server whose start was given up may take for
// an orderly end.
const abandonedStartGrace = 5 * time.Second

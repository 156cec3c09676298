package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// openDir makes the server's directory and takes its lock.
func (s *Server) openDir(ctx context.Context) error {
	if s.opts.Ephemeral {
		return s.openEphemeralDir(ctx)
	}
	dir := s.opts.DataDir
	if err := ensureDir(dir, s.account); err != nil {
		return err
	}
	lock, was, err := lockDir(dir, s.account)
	if err != nil {
		return err
	}
	s.dir, s.lock, s.leftSocketDir = dir, lock, was.socketDir
	if err := lock.write(s.leftSocketDir); err != nil {
		return err
	}
	if err := s.account.canEnter(ctx, dir, s.bin); err != nil {
		return fmt.Errorf("data directory: %w; choose one that it can enter with --data-dir", err)
	}
	return nil
}

const (
	ephemeralPrefix = "ledger-ephemeral-"
	// abandonedAge is when a directory without a lock file is taken for one whose
	// maker was killed before it could lock it.
	abandonedAge = time.Hour
)

func (s *Server) openEphemeralDir(ctx context.Context) error {
	for _, parent := range tempDirs() {
		sweep(ctx, parent, s.log)
	}
	dir, err := firstUsable("make an ephemeral data directory", func(parent string) (dir string, err error) {
		// A sweeper that comes by between our making the lock file and locking it is
		// right to take the directory for an abandoned one.
		for range 5 {
			dir, s.lock, err = makeEphemeralDir(ctx, parent, s.account, s.bin)
			if !errors.Is(err, ErrInUse) && !errors.Is(err, os.ErrNotExist) {
				break
			}
		}
		return dir, err
	})
	if err != nil {
		return err
	}
	s.dir = dir
	return s.lock.write("")
}

func makeEphemeralDir(ctx context.Context, parent string, a *account, b binaries) (string, *dirLock, error) {
	dir, err := os.MkdirTemp(parent, ephemeralPrefix)
	if err != nil {
		return "", nil, err
	}
	if a != nil {
		// Passable for the server's user, and readable for nobody else.
		err = os.Chmod(dir, 0o711)
	}
	if err == nil {
		err = a.canEnter(ctx, dir, b)
	}
	var lock *dirLock
	if err == nil {
		lock, _, err = lockDir(dir, a)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, lock, nil
}

// sweep removes what killed runs left in a directory for temporary files: for
// each the lock decides whether somebody still needs it. Failures are logged and
// left to the next sweep.
func sweep(ctx context.Context, parent string, log *slog.Logger) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ephemeralPrefix) {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		if err := sweepOne(ctx, dir, log); err != nil {
			log.WarnContext(ctx, "leftover of a killed run stays", "directory", dir, "error", err)
		}
	}
}

func sweepOne(ctx context.Context, dir string, log *slog.Logger) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() {
		return nil // somebody else's, who will sweep it
	}
	// Without O_CREATE: a lock file of ours would lock its maker out.
	lock, was, err := lockDir(dir, nil, flock.SetFlag(os.O_RDWR|syscall.O_NOFOLLOW))
	switch {
	case errors.Is(err, ErrInUse):
		return nil
	case errors.Is(err, os.ErrNotExist):
		if time.Since(info.ModTime()) < abandonedAge {
			return nil
		}
		return removeTree(dir)
	case err != nil:
		return err
	}
	log.InfoContext(ctx, "removing what a killed run left", "directory", dir, "pid", was.pid)
	err = stopOrphan(ctx, filepath.Join(dir, pgdataName), syscall.SIGQUIT, log)
	if err == nil && was.socketDir != "" {
		err = removeSocketDir(was.socketDir)
	}
	if err == nil {
		err = removeTree(dir)
	}
	return errors.Join(err, lock.release())
}

// recoverDir puts right what a killed holder of the lock left behind.
func (s *Server) recoverDir(ctx context.Context) error {
	if err := stopOrphan(ctx, filepath.Join(s.dir, pgdataName), syscall.SIGINT, s.log); err != nil {
		return err
	}
	if s.leftSocketDir != "" {
		if err := removeSocketDir(s.leftSocketDir); err != nil {
			s.log.WarnContext(ctx, "leftover of a killed run stays", "error", err)
		}
		s.leftSocketDir = ""
	}
	removeWithPrefix(s.dir, newPgdata, s.log)
	return s.lock.write("")
}

// orphanGrace is how long an orphan may take for an orderly end before it is
// asked more firmly; its write-ahead log keeps what was committed in any case.
const orphanGrace = 30 * time.Second

// stopOrphan stops the server that runs on pgdata, if one does. The caller holds
// the lock, so that server has lost whoever started it. It is told first by
// signal, then more and more firmly.
func stopOrphan(ctx context.Context, pgdata string, signal syscall.Signal, log *slog.Logger) error {
	pid := postmasterPID(pgdata)
	if pid == 0 {
		return nil
	}
	if !isPostmaster(pid, pgdata) {
		return removeStalePID(pid, pgdata)
	}
	log.WarnContext(ctx, "stopping a server that has lost its ledger", "pid", pid, "directory", pgdata)
	for _, signal := range []syscall.Signal{signal, syscall.SIGQUIT, syscall.SIGKILL} {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the orphaned server %d on %s: %w", pid, pgdata, err)
		}
		deadline := time.Now().Add(orphanGrace)
		for time.Now().Before(deadline) {
			if !isPostmaster(pid, pgdata) {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for the orphaned server %d on %s to stop: %w", pid, pgdata, ctx.Err())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return fmt.Errorf("the orphaned server %d on %s does not stop", pid, pgdata)
}

// postmasterPID is the process that the server's own lock file names, or 0.
func postmasterPID(pgdata string) int {
	text, err := os.ReadFile(filepath.Join(pgdata, postmasterPIDName))
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 1 {
		return 0
	}
	return pid
}

const postmasterPIDName = "postmaster.pid"

// removeStalePID removes a postmaster.pid whose process id has since gone to
// another program: PostgreSQL would take that program for a running server and
// refuse to start. Where the process is dead PostgreSQL sees that itself, and in
// both cases it still checks that no process is attached to the old server's
// shared memory.
func removeStalePID(pid int, pgdata string) error {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err := os.Remove(filepath.Join(pgdata, postmasterPIDName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a stale lock file: %w", err)
	}
	return nil
}

package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// What is in a data directory.
const (
	pgdataName     = "pgdata"
	newPgdata      = "pgdata.new-" // an initdb that is not finished
	lockName       = "lock"
	serverLogName  = "server.log"
	socketPrefix   = "ledger-pg-"
	socketFileName = ".s.PGSQL.5432"
)

// maxSocketPath is what fits into sockaddr_un.sun_path with its final NUL: 108
// bytes on Linux, 104 on macOS.
const maxSocketPath = 103

// DefaultDataDir is where data is kept unless told otherwise: /var/lib/ledger for
// root, whose home the server's user could not enter, else $XDG_DATA_HOME/ledger.
func DefaultDataDir() (string, error) {
	return defaultDir("/var/lib/ledger", "XDG_DATA_HOME", ".local/share", "--data-dir")
}

// DefaultCacheDir is where downloaded binaries are kept unless told otherwise:
// /var/cache/ledger for root, else $XDG_CACHE_HOME/ledger.
func DefaultCacheDir() (string, error) {
	return defaultDir("/var/cache/ledger", "XDG_CACHE_HOME", ".cache", "a cache directory")
}

func defaultDir(root, env, underHome, option string) (string, error) {
	if os.Geteuid() == 0 {
		return root, nil
	}
	// The XDG specification has relative paths ignored.
	if base := os.Getenv(env); filepath.IsAbs(base) {
		return filepath.Join(base, "ledger"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no default directory (give %s, or set %s): %w", option, env, err)
	}
	return filepath.Join(home, underHome, "ledger"), nil
}

// ensureDir makes dir and what is missing above it. What it makes as root others
// can enter, whatever the umask says, because the server runs as another user.
func ensureDir(dir string, a *account) error {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		missing = append(missing, d)
	}
	mode := os.FileMode(0o700)
	if a != nil {
		mode = 0o755
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	for _, d := range missing {
		if err := os.Chmod(d, mode); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	return nil
}

// tempDirs are the places for what is temporary, in order: TMPDIR may be too
// long for a socket, have a comma in it, or be closed to the server's user.
func tempDirs() []string {
	if first := filepath.Clean(os.TempDir()); first != "/tmp" && filepath.IsAbs(first) {
		return []string{first, "/tmp"}
	}
	return []string{"/tmp"}
}

// newSocketDir makes the directory that is the server's whole access control: it
// belongs to its user, and nobody else but root can enter it.
func newSocketDir(ctx context.Context, a *account, b binaries) (string, error) {
	return firstUsable("make the socket's directory", func(parent string) (string, error) {
		if strings.Contains(parent, ",") {
			return "", fmt.Errorf("%s has a comma, which in a host means several hosts", parent)
		}
		dir, err := os.MkdirTemp(parent, socketPrefix)
		if err != nil {
			return "", err
		}
		err = func() error {
			if n := len(filepath.Join(dir, socketFileName)); n > maxSocketPath {
				return fmt.Errorf("a socket in %s would have a path of %d bytes, more than %d", parent, n, maxSocketPath)
			}
			if err := a.own(dir); err != nil {
				return err
			}
			return a.canEnter(ctx, dir, b)
		}()
		if err != nil {
			return "", errors.Join(err, os.Remove(dir))
		}
		return dir, nil
	})
}

// firstUsable is make's directory in the first temporary place where it works.
func firstUsable(doing string, makeIn func(parent string) (string, error)) (string, error) {
	var errs []error
	for _, parent := range tempDirs() {
		dir, err := makeIn(parent)
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("%s: %w", doing, errors.Join(errs...))
}

// removeSocketDir removes only what a server puts there, and only from a
// directory that is named like one: the name may come from a file that the
// server's user could have written.
func removeSocketDir(dir string) error {
	if !filepath.IsAbs(dir) || !strings.HasPrefix(filepath.Base(dir), socketPrefix) {
		return fmt.Errorf("%s is not a socket's directory", dir)
	}
	for _, path := range []string{
		filepath.Join(dir, socketFileName), filepath.Join(dir, socketFileName+".lock"), dir,
	} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the socket's directory: %w", err)
		}
	}
	return nil
}

// removeTree removes a directory that a dying server may still be writing into:
// its last processes end a moment after the first one.
func removeTree(dir string) error {
	var err error
	for range 10 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("remove %s: %w", dir, err)
}

// removeWithPrefix removes what killed runs left in dir. What cannot be removed
// is in nobody's way and is tried again next time.
func removeWithPrefix(dir, prefix string, log *slog.Logger) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
			log.Warn("leftover of a killed run stays", "error", err)
		}
	}
}

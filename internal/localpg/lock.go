package localpg

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gofrs/flock"
)

// lockFlags opens a lock file without following a symbolic link, which the owner
// of the directory could have put there for root to write through.
var lockFlags = flock.SetFlag(os.O_CREATE | os.O_RDWR | syscall.O_NOFOLLOW)

// dirLock is the sole right to a directory, held for the life of the process:
// the kernel lets go of it however the process ends. The server does not inherit
// it, so an orphan does not hold it.
type dirLock struct {
	dir   string
	flock *flock.Flock
}

// holder is what a lock's file says of who holds the lock, or held it last. The
// lock itself is the kernel's; this is only text.
type holder struct {
	pid       int
	socketDir string
}

// lockDir takes the lock or returns [ErrInUse]. was is the last holder.
func lockDir(dir string, a *account, extra ...flock.Option) (l *dirLock, was holder, err error) {
	path := filepath.Join(dir, lockName)
	l = &dirLock{dir: dir, flock: flock.New(path, append([]flock.Option{lockFlags}, extra...)...)}
	locked, err := l.flock.TryLock()
	if err != nil {
		return nil, holder{}, fmt.Errorf("lock the data directory: %w", err)
	}
	was = readHolder(path)
	if !locked {
		err := fmt.Errorf("%w: %s", ErrInUse, dir)
		if was.pid != 0 {
			err = fmt.Errorf("%w is held by process %d", err, was.pid)
		}
		return nil, holder{}, err
	}
	// The file may have been removed, with its directory, between open and lock.
	mine, err := l.flock.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Lstat(path); err == nil && !os.SameFile(mine, there) {
			err = fmt.Errorf("%w: %s was replaced", ErrInUse, path)
		}
	}
	if err == nil {
		err = a.own(path)
	}
	if err != nil {
		return nil, holder{}, errors.Join(fmt.Errorf("lock the data directory: %w", err), l.flock.Unlock())
	}
	return l, was, nil
}

// write says that this process holds the lock and where its socket is.
func (l *dirLock) write(socketDir string) error {
	f, err := os.OpenFile(l.flock.Path(), os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	_, err = fmt.Fprintf(f, "%d\n%s\n", os.Getpid(), socketDir)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	return nil
}

func (l *dirLock) release() error {
	if err := l.flock.Unlock(); err != nil {
		return fmt.Errorf("release the data directory: %w", err)
	}
	return nil
}

func readHolder(path string) holder {
	text, err := os.ReadFile(path)
	if err != nil {
		return holder{}
	}
	pid, socketDir, _ := strings.Cut(string(text), "\n")
	n, err := strconv.Atoi(pid)
	if err != nil {
		return holder{}
	}
	return holder{pid: n, socketDir: strings.TrimSpace(socketDir)}
}

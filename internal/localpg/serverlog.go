package localpg

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

const (
	// maxLogSize is where the log begins a new file; one older file is kept, so the
	// two never take more than twice as much.
	maxLogSize = 8 << 20
	// tailSize is how much of the log an error shows.
	tailSize = 2 << 10
)

// serverLog receives the server's log and keeps it in a file of bounded size. A
// ledger that is refused often, by conflicts say, logs a line each time.
//
// It takes every write, also where the disk is full: otherwise the pipe would
// fill up, and the server would wait for it.
type serverLog struct {
	path    string
	account *account
	limit   int64

	mu   sync.Mutex
	file *os.File
	size int64
	last []byte // the log's end, for errors
}

func openServerLog(path string, a *account) (*serverLog, error) {
	l := &serverLog{path: path, account: a, limit: maxLogSize}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("open the server's log: %w", err)
	}
	return l, nil
}

func (l *serverLog) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if l.account != nil {
		// Else a later run as that user could not append.
		err = f.Chown(int(l.account.uid), int(l.account.gid))
	}
	info, statErr := f.Stat()
	if err := errors.Join(err, statErr); err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Write never fails and always takes all of p.
func (l *serverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = append(l.last, p...)
	if n := len(l.last); n > tailSize {
		l.last = append(l.last[:0], l.last[n-tailSize:]...)
	}
	if l.size >= l.limit {
		l.rotate()
	}
	if l.file != nil {
		n, _ := l.file.Write(p)
		l.size += int64(n)
	}
	return len(p), nil
}

// rotate begins a new file. Where that fails the log ends, and the server goes
// on without one.
func (l *serverLog) rotate() {
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
	if err := os.Rename(l.path, l.path+".1"); err != nil {
		return
	}
	_ = l.open()
}

func (l *serverLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.last)
}

func (l *serverLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	l.size = 0
	return err
}

package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

type healthJSON struct {
	Status string `json:"status"`
}

// livez asks nobody: a database that is down is no reason to restart us.
func livez(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, healthJSON{"ok"})
}

func (s *server) readyz(w http.ResponseWriter, r *http.Request) error {
	select {
	case <-s.Stopping: // at once: a balancer has little time to notice
		return fmt.Errorf("%w: stopping", errNotReady)
	default:
	}
	if err := s.readiness.find(r.Context()); err != nil {
		return fmt.Errorf("%w: %w", errNotReady, err)
	}
	return writeJSON(w, http.StatusOK, healthJSON{"ok"})
}

// readiness keeps what check found for a moment, and asks once for all that
// ask at the same time: probes must not be a load.
type readiness struct {
	check func(context.Context) error

	group singleflight.Group
	mu    sync.Mutex
	err   error
	until time.Time
}

const (
	readyTimeout = time.Second
	readyFresh   = time.Second
)

func (p *readiness) find(ctx context.Context) error {
	if err, fresh := p.last(); fresh {
		return err
	}
	_, err, _ := p.group.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		err := p.check(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err, p.until = err, time.Now().Add(readyFresh)
		return nil, err
	})
	return err
}

func (p *readiness) last() (err error, fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err, time.Now().Before(p.until)
}

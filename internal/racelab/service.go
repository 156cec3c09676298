package racelab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rowlock/ledger/internal/transfer"
)

// A Service is a running ledger.
type Service struct {
	URL string // of its root, without a slash at the end

	// Stop ends it in order. The error says that it did not end well: not with
	// status 0, not in time, or with a report of Go's race detector.
	Stop func() error

	// Kill ends it as kill -9 does; nil where it is no process of its own.
	Kill func()
}

// StartOptions say what to start.
type StartOptions struct {
	Mode        string
	DatabaseURL string
	Flags       []string // further flags of `ledger serve`
}

// A Starter starts a service and returns when it is ready.
type Starter func(ctx context.Context, o StartOptions) (*Service, error)

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second
)

// ExecService starts `binary serve`, each time as a process of its own. A mode
// that loses money is allowed to.
func ExecService(binary string) Starter {
	return func(ctx context.Context, o StartOptions) (*Service, error) {
		args := []string{"serve", "--listen", "127.0.0.1:0", "--migrate=true", "--mode", o.Mode}
		if mode, err := transfer.ModeByName(o.Mode); err != nil {
			return nil, err
		} else if mode.LosesMoney {
			args = append(args, "--allow-lost-updates")
		}
		cmd := exec.Command(binary, append(args, o.Flags...)...)
		cmd.Env = serviceEnv(os.Environ(), o.DatabaseURL)
		return startProcess(ctx, cmd)
	}
}

// serviceEnv passes the URL where no list of processes shows its password, and
// none of the caller's own settings. A binary with the race detector would
// sleep for a second at every end, to hear of races that nobody waits for.
func serviceEnv(environ []string, databaseURL string) []string {
	var env []string
	for _, v := range environ {
		if !strings.HasPrefix(v, "LEDGER_") {
			env = append(env, v)
		}
	}
	return append(env, "LEDGER_DATABASE_URL="+databaseURL, "GORACE=atexit_sleep_ms=20")
}

// A process is a service's process and what it wrote.
type process struct {
	cmd     *exec.Cmd
	log     *processLog
	exited  chan struct{} // closed when it has ended and err is set
	err     error
	address chan string
}

func newProcess(cmd *exec.Cmd) (*process, error) {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	p := &process{cmd: cmd, log: &processLog{}, exited: make(chan struct{}), address: make(chan string, 1)}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	go p.watch(stderr)
	return p, nil
}

func startProcess(ctx context.Context, cmd *exec.Cmd) (*Service, error) {
	p, err := newProcess(cmd)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	url, err := p.waitReady(ctx)
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("start the service: %w\n%s", err, p.log.tail())
	}
	return &Service{URL: url, Stop: p.stop, Kill: p.kill}, nil
}

// watch reads the log to its end, and only then waits, which closes the pipe.
func (p *process) watch(stderr io.Reader) {
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		p.log.add(line)
		if address := listening(line); address != "" {
			p.address <- address
		}
		if err != nil {
			break
		}
	}
	p.err = p.cmd.Wait()
	close(p.exited)
}

// listening returns the address in the log line that announces it.
func listening(line string) string {
	var entry struct {
		Msg     string `json:"msg"`
		Address string `json:"address"`
	}
	if json.Unmarshal([]byte(line), &entry) != nil || entry.Msg != "listening" {
		return ""
	}
	return entry.Address
}

// waitReady returns the service's URL when it says that it can move money.
func (p *process) waitReady(ctx context.Context) (string, error) {
	var url string
	select {
	case address := <-p.address:
		url = "http://" + address
	case <-p.exited:
		return "", fmt.Errorf("it ended: %v", p.err)
	case <-ctx.Done():
		return "", ctx.Err()
	}
	for {
		if ready(ctx, url) {
			return url, nil
		}
		select {
		case <-p.exited:
			return "", fmt.Errorf("it ended: %v", p.err)
		case <-ctx.Done():
			return "", fmt.Errorf("it did not get ready: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func ready(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (p *process) stop() error {
	p.cmd.Process.Signal(syscall.SIGTERM) // its error says that the process has ended
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		p.kill()
		return fmt.Errorf("the service did not stop within %v\n%s", stopTimeout, p.log.tail())
	}
	if report := p.log.race(); report != "" {
		return fmt.Errorf("the race detector found a data race in the service:\n%s", report)
	}
	if p.err != nil {
		return fmt.Errorf("the service ended badly: %w\n%s", p.err, p.log.tail())
	}
	return nil
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.exited
}

// A processLog keeps the last lines of a log, and a race detector's report
// from its beginning.
type processLog struct {
	mu     sync.Mutex
	last   []string
	report []string
}

const (
	tailLines   = 30
	reportLines = 200
)

func (l *processLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == tailLines {
		l.last = l.last[1:]
	}
	l.last = append(l.last, line)
	if started := len(l.report) > 0; (started || strings.Contains(line, "WARNING: DATA RACE")) && len(l.report) < reportLines {
		l.report = append(l.report, line)
	}
}

func (l *processLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "")
}

func (l *processLog) race() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.report, "")
}

// stopAll stops services and joins what went wrong.
func stopAll(services []*Service) error {
	var errs []error
	for _, s := range services {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}

package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second
)

// runService measures a service that it starts, or the one at URL.
func (b *Bench) runService(ctx context.Context, l *ledger, w Workload, r *Result) (err error) {
	address := b.URL
	if address == "" {
		s, err := b.startService(ctx, r.Cell, l.url)
		if err != nil {
			return fmt.Errorf("start the service: %w", err)
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		address = s.url
	}
	parsed, err := url.Parse(address)
	if err != nil {
		return err
	}
	target := httpTarget{url: parsed, token: b.Token, ids: l.ids, batch: r.Batch}
	if b.Keys {
		target.run = newRun()
	}
	var callers []caller
	for n := range r.Clients {
		callers = append(callers, newHTTPCaller(target, n))
	}
	return b.drive(ctx, l, w, callers, address, r)
}

// newRun begins keys that nobody has used.
func newRun() string {
	random := make([]byte, 8)
	rand.Read(random) // never fails
	return hex.EncodeToString(random)
}

// A service is a `ledger serve` of ours.
type service struct {
	url    string
	cmd    *exec.Cmd
	log    *tail
	exited chan struct{} // closed when it has ended and err is set
	err    error
}

// serveArgs is the service's command line for a cell. It logs no line for each
// request: they would be measured with it, and nobody reads them. Flags of the
// caller's come last and win.
func (b *Bench) serveArgs(cell Cell) []string {
	args := []string{"serve", "--listen", "127.0.0.1:0", "--migrate=false", "--log-level", "warn", "--mode", cell.Mode}
	if mayLose(cell.Mode) {
		args = append(args, "--allow-lost-updates")
	}
	if groups(cell.Mode) && cell.GroupSize != DefaultGroup {
		args = append(args, "--group-size", cell.GroupSize)
	}
	return append(args, b.Serve...)
}

// startService starts the service and returns when it is ready. Its settings
// are its own defaults and not what LEDGER_… in our environment says; the
// database's URL is passed where no list of processes shows its password.
func (b *Bench) startService(ctx context.Context, cell Cell, databaseURL string) (*service, error) {
	s := &service{cmd: exec.Command(b.Binary, b.serveArgs(cell)...), log: &tail{}, exited: make(chan struct{})}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LEDGER_") {
			s.cmd.Env = append(s.cmd.Env, v)
		}
	}
	s.cmd.Env = append(s.cmd.Env, "LEDGER_DATABASE_URL="+databaseURL)
	s.cmd.Stderr = s.log
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	address := make(chan string, 1)
	go s.watch(stdout, address)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.waitReady(ctx, address); err != nil {
		s.kill()
		return nil, fmt.Errorf("%w\n%s", err, s.log.text)
	}
	return s, nil
}

var servingAt = regexp.MustCompile(`serving on (http://\S+)`)

// watch reads what the service prints to its end, and only then waits, which
// closes the pipe.
func (s *service) watch(stdout io.Reader, address chan<- string) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if found := servingAt.FindStringSubmatch(lines.Text()); found != nil {
			select {
			case address <- found[1]:
			default: // it is known
			}
		}
	}
	s.err = s.cmd.Wait()
	close(s.exited)
}

func (s *service) waitReady(ctx context.Context, address <-chan string) error {
	select {
	case s.url = <-address:
	case <-s.exited:
		return fmt.Errorf("it ended: %v", s.err)
	case <-ctx.Done():
		return ctx.Err()
	}
	for !ready(ctx, s.url) {
		select {
		case <-s.exited:
			return fmt.Errorf("it ended: %v", s.err)
		case <-ctx.Done():
			return fmt.Errorf("it did not get ready: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func ready(ctx context.Context, url string) bool {
	response, err := get(ctx, url+"/readyz")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func get(ctx context.Context, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(request)
}

// stop ends the service in order, and returns what went wrong with it.
func (s *service) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // its error says that the process has ended
	select {
	case <-s.exited:
	case <-time.After(stopTimeout):
		s.kill()
		return fmt.Errorf("the service did not stop within %v\n%s", stopTimeout, s.log.text)
	}
	if s.err != nil {
		return fmt.Errorf("the service ended badly: %w\n%s", s.err, s.log.text)
	}
	return nil
}

func (s *service) kill() {
	_ = s.cmd.Process.Kill() // its error says that the process has ended
	<-s.exited
}

// A tail keeps the end of a log. It is read when the process has ended.
type tail struct{ text []byte }

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - tailSize; over > 0 {
		t.text = bytes.Clone(t.text[over:])
	}
	return len(p), nil
}

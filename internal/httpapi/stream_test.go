package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// streaming serves one list of lines, and tells of each answer's end.
func streaming(t *testing.T, c Config, next func(context.Context) ([]entryJSON, bool, error)) (url string, ended <-chan Observation) {
	t.Helper()
	observed := make(chan Observation, 100)
	c.Observe = func(o Observation) { o.Duration = 0; observed <- o }
	if c.RequestTimeout == 0 {
		c.RequestTimeout = time.Minute
	}
	s := newServer(c)
	list := handle(func(w http.ResponseWriter, r *http.Request) error { return stream(s, w, r, "list.csv", next) })
	server := httptest.NewUnstartedServer(s.identify(s.observe(recoverPanics(s.detach(list)))))
	server.Config.WriteTimeout = writeTimeout
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, observed
}

// writeTimeout is the server's own, which no stream of these tests keeps.
const writeTimeout = 50 * time.Millisecond

func get(t *testing.T, url string) (*http.Response, string, error) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// line is a line that the test can count.
var line = []entryJSON{{Direction: "credit"}}

// A stream takes as long as it takes: only its parts have a deadline, each its own.
func TestAStreamOutlivesTheDeadlineOfARequest(t *testing.T) {
	t.Parallel()
	var deadlines []time.Time
	url, ended := streaming(t, Config{}, func(ctx context.Context) ([]entryJSON, bool, error) {
		deadline, ok := ctx.Deadline()
		if !ok {
			t.Error("a part has no deadline")
		}
		deadlines = append(deadlines, deadline)
		time.Sleep(2 * writeTimeout)
		return line, len(deadlines) < 3, nil
	})
	response, body, err := get(t, url)
	if err != nil || response.StatusCode != 200 || strings.Count(body, "credit") != 3 || !strings.HasPrefix(body, "account_id,version,") {
		t.Errorf("got %d %q, %v; want three lines", response.StatusCode, body, err)
	}
	if o := <-ended; o.Status != 200 || o.Code != "" {
		t.Errorf("observed %+v, want 200", o)
	}
	for i := range deadlines[1:] {
		if !deadlines[i+1].After(deadlines[i]) {
			t.Errorf("parts had the deadlines %v, want each later than the one before", deadlines)
		}
	}
}

// Half a list is never taken for a whole one; before its first part, a failure
// is a problem like any other.
func TestAStreamThatFailsIsNotComplete(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		failing int // the part that cannot be read
	}{{"at once", 1}, {"after a part", 2}, {"after many", 200}} {
		parts := 0
		url, ended := streaming(t, Config{}, func(context.Context) ([]entryJSON, bool, error) {
			if parts++; parts == tt.failing {
				return nil, false, errNotReady
			}
			return line, true, nil
		})
		response, body, err := get(t, url)
		if tt.failing == 1 {
			if err != nil || response.StatusCode != 503 || !strings.Contains(body, `"unavailable"`) || response.Header.Get("Content-Disposition") != "" {
				t.Errorf("%s: got %d %s, %v; want a problem", tt.name, response.StatusCode, body, err)
			}
		} else if !errors.Is(err, io.ErrUnexpectedEOF) || strings.Count(body, "credit") != tt.failing-1 {
			t.Errorf("%s: got %d lines, %v; want %d and an unexpected end", tt.name, strings.Count(body, "credit"), err, tt.failing-1)
		}
		if o := <-ended; o.Status != 503 || o.Code != "unavailable" {
			t.Errorf("%s: observed %+v, want 503 unavailable", tt.name, o)
		}
	}
}

// endless is a list without an end.
func endless(context.Context) ([]entryJSON, bool, error) { return line, true, nil }

func TestAStreamEndsWhenItsCallerHasLeft(t *testing.T) {
	t.Parallel()
	url, ended := streaming(t, Config{}, endless)
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if o := <-ended; o.Status != statusLeft || o.Code != "" {
		t.Errorf("observed %+v, want %d", o, statusLeft)
	}
}

func TestAServiceThatStopsWaitsForNoStream(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	url, ended := streaming(t, Config{Stopping: stopping}, endless)
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	close(stopping)
	if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the body ends with %v, want an unexpected end", err)
	}
	if o := <-ended; o.Status != 503 {
		t.Errorf("observed %+v, want 503", o)
	}
}

// A HEAD request reads no more than it needs to know that there is an answer.
func TestHeadOfAStreamIsShort(t *testing.T) {
	t.Parallel()
	var parts atomic.Int32
	url, _ := streaming(t, Config{}, func(ctx context.Context) ([]entryJSON, bool, error) {
		parts.Add(1)
		return line, true, nil
	})
	response, err := http.Head(url)
	if err != nil || response.StatusCode != 200 || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/csv") {
		t.Errorf("got %+v, %v, want 200", response, err)
	}
	if got := parts.Load(); got != 1 {
		t.Errorf("%d parts were read, want 1", got)
	}
}

// Streams leave room for other requests: one more than their share is answered
// early.
func TestTooManyStreamsAreAnsweredEarly(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	url, _ := streaming(t, Config{MaxInFlight: streamShare}, func(context.Context) ([]entryJSON, bool, error) {
		begun <- struct{}{}
		<-goOn
		return line, false, nil
	})
	first := make(chan error, 1)
	go func() {
		response, err := http.Get(url)
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		first <- err
	}()
	<-begun
	if response, body, err := get(t, url); err != nil || response.StatusCode != 503 || !strings.Contains(body, `"overloaded"`) {
		t.Errorf("got %d %s, %v, want overloaded", response.StatusCode, body, err)
	}
	close(goOn)
	if err := <-first; err != nil {
		t.Errorf("the first stream ends with %v", err)
	}
	go func() { <-begun }()
	if response, body, err := get(t, url); err != nil || response.StatusCode != 200 {
		t.Errorf("got %d %s, %v, want 200: the place is free again", response.StatusCode, body, err)
	}
}

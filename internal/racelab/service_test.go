package racelab

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// script is a process of a shell script in place of the binary's.
func script(t *testing.T, text string) *process {
	t.Helper()
	p, err := newProcess(exec.Command("/bin/sh", "-c", text))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func TestListening(t *testing.T) {
	for line, want := range map[string]string{
		`{"level":"INFO","msg":"listening","address":"127.0.0.1:4711","mode":"none"}`: "127.0.0.1:4711",
		`{"level":"INFO","msg":"stopping"}`:                                           "",
		`{"msg":"request","address":"127.0.0.1:1"}`:                                   "",
		`panic: listening`: "",
		``:                 "",
	} {
		if got := listening(line); got != want {
			t.Errorf("listening(%s) = %q, want %q", line, got, want)
		}
	}
}

func TestStopReportsHowAProcessEnded(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       string // in the error; "" for none
	}{
		{"in order", "trap 'exit 0' TERM; echo up >&2; while :; do sleep 0.05; done", ""},
		{"with a status", "trap 'echo oops >&2; exit 3' TERM; echo up >&2; while :; do sleep 0.05; done", "oops"},
		{"with a data race", "trap 'exit 0' TERM; echo 'WARNING: DATA RACE' >&2; echo up >&2; while :; do sleep 0.05; done", "DATA RACE"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := script(t, tt.text)
			for !strings.Contains(p.log.tail(), "up") {
				time.Sleep(time.Millisecond)
			}
			err := p.stop()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("stop: %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestStartReportsWhatAProcessSaid(t *testing.T) {
	t.Parallel()
	_, err := ExecService("/nonexistent/ledger")(t.Context(), StartOptions{Mode: "pessimistic"})
	if err == nil {
		t.Error("a binary that is not there was started")
	}
	_, err = ExecService("/bin/false")(t.Context(), StartOptions{Mode: "pessimistic"})
	if err == nil || !strings.Contains(err.Error(), "it ended") {
		t.Errorf("start of /bin/false: %v, want that it ended", err)
	}
	_, err = ExecService("/bin/false")(t.Context(), StartOptions{Mode: "hopeful"})
	if err == nil || !strings.Contains(err.Error(), "unknown mode") {
		t.Errorf("start in an unknown mode: %v", err)
	}
}

func TestServiceEnv(t *testing.T) {
	got := serviceEnv([]string{"PATH=/bin", "LEDGER_MODE=none", "LEDGER_DATABASE_URL=postgres://other"}, "postgres://mine")
	if want := []string{"PATH=/bin", "LEDGER_DATABASE_URL=postgres://mine", "GORACE=atexit_sleep_ms=20"}; !slices.Equal(got, want) {
		t.Errorf("environment = %v, want %v", got, want)
	}
}

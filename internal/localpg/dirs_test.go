package localpg

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Not parallel: it changes TMPDIR.
func TestTheSocketFailsOverToAUsablePath(t *testing.T) {
	bin := binaries{dir: requirePostgres(t)}
	a := mustAccount(t, Options{Ephemeral: true})
	for _, tt := range []struct{ name, base, want string }{
		{"short", "t", ""},
		{"too long", strings.Repeat("long-", 20), "/tmp"},
		{"with a comma", "a,b", "/tmp"},
		{"missing", "", "/tmp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := filepath.Join(tempDir(t), tt.base)
			if tt.base == "" {
				base = "/nonexistent"
			} else {
				mkdir(t, base)
			}
			want := tt.want
			if want == "" {
				want = base
			}
			t.Setenv("TMPDIR", base)
			dir, err := newSocketDir(testContext(t), a, bin)
			if err != nil || filepath.Dir(dir) != want {
				t.Fatalf("newSocketDir = %q, %v; want one in %q", dir, err, want)
			}
			wantMode(t, dir, 0o700)
			if n := len(filepath.Join(dir, socketFileName)); n > maxSocketPath {
				t.Errorf("the socket's path has %d bytes, want at most %d", n, maxSocketPath)
			}
			if err := removeSocketDir(dir); err != nil {
				t.Error(err)
			}
			wantMissing(t, dir)
		})
	}
}

// Not parallel: it changes TMPDIR.
func TestAServerInAnOddPath(t *testing.T) {
	base := filepath.Join(tempDir(t), `it's "a"  b+c`)
	mkdir(t, base)
	t.Setenv("TMPDIR", base)
	s := start(t, Options{DataDir: filepath.Join(base, "data, 'more'")})
	if got := filepath.Dir(s.socketDir); got != base {
		t.Errorf("socket's directory is in %q, want %q", got, base)
	}
	writeNote(t, s.DSN(), "reachable")
	if out, err := exec.Command("sh", "-c", s.PsqlCommand()+` -XAtc 'SELECT text FROM notes'`).Output(); err != nil || string(out) != "reachable\n" {
		t.Errorf("%s: %q, %v", s.PsqlCommand(), out, err)
	}
}

// Not parallel: it changes TMPDIR.
func TestATemporaryDirectoryThatTheServersUserCannotEnter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as somebody else")
	}
	closed := filepath.Join(tempDir(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", closed)
	s := start(t, Options{Ephemeral: true})
	for _, path := range []string{s.dir, s.socketDir} {
		if got := filepath.Dir(path); got != "/tmp" {
			t.Errorf("%s is in %q, want /tmp", path, got)
		}
	}
	entries, err := os.ReadDir(closed)
	if err != nil || len(entries) != 0 {
		t.Errorf("%s holds %v, %v; want nothing left", closed, entries, err)
	}

	_, err = Start(testContext(t), Options{DataDir: filepath.Join(closed, "data"), NoDownload: true})
	wantInError(t, err, "user postgres cannot enter", "--data-dir")
}

// Not parallel: it changes the environment.
func TestDefaultDirs(t *testing.T) {
	t.Setenv("HOME", "/home/someone")
	for _, tt := range []struct {
		env, value string
		get        func() (string, error)
		root, want string
	}{
		{"XDG_DATA_HOME", "", DefaultDataDir, "/var/lib/ledger", "/home/someone/.local/share/ledger"},
		{"XDG_DATA_HOME", "/data", DefaultDataDir, "/var/lib/ledger", "/data/ledger"},
		{"XDG_DATA_HOME", "relative", DefaultDataDir, "/var/lib/ledger", "/home/someone/.local/share/ledger"},
		{"XDG_CACHE_HOME", "", DefaultCacheDir, "/var/cache/ledger", "/home/someone/.cache/ledger"},
		{"XDG_CACHE_HOME", "/cache", DefaultCacheDir, "/var/cache/ledger", "/cache/ledger"},
	} {
		t.Setenv(tt.env, tt.value)
		want := tt.want
		if os.Geteuid() == 0 {
			want = tt.root
		}
		if got, err := tt.get(); err != nil || got != want {
			t.Errorf("with %s=%q: %q, %v; want %q", tt.env, tt.value, got, err, want)
		}
	}
	t.Setenv("HOME", "")
	t.Setenv("XDG_DATA_HOME", "")
	if _, err := DefaultDataDir(); os.Geteuid() != 0 {
		wantInError(t, err, "--data-dir", "XDG_DATA_HOME")
	}
}

func TestTheLogIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(tempDir(t), serverLogName)
	l, err := openServerLog(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.limit = 1000
	line := bytes.Repeat([]byte("x"), 99)
	for range 100 {
		if n, err := l.Write(append(line, '\n')); n != 100 || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, path + ".1"} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Size(); got == 0 || got > 1100 {
			t.Errorf("%s has %d bytes, want some and at most the limit and one line", p, got)
		}
	}
	// A full disk, a removed directory: the server must not notice.
	if n, err := l.Write(line); n != 99 || err != nil {
		t.Errorf("Write to a closed log = %d, %v; want that it is taken", n, err)
	}
	if got := len(l.tail()); got != tailSize {
		t.Errorf("tail has %d bytes, want %d", got, tailSize)
	}
}

package localpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStartMakesAPrivateDurableServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "not", "yet", "there")
	s := start(t, Options{DataDir: dir, Settings: map[string]string{"Max_Connections": "23"}})

	got := map[string]string{}
	want := map[string]string{
		"fsync":                   "on",
		"synchronous_commit":      "on",
		"full_page_writes":        "on",
		"listen_addresses":        "",
		"server_encoding":         "UTF8",
		"lc_collate":              "C",
		"data_checksums":          "on",
		"logging_collector":       "off",
		"max_connections":         "23",
		"unix_socket_directories": `"` + s.socketDir + `"`,
	}
	for name := range want {
		got[name] = ask(t, s.DSN(), "SELECT coalesce(current_setting('"+name+"', true), 'C')")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if got, want := ask(t, s.DSN(), "SELECT current_user || ' ' || current_database() || ' ' || rolsuper FROM pg_roles WHERE rolname = current_user"), "ledger ledger true"; got != want {
		t.Errorf("role, database, superuser = %q, want %q", got, want)
	}
	if got := ask(t, s.DSN(), "SHOW server_version"); !strings.HasPrefix(got, s.Version()) {
		t.Errorf("Version = %q, the server says %q", s.Version(), got)
	}
	if got, want := ask(t, s.DSN(), "SELECT string_agg(concat_ws(' ', type, database, user_name, address, auth_method), ';') FROM pg_hba_file_rules"), "local {all} {all} trust"; got != want {
		t.Errorf("pg_hba.conf = %q, want %q", got, want)
	}
	wantMode(t, s.pgdata(), 0o700)
	wantMode(t, s.socketDir, 0o700)
	wantMode(t, filepath.Join(dir, serverLogName), 0o600)
	for _, path := range []string{s.pgdata(), s.socketDir} {
		wantUID := uint32(os.Geteuid())
		if s.account != nil {
			wantUID = s.account.uid
		}
		if got, ok := ownerOf(path); !ok || got != wantUID || got == 0 {
			t.Errorf("owner of %s = %d, %t; want %d, which is not root", path, got, ok, wantUID)
		}
	}
}

func TestStartListensOnNoPort(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Ephemeral: true})
	// The port only names the socket; a server of somebody else may be on it.
	conn, err := net.Dial("tcp", "127.0.0.1:5432")
	if err != nil {
		return
	}
	_ = conn.Close()
	if got := ask(t, s.DSN(), "SHOW listen_addresses"); got != "" {
		t.Errorf("listen_addresses = %q, want none", got)
	}
}

func TestPsqlCommandWorksAsPasted(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Ephemeral: true})
	command := s.PsqlCommand() + ` -XAtc 'SELECT current_database()'`
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	if err != nil && (strings.Contains(string(out), "not found")) {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: no psql: %s", out)
	}
	if got := strings.TrimSpace(string(out)); err != nil || got != "ledger" {
		t.Errorf("%s: got %q, %v; want ledger", command, got, err)
	}
}

func TestShellQuoteAndDSNSurviveOddPaths(t *testing.T) {
	t.Parallel()
	odd := "it's $HOME `x` +"
	out, err := exec.Command("sh", "-c", "printf %s "+shellQuote(odd)).Output()
	if err != nil || string(out) != odd {
		t.Errorf("shell sees %q, %v; want %q", out, err, odd)
	}
	if got, want := dsn("/tmp/a b+c", "ledger"), "postgres://ledger@/ledger?host=%2Ftmp%2Fa%20b%2Bc&port=5432"; got != want {
		t.Errorf("dsn = %q, want %q", got, want)
	}
}

func TestDataSurvivesStop(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	first := start(t, Options{DataDir: dir})
	writeNote(t, first.DSN(), "kept")
	stop(t, first)
	second := start(t, Options{DataDir: dir})
	wantNote(t, second.DSN(), "kept")
	if first.DSN() == second.DSN() {
		t.Errorf("both servers had the socket %q, want a fresh one", first.DSN())
	}
}

func TestEphemeralDataIsRemoved(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Ephemeral: true, Settings: map[string]string{"fsync": "off"}})
	if got := ask(t, s.DSN(), "SHOW fsync"); got != "off" {
		t.Errorf("fsync = %q, want the setting that was given", got)
	}
	stop(t, s)
	wantMissing(t, s.dir)
}

func TestStopIsIdempotent(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Ephemeral: true})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { stop(t, s) })
	}
	wg.Wait()
	<-s.Exited()
}

func TestStopIsImmediateWhenTimeIsUp(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	requirePostgres(t)
	s, err := Start(testContext(t), Options{DataDir: dir, NoDownload: true})
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	writeNote(t, s.DSN(), "committed")
	// A stopped process hears nothing but SIGKILL until it is continued: a fast
	// shutdown cannot end it.
	conn := connect(t, s.DSN())
	backend := int(conn.PgConn().PID())
	if err := syscall.Kill(backend, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Stop = %v, want that the context's end forced it", err)
	}
	<-s.Exited()
	wantMissing(t, s.socketDir)
	again := start(t, Options{DataDir: dir})
	wantNote(t, again.DSN(), "committed")
}

func TestExitedTellsOfACrash(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Ephemeral: true})
	select {
	case <-s.Exited():
		t.Fatal("Exited is closed while the server runs")
	default:
	}
	if err := syscall.Kill(s.postmaster.pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Exited()
	stop(t, s)
	wantMissing(t, s.dir)
}

func TestServersStartTogether(t *testing.T) {
	t.Parallel()
	for range 4 {
		t.Run("server", func(t *testing.T) {
			t.Parallel()
			s := start(t, Options{Ephemeral: true})
			writeNote(t, s.DSN(), "mine")
			wantNote(t, s.DSN(), "mine")
		})
	}
}

func TestServerHasItsOwnProcessGroup(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Ephemeral: true})
	got, err := syscall.Getpgid(s.postmaster.pid())
	if err != nil {
		t.Fatal(err)
	}
	if got == syscall.Getpgrp() {
		t.Errorf("the server is in our process group %d, where Ctrl-C would reach it", got)
	}
}

func TestStartSaysWhyPostgresEnded(t *testing.T) {
	t.Parallel()
	requirePostgres(t)
	dir := tempDir(t)
	_, err := Start(testContext(t), Options{DataDir: dir, NoDownload: true, Settings: map[string]string{"shared_buffers": "a lot"}})
	wantInError(t, err, "postgres ended before it was ready", `invalid value for parameter "shared_buffers"`)
	start(t, Options{DataDir: dir}) // and nothing of it is in the way
}

func TestStartIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	requirePostgres(t)
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	_, err := Start(ctx, Options{DataDir: tempDir(t), NoDownload: true})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want %v", err, context.Canceled)
	}
}

func TestAStartThatIsGivenUpLeavesNoProcess(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	bin := forwarding(t, filepath.Join(dir, "bin"), requirePostgres(t))
	script, err := os.ReadFile(filepath.Join(bin, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	// It starts, and never answers.
	silent := strings.Replace(string(script), "exec", "[ \"$1\" = -D ] && echo pid=$$ && exec sleep 600\nexec", 1)
	write(t, filepath.Join(bin, "postgres"), silent, 0o755)

	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	data := filepath.Join(dir, "data")
	pid := make(chan int, 1)
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			var n int
			text, _ := os.ReadFile(filepath.Join(data, serverLogName))
			if _, err := fmt.Sscanf(string(text), "pid=%d\n", &n); err == nil {
				pid <- n
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	_, err = Start(ctx, Options{DataDir: data, BinDir: bin})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error = %v, want %v", err, context.Canceled)
	}
	if err := syscall.Kill(<-pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("its process: %v, want that it is gone", err)
	}
	start(t, Options{DataDir: data}) // nor does it hold the lock
}

func TestAServerThatHearsNothingIsKilled(t *testing.T) {
	t.Parallel()
	deaf := (*account)(nil).command(testContext(t), "/", "/bin/sh", "-c", "trap '' INT QUIT; echo deaf; while :; do sleep 1; done")
	heard := make(chan struct{})
	var once sync.Once
	deaf.Stdout = writerFunc(func([]byte) { once.Do(func() { close(heard) }) })
	p, err := startPostmaster(deaf, false)
	if err != nil {
		t.Fatal(err)
	}
	<-heard
	p.grace = time.Millisecond
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := p.stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("stop = %v, want that the context's end forced it", err)
	}
	if err := syscall.Kill(p.pid(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("its process: %v, want that it is gone", err)
	}
}

func TestOptionsThatContradictAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"two directories", Options{Ephemeral: true, DataDir: "/x"}, "leave DataDir empty"},
		{"TCP", Options{Ephemeral: true, Settings: map[string]string{"listen_addresses": "*"}}, "listen_addresses"},
		{"its case", Options{Ephemeral: true, Settings: map[string]string{"HBA_File": "x"}}, "hba_file"},
		{"not durable", Options{DataDir: "/x", Settings: map[string]string{"fsync": "off"}}, "fsync"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Start(testContext(t), tt.o)
			wantInError(t, err, tt.want)
		})
	}
}

func TestAnotherMajorVersionIsRefused(t *testing.T) {
	t.Parallel()
	requirePostgres(t)
	dir := tempDir(t)
	write(t, filepath.Join(dir, pgdataName, "PG_VERSION"), "13\n", 0o600)
	_, err := Start(testContext(t), Options{DataDir: dir, NoDownload: true, BinDir: fakeBinaries(t, filepath.Join(dir, "bin"), "17.5")})
	if !errors.Is(err, ErrVersion) {
		t.Errorf("error = %v, want ErrVersion", err)
	}
	wantInError(t, err, "PostgreSQL 13", "17.5", "--postgres-bin", "pg_upgrade")
}

func TestAForeignPgdataIsLeftAlone(t *testing.T) {
	t.Parallel()
	requirePostgres(t)
	dir := tempDir(t)
	precious := filepath.Join(dir, pgdataName, "precious")
	write(t, precious, "x", 0o600)
	_, err := Start(testContext(t), Options{DataDir: dir, NoDownload: true})
	wantInError(t, err, "no PG_VERSION")
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("what was in the directory: %v", err)
	}
}

package localpg

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// repository is a Maven-style repository with one jar in it.
type repository struct {
	url  string
	jars atomic.Int32 // how often it was fetched
	mu   sync.Mutex
	jar  []byte
}

func newRepository(t *testing.T, jar []byte) *repository {
	t.Helper()
	r := &repository{jar: jar}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasPrefix(req.URL.Path, "/maven/io/zonky/test/postgres/embedded-postgres-binaries-") || path.Ext(req.URL.Path) != ".jar" {
			http.NotFound(w, req)
			return
		}
		r.jars.Add(1)
		r.mu.Lock()
		defer r.mu.Unlock()
		_, _ = w.Write(r.jar)
	}))
	t.Cleanup(server.Close)
	r.url = server.URL + "/maven"
	return r
}

func (r *repository) serve(jar []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jar = jar
}

// withoutLocal hides this machine's PostgreSQL from the search.
func withoutLocal(t *testing.T, r *repository) Options {
	t.Helper()
	t.Setenv("PATH", "")
	t.Setenv("TMPDIR", tempDir(t)) // the library leaves an empty file there
	return Options{Ephemeral: true, CacheDir: filepath.Join(tempDir(t), "cache"), DownloadURL: r.url + "/", installed: nowhere}
}

// realJar holds programs that run the real ones of this machine.
func realJar(t *testing.T) []byte {
	t.Helper()
	bin := forwarding(t, filepath.Join(tempDir(t), "bin"), requirePostgres(t))
	files := map[string]string{}
	for _, p := range programs {
		text, err := os.ReadFile(filepath.Join(bin, p))
		if err != nil {
			t.Fatal(err)
		}
		files["bin/"+p] = string(text)
	}
	return jar(t, files)
}

// Not parallel: it changes the environment, as do those below.
func TestDownloadedBinariesRunAServer(t *testing.T) {
	r := newRepository(t, realJar(t))
	o := withoutLocal(t, r)
	s := start(t, o)
	writeNote(t, s.DSN(), "downloaded")
	wantNote(t, s.DSN(), "downloaded")
	if want := filepath.Join(cachePath(o), "bin"); s.bin.dir != want {
		t.Errorf("binaries in %q, want %q", s.bin.dir, want)
	}
	wantCache(t, o, filepath.Base(cachePath(o)), lockName)

	o.NoDownload = true
	again, err := Start(testContext(t), o)
	if err != nil {
		t.Fatalf("Start from the cache: %v", err)
	}
	stop(t, again)
	if got := r.jars.Load(); got != 1 {
		t.Errorf("jars fetched = %d, want 1 and then the cache", got)
	}
}

func TestConcurrentDownloadsFetchOnce(t *testing.T) {
	r := newRepository(t, realJar(t))
	o := withoutLocal(t, r)
	// Killed runs left these: half a download, and half a tree.
	write(t, filepath.Join(o.CacheDir, downloadPrefix+"1", "archive"), "half", 0o600)
	write(t, filepath.Join(cachePath(o), "bin", "initdb"), "half", 0o755)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			b, err := findOrDownload(testContext(t), o.mustComplete(t), mustAccount(t, o))
			if err != nil || b.dir != filepath.Join(cachePath(o), "bin") {
				t.Errorf("findOrDownload = %q, %v", b.dir, err)
			}
		})
	}
	wg.Wait()
	if got := r.jars.Load(); got != 1 {
		t.Errorf("jars fetched = %d, want 1", got)
	}
	wantCache(t, o, filepath.Base(cachePath(o)), lockName)
}

func TestABadDownloadDoesNotPoisonTheCache(t *testing.T) {
	good := realJar(t)
	txz := txzOf(t, map[string]string{"bin/initdb": "x", "bin/postgres": "x", "bin/pg_ctl": "x", "share/x": strings.Repeat("x", 1<<17)})
	for _, tt := range []struct {
		name string
		jar  []byte
	}{
		{"not a jar", []byte("<html>sign in to the hotel's network</html>")},
		{"empty", nil},
		{"truncated jar", good[:len(good)/2]},
		{"jar without an archive", zipOf(t, "readme.txt", []byte("x"))},
		{"garbage in the jar", zipOf(t, "postgres.txz", []byte("garbage"))},
		// Its programs come out whole, and what they need does not.
		{"truncated archive in the jar", zipOf(t, "postgres.txz", txz[:len(txz)-1<<16])},
		{"a program is missing", jar(t, map[string]string{"bin/initdb": "#!/bin/sh\n"})},
		{"programs do not run", jar(t, map[string]string{"bin/initdb": "\x00", "bin/postgres": "\x00", "bin/pg_ctl": "\x00"})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRepository(t, tt.jar)
			o := withoutLocal(t, r)
			_, err := Start(testContext(t), o)
			if !errors.Is(err, ErrNoBinaries) {
				t.Errorf("error = %v, want ErrNoBinaries", err)
			}
			wantInError(t, err, "download: ", "apt-get install postgresql")
			wantCache(t, o, lockName)

			r.serve(good)
			if _, err := findOrDownload(testContext(t), o.mustComplete(t), mustAccount(t, o)); err != nil {
				t.Errorf("after a good download: %v", err)
			}
		})
	}
}

func TestAnUnreachableRepositoryIsNamed(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	o := withoutLocal(t, &repository{url: server.URL})
	_, err := Start(testContext(t), o)
	wantInError(t, err, "download: ", server.URL)
}

func TestTheDataDirectoryDecidesTheVersion(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	if got := wantedVersion(Options{DataDir: dir}); got != downloadVersions[0] {
		t.Errorf("for a new directory: %s, want %s", got, downloadVersions[0])
	}
	write(t, filepath.Join(dir, pgdataName, "PG_VERSION"), "16\n", 0o600)
	if got := wantedVersion(Options{DataDir: dir}); majorOf(string(got)) != "16" {
		t.Errorf("for a directory of version 16: %s", got)
	}
}

func (o Options) mustComplete(t *testing.T) Options {
	t.Helper()
	o, err := o.complete()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func mustAccount(t *testing.T, o Options) *account {
	t.Helper()
	a, err := chooseAccount(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func wantCache(t *testing.T, o Options, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(o.CacheDir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	// ReadDir sorts.
	if strings.Join(got, " ") != strings.Join(slices.Sorted(slices.Values(want)), " ") {
		t.Errorf("cache holds %q, want %q", got, want)
	}
}

// jar packs files as the repository has them: a tar in an xz in a zip.
func jar(t *testing.T, files map[string]string) []byte {
	t.Helper()
	return zipOf(t, "postgres-linux-x86_64.txz", txzOf(t, files))
}

func zipOf(t *testing.T, name string, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	f, err := z.Create(name)
	if err == nil {
		_, err = f.Write(content)
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func txzOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(files[name]))})
		if err == nil {
			_, err = w.Write([]byte(files[name]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return xz(out.Bytes())
}

// xz is an .xz file whose chunks are stored uncompressed, which the format
// allows. The standard library does not write it, and a test should not need the
// program.
func xz(data []byte) []byte {
	le := binary.LittleEndian
	sum := func(b []byte) []byte { return le.AppendUint32(nil, crc32.ChecksumIEEE(b)) }
	pad := func(b []byte) []byte { return append(b, make([]byte, -len(b)&3)...) }
	flags := []byte{0, 1} // integrity check: CRC32

	header := []byte{2, 0, 0x21, 1, 22, 0, 0, 0} // 12 bytes; one filter: LZMA2, 8 MiB dictionary
	header = append(header, sum(header)...)
	var chunks []byte
	for rest, control := data, byte(1); len(rest) > 0; control = 2 { // the first resets the dictionary
		n := min(len(rest), 1<<16)
		chunks = append(chunks, control, byte((n-1)>>8), byte(n-1))
		chunks = append(chunks, rest[:n]...)
		rest = rest[n:]
	}
	chunks = append(chunks, 0)
	index := []byte{0, 1}
	index = binary.AppendUvarint(index, uint64(len(header)+len(chunks)+4))
	index = pad(binary.AppendUvarint(index, uint64(len(data))))
	index = append(index, sum(index)...)
	footer := append(le.AppendUint32(nil, uint32(len(index)/4-1)), flags...)

	out := append([]byte("\xfd7zXZ\x00"), flags...)
	out = append(out, sum(flags)...)
	out = append(out, header...)
	out = append(out, pad(chunks)...)
	out = append(out, sum(data)...)
	out = append(out, index...)
	out = append(out, sum(footer)...)
	out = append(out, footer...)
	return append(out, "YZ"...)
}

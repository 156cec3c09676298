package localpg

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// nowhere is a pattern without a match.
const nowhere = "/nonexistent/*/bin"

func TestInstalledDirsAreNewestFirst(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	for _, v := range []string{"9.6", "14", "18", "9.10", "current", "15"} {
		mkdir(t, filepath.Join(root, v, "bin"))
	}
	var got []string
	for _, dir := range installedDirs(filepath.Join(root, "*", "bin")) {
		got = append(got, filepath.Base(filepath.Dir(dir)))
	}
	if diff := cmp.Diff([]string{"18", "15", "14", "9.10", "9.6", "current"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ out, version, major string }{
		{"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", "15.18", "15"},
		{"postgres (PostgreSQL) 18.3\n", "18.3", "18"},
		{"postgres (PostgreSQL) 9.6.24\n", "9.6.24", "9"},
		{"postgres (PostgreSQL) 19beta1\n", "19", "19"},
		{"hello\n", "", ""},
	} {
		version := parseVersion(tt.out)
		if version != tt.version || majorOf(version) != tt.major {
			t.Errorf("parseVersion(%q) = %q, major %q; want %q, %q", tt.out, version, majorOf(version), tt.version, tt.major)
		}
	}
}

// Not parallel: these change PATH.
func TestFindBinariesSearchesInOrder(t *testing.T) {
	root := tempDir(t)
	inPath := fakeBinaries(t, filepath.Join(root, "path"), "16.1")
	installed := fakeBinaries(t, filepath.Join(root, "installed", "17", "bin"), "17.1")
	ancient := fakeBinaries(t, filepath.Join(root, "ancient"), "9.6.24")
	partial := filepath.Join(root, "partial")
	write(t, filepath.Join(partial, "initdb"), "", 0o755)
	broken := fakeBinaries(t, filepath.Join(root, "broken"), "16.1")
	write(t, filepath.Join(broken, "postgres"), "#!/bin/sh\necho libpq is missing; exit 127\n", 0o755)
	empty := filepath.Join(root, "empty")
	named := fakeBinaries(t, filepath.Join(root, "named"), "15.1")
	installedPattern := filepath.Join(root, "installed", "*", "bin")

	cache := Options{Ephemeral: true, CacheDir: filepath.Join(root, "cache")}
	cached := fakeBinaries(t, filepath.Join(cachePath(cache), "bin"), "18.1")

	for _, tt := range []struct {
		name, binDir string
		path         []string
		installed    string
		want         string
	}{
		{"the named one", named, []string{inPath}, installedPattern, named},
		{"PATH", "", []string{empty, inPath}, installedPattern, inPath},
		{"PATH without a whole set", "", []string{partial}, installedPattern, installed},
		{"PATH with an old set", "", []string{ancient}, installedPattern, installed},
		{"PATH with a broken set", "", []string{broken, inPath}, installedPattern, inPath},
		{"relative PATH", "", []string{"bin"}, installedPattern, installed},
		{"installed", "", nil, installedPattern, installed},
		{"an earlier download", "", nil, nowhere, cached},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PATH", strings.Join(tt.path, string(filepath.ListSeparator)))
			o := cache
			o.BinDir, o.installed = tt.binDir, tt.installed
			got, err := FindBinaries(o)
			if err != nil || got != tt.want {
				t.Errorf("FindBinaries = %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestNoBinariesIsOneErrorThatSaysAll(t *testing.T) {
	root := tempDir(t)
	old := fakeBinaries(t, filepath.Join(root, "old"), "12.3")
	t.Setenv("PATH", old)
	o := Options{Ephemeral: true, NoDownload: true, CacheDir: filepath.Join(root, "cache"), installed: nowhere}
	_, err := Start(testContext(t), o)
	if !errors.Is(err, ErrNoBinaries) {
		t.Errorf("error = %v, want ErrNoBinaries", err)
	}
	wantInError(t, err, old, "12.3 is older than 14", nowhere, o.CacheDir, "download: not allowed", "apt-get install postgresql", "--postgres-bin")

	if _, err := FindBinaries(o); !errors.Is(err, ErrNoBinaries) {
		t.Errorf("FindBinaries: error = %v, want ErrNoBinaries", err)
	}
}

func TestANamedDirectoryIsTheOnlyOneTried(t *testing.T) {
	t.Parallel()
	empty := tempDir(t)
	_, err := Start(testContext(t), Options{Ephemeral: true, BinDir: empty})
	if !errors.Is(err, ErrNoBinaries) {
		t.Errorf("error = %v, want ErrNoBinaries", err)
	}
	wantInError(t, err, empty+": no executable initdb")
	if strings.Contains(err.Error(), "PATH") {
		t.Errorf("error = %q, want nothing about PATH", err)
	}
}

func TestBinariesThatTheServersUserCannotRun(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as somebody else")
	}
	closed := filepath.Join(tempDir(t), "closed")
	bin := fakeBinaries(t, filepath.Join(closed, "bin"), "17.1")
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := FindBinaries(Options{Ephemeral: true, BinDir: bin})
	wantInError(t, err, "user postgres cannot run", bin, "permission denied")
}

func TestAccountFor(t *testing.T) {
	t.Parallel()
	known := func(names ...string) func(string) (*user.User, error) {
		return func(name string) (*user.User, error) {
			for i, n := range names {
				if n == name {
					return &user.User{Username: n, Uid: []string{"70", "71"}[i], Gid: "70"}, nil
				}
			}
			return nil, user.UnknownUserError(name)
		}
	}
	for _, tt := range []struct {
		name, fallback string
		lookup         func(string) (*user.User, error)
		want           string
	}{
		{"postgres", "other", known("postgres", "other"), "postgres"},
		{"the fallback", "other", known("other"), "other"},
		{"nobody", "other", known(), ""},
		{"nobody and no fallback", "", known("other"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := accountFor("", tt.fallback, tt.lookup)
			if tt.want == "" {
				if !errors.Is(err, ErrNoAccount) {
					t.Errorf("error = %v, want ErrNoAccount", err)
				}
				wantInError(t, err, "useradd", "--postgres-user")
				return
			}
			if err != nil || got.name != tt.want {
				t.Errorf("accountFor = %v, %v; want %s", got, err, tt.want)
			}
		})
	}
	if _, err := newAccount(&user.User{Username: "toor", Uid: "0", Gid: "0"}); !errors.Is(err, ErrNoAccount) {
		t.Errorf("another name for root: error = %v, want ErrNoAccount", err)
	}
}

func TestTheServerRunsAsTheDirectorysOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as somebody else")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	a, err := newAccount(nobody)
	if err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	if err := a.own(dir); err != nil {
		t.Fatal(err)
	}
	s := start(t, Options{DataDir: dir})
	if s.account.name != "nobody" {
		t.Errorf("the server runs as %s, want nobody", s.account)
	}
	for _, path := range []string{s.pgdata(), filepath.Join(dir, lockName), filepath.Join(dir, serverLogName)} {
		if uid, ok := ownerOf(path); !ok || uid != a.uid {
			t.Errorf("owner of %s = %d, %t; want nobody's %d, who may be the next to start it", path, uid, ok, a.uid)
		}
	}
}

func TestAnOwnerWithoutANameIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := tempDir(t)
	if err := os.Chown(dir, 987654, 987654); err != nil {
		t.Fatal(err)
	}
	_, err := Start(testContext(t), Options{DataDir: dir})
	if !errors.Is(err, ErrNoAccount) {
		t.Errorf("error = %v, want ErrNoAccount", err)
	}
	wantInError(t, err, dir, "987654")
}

package localpg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// binaries is a directory of PostgreSQL programs and the version they report.
type binaries struct {
	dir     string
	version string // as reported: "15.18"
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// programs are what a directory must hold to be taken for a server's.
var programs = []string{"initdb", "postgres", "pg_ctl"}

// oldestMajor is the oldest PostgreSQL that the migrations and CI know.
const oldestMajor = 14

// systemBinDirs is where Debian and Ubuntu install one directory a version,
// outside PATH.
const systemBinDirs = "/usr/lib/postgresql/*/bin"

const installHint = "install PostgreSQL: apt-get install postgresql (Debian, Ubuntu), dnf install postgresql-server (Fedora), " +
	"apk add postgresql (Alpine), brew install postgresql@18 (macOS); or name a directory with --postgres-bin"

// FindBinaries returns the directory whose programs [Start] would use without a
// download: Options.BinDir alone where it is given, else the first directory in
// PATH, the newest /usr/lib/postgresql/*/bin, or what an earlier run downloaded.
// Programs that cannot run here, or are older than PostgreSQL 14, are passed
// over.
//
// The error matches [ErrNoBinaries] or [ErrNoAccount].
func FindBinaries(o Options) (dir string, err error) {
	if o.DataDir == "" && !o.Ephemeral {
		// The directory only decides the user; without a home the rest still does.
		o.DataDir, _ = DefaultDataDir()
	}
	if o.CacheDir == "" {
		o.CacheDir, _ = DefaultCacheDir()
	}
	a, err := chooseAccount(o)
	if err != nil {
		return "", err
	}
	b, tried := search(context.Background(), o, a)
	if b.dir == "" {
		return "", noBinaries(tried)
	}
	return b.dir, nil
}

func findOrDownload(ctx context.Context, o Options, a *account) (binaries, error) {
	b, tried := search(ctx, o, a)
	if b.dir != "" {
		return b, nil
	}
	switch {
	case ctx.Err() != nil:
		return binaries{}, fmt.Errorf("find PostgreSQL binaries: %w", ctx.Err())
	case o.BinDir != "":
		return binaries{}, noBinaries(tried)
	case o.NoDownload:
		return binaries{}, noBinaries(append(tried, errors.New("download: not allowed")))
	}
	b, err := download(ctx, o, a)
	if err != nil {
		return binaries{}, noBinaries(append(tried, fmt.Errorf("download: %w", err)))
	}
	return b, nil
}

// noBinaries is one error for the whole search: a reader who sees only the last
// step would repair the wrong thing.
func noBinaries(tried []error) error {
	return fmt.Errorf("%w; tried:\n\t%w\n%s", ErrNoBinaries, indented{errors.Join(tried...)}, installHint)
}

// indented shows a list of errors one a line below its headline.
type indented struct{ error }

func (e indented) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "\n\t") }
func (e indented) Unwrap() error { return e.error }

// search returns the first usable directory, and why the others were not.
func search(ctx context.Context, o Options, a *account) (binaries, []error) {
	if o.BinDir != "" {
		dir, err := filepath.Abs(o.BinDir)
		if err != nil {
			return binaries{}, []error{fmt.Errorf("%s: %w", o.BinDir, err)}
		}
		b, err := inspect(ctx, dir, a)
		if err != nil {
			return binaries{}, []error{err}
		}
		return b, nil
	}
	var tried []error
	for _, place := range []struct {
		name string
		dirs []string
	}{
		{"PATH", pathDirs()},
		{cmp.Or(o.installed, systemBinDirs), installedDirs(cmp.Or(o.installed, systemBinDirs))},
		{"cache " + o.CacheDir, cachedDirs(o)},
	} {
		found := false
		for _, dir := range place.dirs {
			if !hasPrograms(dir) {
				continue
			}
			found = true
			b, err := inspect(ctx, dir, a)
			if err == nil {
				return b, nil
			}
			tried = append(tried, err)
		}
		if !found {
			tried = append(tried, fmt.Errorf("%s: no directory with %s", place.name, strings.Join(programs, ", ")))
		}
	}
	return binaries{}, tried
}

func pathDirs() []string {
	var dirs []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		// A relative entry would mean another directory to a server that runs
		// elsewhere.
		if filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// installedDirs lists pattern's matches, the newest version first.
func installedDirs(pattern string) []string {
	dirs, err := filepath.Glob(pattern)
	if err != nil {
		return nil
	}
	// As numbers: 18 is newer than 9.6, and "9.6" sorts after "18" as text.
	version := func(dir string) []int {
		var parts []int
		for p := range strings.SplitSeq(filepath.Base(filepath.Dir(dir)), ".") {
			n, err := strconv.Atoi(p)
			if err != nil {
				return nil
			}
			parts = append(parts, n)
		}
		return parts
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return slices.Compare(version(b), version(a)) })
	return dirs
}

func hasPrograms(dir string) bool {
	return !slices.ContainsFunc(programs, func(p string) bool { return !isExecutable(filepath.Join(dir, p)) })
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// inspect runs the programs as the user who will run the server, which shows at
// once that this user may execute them and that their libraries are there.
func inspect(ctx context.Context, dir string, a *account) (binaries, error) {
	b := binaries{dir: dir}
	for _, p := range programs {
		if !isExecutable(b.path(p)) {
			return b, fmt.Errorf("%s: no executable %s", dir, p)
		}
	}
	for _, p := range []string{"initdb", "postgres"} {
		out, err := a.command(ctx, "/", b.path(p), "--version").CombinedOutput()
		if err != nil {
			return b, fmt.Errorf("%s: %s cannot run %s: %w%s", dir, a, p, err, indentOutput(out))
		}
		b.version = parseVersion(string(out))
	}
	major, err := strconv.Atoi(majorOf(b.version))
	if err != nil || major < oldestMajor {
		return b, fmt.Errorf("%s: PostgreSQL %s is older than %d", dir, cmp.Or(b.version, "of unknown version"), oldestMajor)
	}
	return b, nil
}

// versionText finds "15.18" in "postgres (PostgreSQL) 15.18 (Debian …)", and
// "19" in a "19beta1".
var versionText = regexp.MustCompile(`\) (\d+(?:\.\d+)*)`)

func parseVersion(out string) string {
	if m := versionText.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}

// majorOf cuts "15.18" to "15", which is what a data directory's PG_VERSION says
// since PostgreSQL 10.
func majorOf(version string) string {
	major, _, _ := strings.Cut(version, ".")
	return major
}

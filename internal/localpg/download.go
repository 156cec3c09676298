package localpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
	"github.com/gofrs/flock"
)

// downloadVersions are the releases that embedded-postgres knows, newest first.
// A data directory that exists decides the major version, a new one takes the
// first.
var downloadVersions = []embeddedpostgres.PostgresVersion{
	embeddedpostgres.V18, embeddedpostgres.V17, embeddedpostgres.V16, embeddedpostgres.V15, embeddedpostgres.V14,
}

func wantedVersion(o Options) embeddedpostgres.PostgresVersion {
	if o.DataDir != "" {
		if major, err := clusterMajor(filepath.Join(o.DataDir, pgdataName)); err == nil {
			for _, v := range downloadVersions {
				if majorOf(string(v)) == major {
					return v
				}
			}
		}
	}
	return downloadVersions[0]
}

// cachePath is where a complete download of the wanted version is, or will be.
// One home may be mounted on several kinds of machine, so the kind is in it.
func cachePath(o Options) string {
	return filepath.Join(o.CacheDir, fmt.Sprintf("postgresql-%s-%s-%s", wantedVersion(o), runtime.GOOS, runtime.GOARCH))
}

func cachedDirs(o Options) []string {
	if o.CacheDir == "" {
		return nil
	}
	return []string{filepath.Join(cachePath(o), "bin")}
}

const downloadPrefix = "download-"

// download fetches the binaries into the cache. The library that fetches takes
// no context: where ctx ends first, the fetch goes on in the background under
// the cache's lock and its result serves the next start.
func download(ctx context.Context, o Options, a *account) (binaries, error) {
	if o.CacheDir == "" {
		_, err := DefaultCacheDir()
		return binaries{}, fmt.Errorf("nowhere to keep it: %w", err)
	}
	if err := ensureDir(o.CacheDir, a); err != nil {
		return binaries{}, err
	}
	lock := flock.New(filepath.Join(o.CacheDir, lockName), lockFlags)
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return binaries{}, fmt.Errorf("lock the cache %s: %w", o.CacheDir, err)
	}
	type result struct {
		binaries
		err error
	}
	done := make(chan result, 1)
	go func() {
		b, err := downloadLocked(context.WithoutCancel(ctx), o, a)
		done <- result{b, errors.Join(err, lock.Unlock())}
	}()
	select {
	case r := <-done:
		return r.binaries, r.err
	case <-ctx.Done():
		return binaries{}, ctx.Err()
	}
}

func downloadLocked(ctx context.Context, o Options, a *account) (binaries, error) {
	final := cachePath(o)
	if b, err := inspect(ctx, filepath.Join(final, "bin"), a); err == nil {
		return b, nil // another process was faster
	}
	// We hold the lock, so these belong to runs that were killed.
	removeWithPrefix(o.CacheDir, downloadPrefix, o.Logger)

	work, err := os.MkdirTemp(o.CacheDir, downloadPrefix)
	if err != nil {
		return binaries{}, fmt.Errorf("make a directory for it: %w", err)
	}
	defer os.RemoveAll(work)

	o.Logger.InfoContext(ctx, "downloading PostgreSQL", "version", wantedVersion(o), "cache", o.CacheDir)
	tree := filepath.Join(work, "postgresql")
	if err := fetch(o, work, tree); err != nil {
		return binaries{}, err
	}
	if err := makeReadable(tree); err != nil {
		return binaries{}, err
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return binaries{}, err
	}
	// Nothing enters the cache that has not run once.
	if _, err := inspect(ctx, filepath.Join(tree, "bin"), a); err != nil {
		return binaries{}, err
	}
	if err := os.RemoveAll(final); err != nil {
		return binaries{}, fmt.Errorf("replace unusable binaries: %w", err)
	}
	if err := os.Rename(tree, final); err != nil {
		return binaries{}, fmt.Errorf("keep the download: %w", err)
	}
	return inspect(ctx, filepath.Join(final, "bin"), a)
}

// fetch downloads and extracts into tree. The library offers that only as the
// first steps of starting its own server; the step after them clears the data
// directory, so a data directory below a regular file, which cannot be cleared,
// makes it stop there. An error that names that path is therefore the sign that
// all before it went well, and any other is a real one.
func fetch(o Options, work, tree string) error {
	file := filepath.Join(work, "not-a-directory")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	stopHere := filepath.Join(file, "data")
	config := embeddedpostgres.DefaultConfig().
		Version(wantedVersion(o)).
		Port(0). // it probes its port even though it never gets to use it
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "runtime")).
		BinariesPath(tree).
		DataPath(stopHere).
		Logger(io.Discard)
	if o.DownloadURL != "" {
		config = config.BinaryRepositoryURL(strings.TrimSuffix(o.DownloadURL, "/"))
	}
	server := embeddedpostgres.NewDatabase(config)
	err := server.Start()
	if err == nil {
		return errors.Join(errors.New("embedded-postgres started a server of its own instead of stopping after the download"), server.Stop())
	}
	if !strings.Contains(err.Error(), stopHere) {
		return err
	}
	return nil
}

// makeReadable undoes a tight umask: the server's user is often not the one who
// downloads.
func makeReadable(tree string) error {
	return filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch mode := info.Mode(); {
		case mode.IsDir():
			return os.Chmod(path, 0o755)
		case mode.IsRegular() && mode.Perm()&0o100 != 0:
			return os.Chmod(path, 0o755)
		case mode.IsRegular():
			return os.Chmod(path, 0o644)
		}
		return nil
	})
}

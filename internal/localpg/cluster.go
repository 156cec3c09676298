package localpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	roleName     = "ledger"
	databaseName = "ledger"
)

// hba admits whoever reached the socket, and its directory admits only the
// server's user. There is no other line, so there is no other way in.
const hba = "local all all trust\n"

func (s *Server) pgdata() string { return filepath.Join(s.dir, pgdataName) }

// prepareCluster makes the data directory where there is none, or checks that
// the binaries can read the one there is.
func (s *Server) prepareCluster(ctx context.Context) error {
	switch major, err := clusterMajor(s.pgdata()); {
	case errors.Is(err, os.ErrNotExist):
		if err := s.initCluster(ctx); err != nil {
			return err
		}
	case err != nil:
		return err
	case major != majorOf(s.bin.version):
		return s.versionError(major)
	}
	return s.writeHBA()
}

// clusterMajor is the major version that made a data directory; the error matches
// os.ErrNotExist where the directory is missing or empty.
func clusterMajor(pgdata string) (string, error) {
	text, err := os.ReadFile(filepath.Join(pgdata, "PG_VERSION"))
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read the data directory's version: %w", err)
	}
	if entries, dirErr := os.ReadDir(pgdata); dirErr == nil && len(entries) == 0 {
		return "", err
	}
	if _, statErr := os.Lstat(pgdata); statErr == nil {
		return "", fmt.Errorf("%s is not a PostgreSQL data directory: it has no PG_VERSION; move it away or choose another --data-dir", pgdata)
	}
	return "", err
}

// versionError says what to do about it, with the directory of the right
// binaries where this machine has them.
func (s *Server) versionError(major string) error {
	right := "the bin directory of PostgreSQL " + major
	for _, dir := range installedDirs(systemBinDirs) {
		if filepath.Base(filepath.Dir(dir)) == major {
			right = dir
		}
	}
	return fmt.Errorf("%w: %s was made by PostgreSQL %s, and the binaries in %s are PostgreSQL %s; "+
		"run with --postgres-bin and %s, or move the data over with pg_upgrade or pg_dump, or choose another --data-dir",
		ErrVersion, s.pgdata(), major, s.bin.dir, s.bin.version, right)
}

// initCluster makes the data directory under another name and renames it when
// it is whole, so that a half-made one is never taken for data.
func (s *Server) initCluster(ctx context.Context) (err error) {
	work, err := os.MkdirTemp(s.dir, newPgdata)
	if err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeTree(work))
		}
	}()
	if err := s.account.own(work); err != nil {
		return fmt.Errorf("give the data directory to %s: %w", s.account, err)
	}
	// The C locale is there on every machine and never changes its sort order,
	// which indexes depend on, with an upgrade of the system.
	args := []string{"-D", work, "-U", roleName, "--encoding=UTF8", "--locale=C", "--auth=trust", "--data-checksums"}
	if s.opts.Ephemeral {
		args = append(args, "--no-sync")
	}
	if out, err := s.account.command(ctx, s.dir, s.bin.path("initdb"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w%s", errors.Join(ctx.Err(), err), indentOutput(out))
	}
	// An empty one was made by hand, to say whose it is.
	if err := os.Remove(s.pgdata()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replace the empty data directory: %w", err)
	}
	if err := os.Rename(work, s.pgdata()); err != nil {
		return fmt.Errorf("keep the new data directory: %w", err)
	}
	return syncDir(s.dir)
}

// syncDir makes a rename in dir survive a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

// writeHBA writes pg_hba.conf anew at each start, over initdb's and over what
// anyone changed. It renames into place and so writes through no link.
func (s *Server) writeHBA() error {
	f, err := os.CreateTemp(s.pgdata(), "pg_hba.conf.")
	if err != nil {
		return fmt.Errorf("write pg_hba.conf: %w", err)
	}
	_, err = f.WriteString(hba)
	if err == nil && s.account != nil {
		err = f.Chown(int(s.account.uid), int(s.account.gid))
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.pgdata(), "pg_hba.conf"))
	}
	if err != nil {
		return fmt.Errorf("write pg_hba.conf: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

var (
	// durable is what makes an acknowledged transfer survive a power failure. These
	// are PostgreSQL's defaults; on the command line nothing overrides them, neither
	// a configuration file nor ALTER SYSTEM.
	durable = map[string]string{
		"fsync":              "on",
		"synchronous_commit": "on",
		"full_page_writes":   "on",
	}
	// private is what the package itself relies on.
	private = []string{
		"data_directory", "hba_file", "listen_addresses", "logging_collector", "log_destination", "port", "unix_socket_directories",
	}
)

func checkSettings(settings map[string]string, ephemeral bool) error {
	for name := range settings {
		name = strings.ToLower(name)
		if slices.Contains(private, name) {
			return fmt.Errorf("setting %s cannot be changed on a private server", name)
		}
		if _, ok := durable[name]; ok && !ephemeral {
			return fmt.Errorf("setting %s cannot be changed on a server that keeps its data", name)
		}
	}
	return nil
}

// serverArgs is the postgres command line.
func (s *Server) serverArgs() []string {
	settings := maps.Clone(durable)
	settings["max_connections"] = "100"
	for name, value := range s.opts.Settings {
		settings[strings.ToLower(name)] = value
	}
	// A list in which a comma separates; quotes make any path one member of it.
	settings["unix_socket_directories"] = `"` + strings.ReplaceAll(s.socketDir, `"`, `""`) + `"`
	settings["hba_file"] = filepath.Join(s.pgdata(), "pg_hba.conf")
	settings["listen_addresses"] = ""
	settings["port"] = "5432" // names the socket
	settings["log_destination"] = "stderr"
	settings["logging_collector"] = "off" // serverLog is the collector
	settings["log_line_prefix"] = "%m [%p] "

	args := []string{"-D", s.pgdata()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

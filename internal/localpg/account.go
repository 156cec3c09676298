package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is the OS user the server runs as. A nil account is ourselves.
type account struct {
	name   string
	uid    uint32
	gid    uint32
	groups []uint32
}

// chooseAccount returns nil unless we are root, as whom PostgreSQL refuses to
// run.
func chooseAccount(o Options) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	return accountFor(o.DataDir, o.User, user.Lookup)
}

// accountFor takes the owner of the data directory, so that a directory once
// made stays with its user; then "postgres", then the fallback.
func accountFor(dataDir, fallback string, lookup func(string) (*user.User, error)) (*account, error) {
	if dataDir != "" {
		for _, dir := range []string{filepath.Join(dataDir, pgdataName), dataDir} {
			uid, ok := ownerOf(dir)
			if !ok || uid == 0 {
				continue
			}
			u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
			if err != nil {
				return nil, fmt.Errorf("%w: %s belongs to user id %d, which has no name here, and PostgreSQL runs only as a named user",
					ErrNoAccount, dir, uid)
			}
			return newAccount(u)
		}
	}
	tried := []string{"postgres"}
	if fallback != "" {
		tried = append(tried, fallback)
	}
	for _, name := range tried {
		u, err := lookup(name)
		if errors.As(err, new(user.UnknownUserError)) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up user %q: %w", name, err)
		}
		return newAccount(u)
	}
	return nil, fmt.Errorf("%w: we are root, as whom it refuses to run, the data directory belongs to no other user, and no user is named %s; "+
		"create one (useradd --system postgres) or name one with --postgres-user", ErrNoAccount, strings.Join(tried, " or "))
}

func newAccount(u *user.User) (*account, error) {
	uid, err := parseID(u.Uid)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	if uid == 0 {
		return nil, fmt.Errorf("%w: %s is root, as whom it refuses to run; name another with --postgres-user", ErrNoAccount, u.Username)
	}
	gid, err := parseID(u.Gid)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	a := &account{name: u.Username, uid: uid, gid: gid}
	// Supplementary groups may be what lets the user enter a directory (Debian's
	// ssl-cert, a shared /srv); without a list the user still has its own group.
	ids, err := u.GroupIds()
	if err != nil {
		ids = []string{u.Gid}
	}
	for _, id := range ids {
		if g, err := parseID(id); err == nil {
			a.groups = append(a.groups, g)
		}
	}
	return a, nil
}

func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("id %q is not a number: %w", s, err)
	}
	return uint32(n), nil
}

func ownerOf(path string) (uid uint32, ok bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Uid, true
}

// own gives a path to the account. It does not follow a symbolic link, which
// whoever owns the directory above could have put there for root to give away.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

func (a *account) String() string {
	if a == nil {
		return "the current user"
	}
	return "user " + a.name
}

// command prepares a program to run as the account, in a directory it must be
// able to enter, in a process group of its own, so that a terminal's Ctrl-C
// reaches us and not the server.
func (a *account) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = environment(dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// What a program started may hold its output open after it has ended.
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

// environment is a short list instead of ours: PGPORT and PGDATA would change
// the server, LC_* its messages, HOME may be a place that its user cannot enter,
// and our secrets are none of its business.
func environment(home string) []string {
	env := []string{"LC_ALL=C", "HOME=" + home}
	for _, name := range []string{"PATH", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// canEnter tries rather than reads modes, which access control lists overrule.
func (a *account) canEnter(ctx context.Context, dir string, b binaries) error {
	out, err := a.command(ctx, dir, b.path("postgres"), "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s cannot enter %s: %w%s", a, dir, err, indentOutput(out))
	}
	return nil
}

// indentOutput shows what a program said below the error that it caused.
func indentOutput(out []byte) string {
	text := strings.TrimSpace(string(out))
	if text == "" {
		return ""
	}
	return "\n\t" + strings.ReplaceAll(text, "\n", "\n\t")
}

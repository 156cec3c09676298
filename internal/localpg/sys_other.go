//go:build !linux

package localpg

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithUs does nothing where the kernel has no parent-death signal: the next
// start sweeps instead.
func dieWithUs(*syscall.SysProcAttr, syscall.Signal) {}

// isPostmaster says whether pid is a live server on pgdata. A process id alone
// would not do: it may have gone to another program since.
func isPostmaster(pid int, pgdata string) bool {
	out, err := exec.Command("ps", "-ww", "-o", "stat=,command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false
	}
	line := strings.TrimSpace(string(out))
	return !strings.HasPrefix(line, "Z") && strings.Contains(line, "postgres -D "+pgdata+" ")
}

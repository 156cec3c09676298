package localpg

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// dieWithUs has the kernel send signal to the program when the thread that
// starts it ends, which it does even if we are killed.
func dieWithUs(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }

// isPostmaster says whether pid is a live server on pgdata. A process id alone
// would not do: it may have gone to another program since. A zombie has no
// working directory and so is not alive here, which matters in containers whose
// first process does not reap.
func isPostmaster(pid int, pgdata string) bool {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || strings.TrimSpace(string(comm)) != "postgres" {
		return false
	}
	// The server's working directory is its data directory.
	cwd, err := os.Stat(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return false
	}
	want, err := os.Stat(pgdata)
	return err == nil && os.SameFile(cwd, want)
}

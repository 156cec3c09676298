package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

// transactionFlags are how the database is asked: by requests, and by workers.
// They must nest: a wait that is inside another ends before it.
type transactionFlags struct {
	RequestTimeout   time.Duration `help:"Time for one request, or for one transaction of a worker, with all its attempts." default:"10s"`
	StatementTimeout time.Duration `help:"Time for one statement in the database." default:"5s"`
	LockTimeout      time.Duration `help:"Time to wait for one lock." default:"2s"`
	GroupLockWait    time.Duration `help:"Time for which a transaction of several transfers waits for a row that somebody else keeps, before it goes on without it." default:"50ms"`
	IdleTimeout      time.Duration `help:"Time that the database keeps a transaction whose client is silent." default:"10s"`
	AccountLock      string        `help:"Rows that one statement locks: any number, or one row, for engines that refuse to lock several at once. One row: pessimistic mode, and no workers." default:"any" enum:"any,row"`
	AcquireTimeout   time.Duration `help:"Time to wait for a connection of the pool." default:"1s"`
	PoolSize         int           `help:"Connections to the database." default:"16"`
	Pooler           string        `help:"What stands between us and the database: none, or transaction for PgBouncer and its kind in transaction mode." default:"none" enum:"none,transaction"`

	Attempts int           `help:"Attempts of a transaction that loses conflicts." default:"20"`
	MinPause time.Duration `help:"Least bound of the random pause before another attempt; it doubles." default:"10ms"`
	MaxPause time.Duration `help:"Greatest bound of that pause." default:"500ms"`
}

// serviceFlags are what the service promises its callers and asks of its
// database.
type serviceFlags struct {
	Mode             string `help:"How balances are changed under contention: ${modes}." default:"pessimistic" enum:"${modes}"`
	AllowLostUpdates bool   `help:"Allow --mode none, which loses money, for demonstrations."`
	RowLock          string `help:"Row lock of the pessimistic mode: update, no-key-update." default:"update" enum:"update,no-key-update"`
	LockWait         string `help:"At a locked row in the pessimistic mode: wait, or nowait to answer at once." default:"wait" enum:"wait,nowait"`

	GroupSize  int `help:"Transfers that may share a transaction in the pessimistic mode; 1: none do. Default: ${groupsize}, and 1 in other modes." placeholder:"N"`
	GroupLanes int `help:"Such transactions at work at once, at most --pool-size. They never have an account in common." default:"2"`

	transactionFlags

	MaxInFlight    int           `help:"Requests at work at once; more are answered 503." default:"1024"`
	IdempotencyTTL time.Duration `name:"idempotency-ttl" help:"How long an idempotency key lives at least." default:"24h"`
}

// check returns what is wrong with the flags, all of it.
func (f serviceFlags) check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	mode, err := transfer.ModeByName(f.Mode)
	if err != nil {
		errs = append(errs, err)
	} else if mode.LosesMoney && !f.AllowLostUpdates {
		fail("--mode %s loses money: it needs --allow-lost-updates, and nobody's real money", f.Mode)
	}
	if f.Mode != transfer.Pessimistic.Name && (f.RowLock != "update" || f.LockWait != "wait" || f.eachRow()) {
		fail("--row-lock, --lock-wait and --account-lock are for --mode %s only", transfer.Pessimistic.Name)
	}
	if f.GroupSize < 0 || f.GroupSize > maxGroupSize {
		fail("--group-size must be 1 to %d", maxGroupSize)
	}
	if f.Mode != transfer.Pessimistic.Name && f.GroupSize > 1 {
		fail("--group-size above 1 is for --mode %s only: groups need its locks", transfer.Pessimistic.Name)
	}
	if f.IdempotencyTTL < time.Second {
		fail("--idempotency-ttl (%v) must be at least a second", f.IdempotencyTTL)
	}
	for name, n := range map[string]int{"--group-lanes": f.GroupLanes, "--max-in-flight": f.MaxInFlight} {
		if n < 1 {
			fail("%s must be at least 1", name)
		}
	}
	return errors.Join(append(errs, f.transactionFlags.check())...)
}

// check returns what is wrong with the flags, all of it.
func (f transactionFlags) check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if f.GroupLockWait <= 0 || f.GroupLockWait > f.LockTimeout {
		fail("--group-lock-wait (%v) must be positive and not longer than --lock-timeout (%v)", f.GroupLockWait, f.LockTimeout)
	}
	if f.LockTimeout <= 0 {
		fail("--lock-timeout must be positive")
	}
	if f.StatementTimeout <= f.LockTimeout {
		fail("--statement-timeout (%v) must be longer than --lock-timeout (%v)", f.StatementTimeout, f.LockTimeout)
	}
	if f.RequestTimeout <= f.StatementTimeout {
		fail("--request-timeout (%v) must be longer than --statement-timeout (%v)", f.RequestTimeout, f.StatementTimeout)
	}
	if f.AcquireTimeout <= 0 || f.AcquireTimeout >= f.RequestTimeout {
		fail("--acquire-timeout (%v) must be positive and shorter than --request-timeout (%v)", f.AcquireTimeout, f.RequestTimeout)
	}
	if f.IdleTimeout < f.StatementTimeout {
		fail("--idle-timeout (%v) must not be shorter than --statement-timeout (%v)", f.IdleTimeout, f.StatementTimeout)
	}
	if f.MinPause <= 0 || f.MaxPause < f.MinPause {
		fail("--min-pause (%v) must be positive and not longer than --max-pause (%v)", f.MinPause, f.MaxPause)
	}
	for name, n := range map[string]int{"--pool-size": f.PoolSize, "--attempts": f.Attempts} {
		if n < 1 {
			fail("%s must be at least 1", name)
		}
	}
	return errors.Join(errs...)
}

// policy is how transactions are repeated; conflicts are told to onConflict.
func (f transactionFlags) policy(onConflict func(retry.Conflict)) retry.Policy {
	return retry.Policy{
		Attempts: f.Attempts, MinPause: f.MinPause, MaxPause: f.MaxPause,
		StatementTimeout: f.StatementTimeout, LockTimeout: f.LockTimeout, IdleTimeout: f.IdleTimeout,
		OnConflict: onConflict,
	}
}

// eachRow reports whether no statement may lock several rows.
func (f transactionFlags) eachRow() bool { return f.AccountLock == "row" }

// checkWorkers refuses workers where no statement may lock several rows: what is
// due is claimed by one that does.
func (f transactionFlags) checkWorkers(n int) error {
	if n > 0 && f.eachRow() {
		return fmt.Errorf("--account-lock row and --workers %d contradict each other: payments are claimed by a statement that locks several rows", n)
	}
	return nil
}

// groupSize is how many transfers share a transaction, or 1.
func (f serviceFlags) groupSize() int {
	switch {
	case f.GroupSize > 0:
		return f.GroupSize
	case f.Mode == transfer.Pessimistic.Name:
		return defaultGroupSize
	}
	return 1
}

// Measured: docs/benchmarks.md.
const (
	defaultGroupSize = 128
	maxGroupSize     = 1000
	groupQueue       = 1024
)

// grouping is nil where every transfer has a transaction of its own.
func (f serviceFlags) grouping(onGroup func(int)) *transfer.Grouping {
	if f.groupSize() == 1 {
		return nil
	}
	return &transfer.Grouping{
		Size: f.groupSize(), Lanes: min(f.GroupLanes, f.PoolSize), Queue: groupQueue,
		LockWait: f.GroupLockWait, Waiters: max(1, f.PoolSize/4), OnGroup: onGroup,
	}
}

func (f serviceFlags) locking() transfer.Locking {
	return transfer.Locking{NoKeyUpdate: f.RowLock == "no-key-update", NoWait: f.LockWait == "nowait", EachRow: f.eachRow()}
}

// modeNames is the list that flags accept.
func modeNames() string {
	var names []string
	for _, m := range transfer.Modes() {
		names = append(names, m.Name)
	}
	return strings.Join(names, ",")
}

// checkListen refuses an address that others can reach, unless they may.
func checkListen(flag, address string, others bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s %s: %w", flag, address, err)
	}
	if ip := net.ParseIP(host); others || host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%s %s can be reached by others", flag, address)
}

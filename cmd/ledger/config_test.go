package main

import (
	"strings"
	"testing"
	"time"
)

func defaults() serviceFlags {
	return serviceFlags{
		Mode: "pessimistic", RowLock: "update", LockWait: "wait",
		MaxInFlight: 1024, IdempotencyTTL: 24 * time.Hour, GroupLanes: 1,
		transactionFlags: transactionFlags{
			RequestTimeout: 10 * time.Second, StatementTimeout: 5 * time.Second, LockTimeout: 2 * time.Second,
			IdleTimeout: 10 * time.Second, AcquireTimeout: time.Second, PoolSize: 16, Pooler: "none",
			Attempts: 20, MinPause: 10 * time.Millisecond, MaxPause: 500 * time.Millisecond, GroupLockWait: 50 * time.Millisecond, AccountLock: "any",
		},
	}
}

func TestTheDefaultsNest(t *testing.T) {
	if err := defaults().check(); err != nil {
		t.Errorf("check() = %v, want nil", err)
	}
}

func TestFlagsThatContradictAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*serviceFlags)
		want   string
	}{
		{"a mode that loses money", func(f *serviceFlags) { f.Mode = "none" }, "--allow-lost-updates"},
		{"a row lock without the mode for it", func(f *serviceFlags) { f.Mode, f.RowLock = "atomic", "no-key-update" }, "--mode pessimistic only"},
		{"a lock wait without the mode for it", func(f *serviceFlags) { f.Mode, f.LockWait = "serializable", "nowait" }, "--mode pessimistic only"},
		{"locks row by row without the mode for them", func(f *serviceFlags) { f.Mode, f.AccountLock = "optimistic", "row" }, "--mode pessimistic only"},
		{"groups without the mode for them", func(f *serviceFlags) { f.Mode, f.GroupSize = "atomic", 2 }, "--mode pessimistic only"},
		{"groups without end", func(f *serviceFlags) { f.GroupSize = 100_000 }, "--group-size"},
		{"no lanes", func(f *serviceFlags) { f.GroupLanes = 0 }, "--group-lanes"},
		{"a group that waits longer than one", func(f *serviceFlags) { f.GroupLockWait = time.Minute }, "--group-lock-wait"},
		{"no lock timeout", func(f *serviceFlags) { f.LockTimeout = 0 }, "--lock-timeout"},
		{"a statement that ends before its lock", func(f *serviceFlags) { f.StatementTimeout = f.LockTimeout }, "longer than --lock-timeout"},
		{"a request that ends before its statement", func(f *serviceFlags) { f.RequestTimeout = f.StatementTimeout }, "longer than --statement-timeout"},
		{"a wait for a connection as long as the request", func(f *serviceFlags) { f.AcquireTimeout = f.RequestTimeout }, "shorter than --request-timeout"},
		{"an idle timeout that ends a working request", func(f *serviceFlags) { f.IdleTimeout = time.Second }, "--idle-timeout"},
		{"pauses upside down", func(f *serviceFlags) { f.MaxPause = time.Millisecond }, "--max-pause"},
		{"keys that die at once", func(f *serviceFlags) { f.IdempotencyTTL = time.Millisecond }, "--idempotency-ttl"},
		{"no connections", func(f *serviceFlags) { f.PoolSize = 0 }, "--pool-size"},
		{"no attempts", func(f *serviceFlags) { f.Attempts = 0 }, "--attempts"},
		{"no requests", func(f *serviceFlags) { f.MaxInFlight = 0 }, "--max-in-flight"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			flags := defaults()
			tt.change(&flags)
			err := flags.check()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("check() = %v, want an error that says %q", err, tt.want)
			}
		})
	}
}

func TestWorkersNeedToLockSeveralRows(t *testing.T) {
	flags := defaults().transactionFlags
	if err := flags.checkWorkers(2); err != nil {
		t.Errorf("checkWorkers(2) = %v, want nil", err)
	}
	flags.AccountLock = "row"
	if err := flags.checkWorkers(0); err != nil {
		t.Errorf("row by row: checkWorkers(0) = %v, want nil", err)
	}
	if err := flags.checkWorkers(1); err == nil {
		t.Error("row by row: checkWorkers(1) = nil, want an error")
	}
}

func TestOnlyLoopbackIsServedWithoutTokens(t *testing.T) {
	for _, tt := range []struct {
		address                 string
		authenticated, insecure bool
		ok                      bool
	}{
		{address: "127.0.0.1:8080", ok: true},
		{address: "[::1]:8080", ok: true},
		{address: "localhost:0", ok: true},
		{address: ":8080"},
		{address: "0.0.0.0:8080"},
		{address: "[::]:8080"},
		{address: "192.0.2.1:8080"},
		{address: "ledger.example:8080"},
		{address: "8080"},
		{address: ":8080", authenticated: true, ok: true},
		{address: ":8080", insecure: true, ok: true},
	} {
		err := checkListen("--listen", tt.address, tt.authenticated || tt.insecure)
		if (err == nil) != tt.ok {
			t.Errorf("checkListen(%q, authenticated %v, insecure %v) = %v, want ok %v", tt.address, tt.authenticated, tt.insecure, err, tt.ok)
		}
	}
}

func TestPasswordsAreNotShown(t *testing.T) {
	for _, url := range []string{
		"postgres://alice:hunter2@db.example/ledger",
		"postgres:///ledger?host=/tmp&user=alice&password=hunter2",
		"host=db.example user=alice password=hunter2",
		"host=db.example user=alice password='hunter2 hunter2'",
	} {
		if got := redact(url); strings.Contains(got, "hunter2") {
			t.Errorf("redact(%q) = %q, which shows the password", url, got)
		}
	}
}

func TestTheCommandLineExplainsItself(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"serve", "--help"}, {"race", "--help"}} {
		var stdout, stderr strings.Builder
		exit := run(t.Context(), args, &stdout, &stderr)
		if exit != 0 || !strings.Contains(stdout.String(), "Usage: ledger") {
			t.Errorf("ledger %v: status %d, printed %q, want 0 and the usage", args, exit, stdout.String())
		}
	}
	var stdout, stderr strings.Builder
	if exit := run(t.Context(), []string{"serve", "--mode", "wishful"}, &stdout, &stderr); exit != 2 || !strings.Contains(stderr.String(), "pessimistic") {
		t.Errorf("an unknown mode: status %d, said %q, want 2 and the list of modes", exit, stderr.String())
	}
}

func defaultWorkers() workerFlags {
	return workerFlags{
		Workers: 2, PaymentGroup: 100, PaymentPoll: time.Second, PaymentLockWait: time.Second, PaymentMinPause: 10 * time.Second, PaymentMaxPause: time.Hour,
		PaymentHookTimeout: 10 * time.Second, PaymentLease: 30 * time.Second,
	}
}

func TestWorkerFlagsThatContradictAreRefused(t *testing.T) {
	if err := defaultWorkers().check(); err != nil {
		t.Errorf("the defaults: %v, want nil", err)
	}
	for want, change := range map[string]func(*workerFlags){
		"--workers":                  func(f *workerFlags) { f.Workers = -1 },
		"--payment-group":            func(f *workerFlags) { f.PaymentGroup = 0 },
		"--payment-lock-wait":        func(f *workerFlags) { f.PaymentLockWait = 0 },
		"--payment-poll":             func(f *workerFlags) { f.PaymentPoll = 0 },
		"--payment-max-pause":        func(f *workerFlags) { f.PaymentMaxPause = time.Second },
		"--payment-lease":            func(f *workerFlags) { f.PaymentLease = time.Second },
		"--payment-hook-timeout":     func(f *workerFlags) { f.PaymentHookTimeout = 0 },
		"--payment-hook-secret-file": func(f *workerFlags) { f.PaymentHook = "https://host/" },
	} {
		flags := defaultWorkers()
		change(&flags)
		if err := flags.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("check() = %v, want an error that says %q", err, want)
		}
	}
}

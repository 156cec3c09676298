package bench

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/testdb"
)

func newBench(t *testing.T, accounts int) *Bench {
	t.Helper()
	return &Bench{
		DatabaseURL: testdb.URL(t),
		Conditions:  Conditions{Accounts: accounts, Warmup: 10 * time.Millisecond, Duration: 100 * time.Millisecond},
	}
}

// What is put into a ledger before a run is as valid as what the service makes.
func TestLedgersBeginValid(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		accounts int
		preload  int64
		workload string
		want     int64
	}{
		{2, 0, "uniform", 2},
		{11, 0, "uniform", 11},
		{11, 0, "declines", 6},
		{2, 1, "uniform", 3},
		{10, 13, "uniform", 23},
		{11, 100, "uniform", 111},
	} {
		b := newBench(t, tt.accounts)
		w, err := WorkloadByName(tt.workload)
		if err != nil {
			t.Fatal(err)
		}
		l, err := b.newLedger(t.Context(), tt.preload, w)
		if err != nil {
			t.Fatal(err)
		}
		r := Result{Cell: Cell{Kind: Base}}
		if err := b.verify(t.Context(), l, &r); err != nil || !r.Verdict.Verified {
			t.Errorf("%+v: %v, %v", tt, err, r.Verdict.Findings)
		}
		if l.made != tt.want || len(l.ids) != tt.accounts {
			t.Errorf("%+v: %d transfers, %d accounts", tt, l.made, len(l.ids))
		}
		if err := l.drop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestLostMoneyFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4)
	for _, tt := range []struct {
		name, sql string
		made      int64 // more than there are
		mode      string
		want      string // in the finding
		fails     bool
	}{
		{"a balance", "UPDATE accounts SET balance = balance + 1 WHERE kind = 'customer'", 0, "atomic", "balance", true},
		{"an acknowledged transfer", "SELECT 1", 1, "atomic", "acknowledged", true},
		{"in a mode that may", "UPDATE accounts SET balance = balance + 1 WHERE kind = 'customer'", 0, "none", "balance", false},
	} {
		l, err := b.newLedger(t.Context(), 0, workloads[0])
		if err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.Connect(t.Context(), l.url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), tt.sql); err != nil {
			t.Fatal(err)
		}
		conn.Close(t.Context())
		l.made += tt.made
		r := Result{Cell: Cell{Kind: Service, Mode: tt.mode}}
		if err := b.verify(t.Context(), l, &r); errors.Is(err, ErrMoneyLost) != tt.fails {
			t.Errorf("%s: error = %v, want a loss %v", tt.name, err, tt.fails)
		}
		if got := strings.Join(r.Verdict.Findings, ", "); !strings.Contains(got, tt.want) {
			t.Errorf("%s: findings %q, want %q in them", tt.name, got, tt.want)
		}
		if err := l.drop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestBaseKeepsMoney(t *testing.T) {
	t.Parallel()
	kinds := []Kind{Base, Pipelined}
	if _, err := exec.LookPath("pgbench"); err == nil {
		kinds = append(kinds, PgBench)
	}
	b := newBench(t, 7)
	for _, kind := range kinds {
		for _, workload := range []string{"uniform", "hot"} {
			r, err := b.Measure(t.Context(), Cell{Kind: kind, Workload: workload, Clients: 3}, 1)
			if err != nil {
				t.Fatalf("%s, %s: %v", kind, workload, err)
			}
			if r.Made == 0 || r.PerSecond == 0 || !r.Verdict.Verified || len(r.Verdict.Findings) > 0 {
				t.Errorf("%s, %s: %+v", kind, workload, r)
			}
		}
	}
}

package bench

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const metricsText = `
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1.5
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 1.048576e+06
# TYPE ledger_transaction_conflicts_total counter
ledger_transaction_conflicts_total{mode="optimistic",sqlstate="40P01"} 2
ledger_transaction_conflicts_total{mode="optimistic",sqlstate="stale"} 3
# TYPE ledger_group_size histogram
ledger_group_size_bucket{le="1"} 1
ledger_group_size_bucket{le="8"} 5
ledger_group_size_bucket{le="64"} 7
ledger_group_size_bucket{le="+Inf"} 7
ledger_group_size_sum 40
ledger_group_size_count 7
`

func TestReadMetrics(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(metricsText)) }))
	defer server.Close()
	got, err := readMetrics(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if got.cpu != 1500*time.Millisecond || got.rss != 1<<20 || got.conflicts["40P01"] != 2 || got.conflicts["stale"] != 3 {
		t.Errorf("metrics = %+v", got)
	}
	r := Result{}
	r.since(reading{service: metrics{conflicts: map[string]int64{"40P01": 1, "stale": 3}}}, reading{service: got, wal: 7})
	if r.Retries() != 1 || r.Deadlocks() != 1 || r.Cost.WAL != 7 {
		t.Errorf("%d retries, %d deadlocks, %d bytes; want 1, 1 and 7", r.Retries(), r.Deadlocks(), r.Cost.WAL)
	}
	before := metrics{grouped: 4, groups: map[float64]uint64{1: 1, 8: 2, 64: 2, math.Inf(1): 2}}
	if g := groupsSince(before, got); g.Count != 5 || g.Mean != 36.0/5 || g.Largest != 64 {
		t.Errorf("groups = %+v, want 5 of 7.2, the largest at most 64", g)
	}
	if g := groupsSince(got, got); g != (Groups{}) {
		t.Errorf("groups of no time = %+v, want none", g)
	}
}

func TestPgBenchScript(t *testing.T) {
	for _, name := range []string{"uniform", "hot"} {
		w, err := WorkloadByName(name)
		if err != nil {
			t.Fatal(err)
		}
		script, err := pgBenchScript(w)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(script, "$") {
			t.Errorf("%s: a parameter is left:\n%s", name, script)
		}
		for _, part := range []string{"BEGIN;\n", "FOR UPDATE;\n", " \\gset debit_\n", " \\gset credit_\n", ":credit_version, clock_timestamp());\n", "COMMIT;\n"} {
			if strings.Count(script, part) != 1 {
				t.Errorf("%s: want %q once:\n%s", name, part, script)
			}
		}
	}
	if _, err := pgBenchScript(Workload{Name: "zipf"}); err == nil {
		t.Error("error = nil for a workload that pgbench does not have")
	}
}

func TestParsePgBench(t *testing.T) {
	const out = `transaction type: transfer.sql
number of transactions actually processed: 12345
latency average = 6.4 ms
tps = 2469.012345 (without initial connection time)
`
	rate, made, err := parsePgBench(out)
	if err != nil || rate != 2469.012345 || made != 12345 {
		t.Errorf("parsed %v, %d, %v", rate, made, err)
	}
	if _, _, err := parsePgBench("tps = many"); err == nil {
		t.Error("error = nil for an answer without figures")
	}
}

// Package fault_test breaks things under load, and counts what was acknowledged,
// what of it is lost, and what was done twice. `make faults` prints the table.
package fault_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/tests/harness"
)

var (
	rounds = flag.Int("rounds", 3, "how often each fault is made")
	report = flag.String("report", "", "a Markdown file with a table of faults, to be replaced by what ran")
)

func TestMain(m *testing.M) {
	flag.Parse()
	testdb.Main(m) // calls os.Exit
}

// TestFaults is one test, so that one binary serves all of it, and one report
// comes of it.
func TestFaults(t *testing.T) {
	harness.Build(t)
	for _, fault := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"the service is killed", killService},
		{"PostgreSQL is killed", killPostgres},
		{"generated requests", generatedRequests},
	} {
		t.Run(fault.name, fault.run)
	}
	table := seen.markdown()
	t.Logf("\n%s", table)
	if *report != "" && !t.Failed() {
		if err := replaceTable(*report, table); err != nil {
			t.Error(err)
		}
	}
}

// A line of the report is what became of one fault.
type line struct {
	fault  string
	rounds int
	harness.Tally
	recovery time.Duration // the longest time until money moved again; 0: none was measured
}

type lines struct {
	mu  sync.Mutex
	all []line
}

var seen lines

// add puts a line into the report.
func (l *lines) add(next line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, next)
}

func (l *lines) markdown() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	b.WriteString("| fault | rounds | acknowledged | lost | doubled | recovery |\n|---|---|---|---|---|---|\n")
	for _, r := range l.all {
		recovery := "–"
		if r.recovery > 0 {
			recovery = fmt.Sprintf("%.1f s", r.recovery.Seconds())
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %s |\n", r.fault, r.rounds, r.Acknowledged, r.Lost, r.Doubled, recovery)
	}
	return b.String()
}

const header = "| fault | rounds |"

// replaceTable puts table in the place of the one that file has.
func replaceTable(file, table string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	all := strings.Split(string(text), "\n")
	first := slices.IndexFunc(all, func(s string) bool { return strings.HasPrefix(s, header) })
	if first < 0 {
		return fmt.Errorf("%s has no table that begins with %q", file, header)
	}
	last := first
	for last < len(all) && strings.HasPrefix(all[last], "|") {
		last++
	}
	all = slices.Replace(all, first, last, strings.TrimSuffix(table, "\n"))
	return os.WriteFile(file, []byte(strings.Join(all, "\n")), 0o644)
}

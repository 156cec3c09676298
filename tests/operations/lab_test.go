package operations_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/tests/harness"
)

func testLab(t *testing.T) {
	database := testdb.URL(t)
	lab := func(args ...string) string {
		t.Helper()
		out, err := harness.Command(t, append([]string{"lab"}, args...)...).Output()
		if err != nil {
			t.Errorf("lab %q: %v", args, err)
		}
		return string(out)
	}
	if list := lab("--list"); !strings.Contains(list, "deadlock\n") {
		t.Errorf("the list has no deadlock:\n%s", list)
	}
	var report struct {
		Passed   bool
		Findings []struct {
			Scenario string
			Holds    bool
		}
	}
	if err := json.Unmarshal([]byte(lab("--database-url", database, "--format", "json", "nowait", "skip-locked")), &report); err != nil {
		t.Fatal(err)
	}
	if !report.Passed || len(report.Findings) != 2 || report.Findings[0].Scenario != "nowait" || !report.Findings[1].Holds {
		t.Errorf("report = %+v, want two findings that hold", report)
	}
	if text := lab("--database-url", database, "--explain", "for-update"); !strings.Contains(text, "... waits") {
		t.Errorf("nobody waits in:\n%s", text)
	}
	if left := harness.Ask[int](t, database, "SELECT count(*)::int FROM pg_namespace WHERE nspname LIKE 'ledger_race%'"); left != 0 {
		t.Errorf("%d schemas are left, want none", left)
	}
	if status, stderr := harness.RunToEnd(t, "lab", "no-such"); status != 1 || !strings.Contains(stderr, "no-such") {
		t.Errorf("status %d, %s: want 1, and the name", status, stderr)
	}
}

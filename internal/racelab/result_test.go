package racelab

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/shopspring/decimal"
)

func results() []Result {
	return []Result{
		{Scenario: "ring", Mode: "pessimistic", Round: 1, Kept: true, Elapsed: 250 * time.Millisecond, Answers: map[string]int{"201": 120}},
		{Scenario: "ring", Mode: "none", Round: 1, Lost: decimal.RequireFromString("1100"), Retries: 2, Elapsed: time.Second},
	}
}

func TestVerdict(t *testing.T) {
	all := results()
	if err := Verdict(all); err != nil {
		t.Errorf("verdict = %v, want none", err)
	}
	all[1].Failures = []string{"mode none lost nothing"}
	if err := Verdict(all); err == nil || !strings.Contains(err.Error(), "1 of 2 races failed: ring in mode none") {
		t.Errorf("verdict = %v, want the failed race's name", err)
	}
}

func TestWriteTable(t *testing.T) {
	all := results()
	all[0].Failures = []string{"answers = 119× 201, want 120× 201"}
	var b bytes.Buffer
	if err := WriteTable(&b, all); err != nil {
		t.Fatal(err)
	}
	want := `SCENARIO  MODE         MONEY         RETRIES  DEADLOCKS  TIME   
ring      pessimistic  kept          0        0          250ms  FAILED
ring      none         LOST 1100.00  2        0          1s     

ring in mode pessimistic: answers = 119× 201, want 120× 201
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestWriteJSON(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJSON(&b, results()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Passed  bool
		Results []struct {
			Scenario, Mode, Lost string
			Kept                 bool
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Passed || len(got.Results) != 2 || got.Results[1].Lost != "1100" || !got.Results[0].Kept {
		t.Errorf("JSON = %s", b.String())
	}
}

func TestWriteJUnit(t *testing.T) {
	all := results()
	all[0].Failures = []string{"<first>", "second"}
	var b bytes.Buffer
	if err := WriteJUnit(&b, all); err != nil {
		t.Fatal(err)
	}
	var got junitSuite
	if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Tests != 2 || got.Failures != 1 || got.Cases[0].Failure.Message != "<first>" || got.Cases[1].Failure != nil {
		t.Errorf("JUnit = %s", b.String())
	}
}

func TestParseMetric(t *testing.T) {
	const text = `# HELP ledger_transaction_conflicts_total Attempts.
# TYPE ledger_transaction_conflicts_total counter
ledger_transaction_conflicts_total{mode="serializable",sqlstate="40001"} 1.2e+01
ledger_transaction_conflicts_total{mode="serializable",sqlstate="stale"} 3
ledger_transaction_conflicts_total{mode="other",sqlstate="stale"} 4
ledger_other_total{sqlstate="40P01"} 9
# TYPE ledger_transfers_parked gauge
ledger_transfers_parked 16
ledger_transfers_parked_total 1
`
	got, err := parseMetric(strings.NewReader(text), conflictLine)
	if want := map[string]int{"40001": 12, "stale": 7}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("conflicts = %v, %v, want %v", got, err, want)
	}
	got, err = parseMetric(strings.NewReader(text), parkedLine)
	if want := map[string]int{"": 16}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("parked = %v, %v, want %v", got, err, want)
	}
}

func TestPessimisticIsRacedWithGroupsAndWithout(t *testing.T) {
	got := Variants([]string{"none", "pessimistic"})
	want := []Variant{
		{Name: "none", Mode: "none"}, {Name: "pessimistic", Mode: "pessimistic"},
		{Name: "pessimistic, ungrouped", Mode: "pessimistic", Flags: []string{"--group-size", "1"}},
		{Name: "pessimistic, row by row", Mode: "pessimistic", Flags: []string{"--account-lock", "row", "--workers", "0"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("variants (-want +got):\n%s", diff)
	}
}

func TestAnswersDiffer(t *testing.T) {
	a := answer{key: "k", status: 201, request: Request{Amount: "5.00"}}
	if got := (stored{refused: true}).differs(a); got == "" {
		t.Error("a success without a transfer differs from nothing")
	}
	if got := (stored{refused: true}).differs(answer{status: 422, code: "insufficient-funds"}); got != "" {
		t.Errorf("a refusal that is stored: %s", got)
	}
	if got := (stored{}).differs(answer{status: 422, code: "insufficient-funds"}); got == "" {
		t.Error("a refusal that is not stored differs from nothing")
	}
}

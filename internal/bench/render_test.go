package bench

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSummariesInEveryForm(t *testing.T) {
	s := exampleSummary()
	s.Rows[len(s.Rows)-1].Findings = []string{"balance: 3 <script>"}
	s.Sort()
	write := func(name string, f func(*bytes.Buffer) error) string {
		t.Helper()
		var out bytes.Buffer
		if err := f(&out); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return out.String()
	}
	table := write("table", func(b *bytes.Buffer) error { return WriteTable(b, s) })
	markdown := write("markdown", func(b *bytes.Buffer) error { return WriteMarkdown(b, s) })
	for name, text := range map[string]string{"table": table, "markdown": markdown} {
		for _, want := range []string{"pessimistic/grouped", "300–600", "3.00", "LOST", "balance: 3", "base reaches 1.00 of pgbench", "MISSED"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", name, want, text)
			}
		}
	}
	if lines := strings.Split(markdown, "\n"); strings.Count(lines[0], "|") != strings.Count(lines[2], "|") {
		t.Errorf("markdown's columns differ:\n%s", markdown)
	}
	records, err := csv.NewReader(strings.NewReader(write("csv", func(b *bytes.Buffer) error { return WriteCSV(b, s) }))).ReadAll()
	if err != nil || len(records) != len(s.Rows)+1 {
		t.Errorf("CSV: %d records, %v; want %d", len(records), err, len(s.Rows)+1)
	}
	var back Summary
	if err := json.Unmarshal([]byte(write("json", func(b *bytes.Buffer) error { return WriteJSON(b, s) })), &back); err != nil || len(back.Rows) != len(s.Rows) {
		t.Errorf("JSON: %d rows, %v; want %d", len(back.Rows), err, len(s.Rows))
	}
}

func TestThePageNeedsNothingElse(t *testing.T) {
	s := exampleSummary()
	s.Rows[0].Findings = []string{"<script>"}
	var out bytes.Buffer
	if err := WriteHTML(&out, s); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	if got := strings.Count(page, "<svg"); got != len(chartsOf(s)) || got < 4 {
		t.Errorf("%d pictures, want %d and no less than 4", got, len(chartsOf(s)))
	}
	for _, refused := range []string{"<script", "<link", "src=", "@import", "url("} {
		if strings.Contains(page, refused) {
			t.Errorf("the page has %q in it", refused)
		}
	}
}

func TestChartsAreFiles(t *testing.T) {
	s, dir := exampleSummary(), filepath.Join(t.TempDir(), "charts")
	if err := WriteCharts(dir, s); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"throughput-by-clients-uniform.svg", "hot-against-uniform.svg", "latency-hot-64-clients.svg"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.HasPrefix(text, []byte("<svg")) {
			t.Errorf("%s: %v, begins with %.10q", name, err, text)
		}
	}
}

func TestNothingMeasuredIsNothingDrawn(t *testing.T) {
	if got := chartsOf(Summary{}); len(got) != 0 {
		t.Errorf("%d charts of nothing", len(got))
	}
	var out bytes.Buffer
	if err := WriteHTML(&out, Summary{}); err != nil {
		t.Error(err)
	}
	if err := WriteTable(&out, Summary{}); err != nil {
		t.Error(err)
	}
}

func TestTextOfOneResult(t *testing.T) {
	r := rounds(grouped("uniform", 64), 1234)[0]
	r.Codes, r.Example = map[string]int64{"overloaded": 7}, "connection reset"
	r.Groups = Groups{Count: 10, Mean: 31.5, Largest: 64}
	var out bytes.Buffer
	if err := WriteText(&out, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1234/s", "p99 3.00 ms", "overloaded 7", "connection reset", "10 of 31.5", "1000 bytes a transfer", "100 MiB", "every invariant holds"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, out.String())
		}
	}
}

func TestDurationsHaveThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1234 * time.Microsecond: "1.23 ms", 12345 * time.Microsecond: "12.3 ms", 1234 * time.Millisecond: "1234 ms",
	} {
		if got := duration(d); got != want {
			t.Errorf("duration(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.jsonl")
	cell, c := grouped("uniform", 64), Conditions{Accounts: 10, Duration: time.Second}
	s, err := OpenStore(path)
	if err != nil {
		t.Fatal(err)
	}
	kept := Result{Cell: cell, Conditions: c, Round: 1, PerSecond: 5}
	lost := Result{Cell: cell, Conditions: c, Round: 2, Verdict: Verdict{Findings: []string{"balance: 1"}}}
	for _, r := range []Result{kept, lost} {
		if err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"kind":"service","mo`); err != nil { // a run that was killed
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenStore(path)
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := again.Find(cell, c, 1); !ok || r.PerSecond != 5 {
		t.Errorf("found %v, %+v; want what was kept", ok, r)
	}
	other := c
	other.Keys = true
	for name, found := range map[string]bool{
		"a round in which money was lost": has(again, cell, c, 2), "another round": has(again, cell, c, 3),
		"other conditions": has(again, cell, other, 1), "nothing": has(Store{}, cell, c, 1),
	} {
		if found {
			t.Errorf("%s was found", name)
		}
	}
	if err := again.Add(Result{Cell: cell, Conditions: c, Round: 3}); err != nil {
		t.Fatal(err)
	}
	if last, err := OpenStore(path); err != nil || !has(last, cell, c, 3) {
		t.Errorf("a result after a broken line is not found: %v", err)
	}
}

func has(s Store, cell Cell, c Conditions, round int) bool {
	_, ok := s.Find(cell, c, round)
	return ok
}

package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteJSON writes a result or a summary for programs.
func WriteJSON[T Result | Summary](w io.Writer, v T) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// WriteText writes one result for people.
func WriteText(w io.Writer, r Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	loop := fmt.Sprintf("%d clients", r.Clients)
	if r.Rate > 0 {
		loop = fmt.Sprintf("%.0f a second by %d clients", r.Rate, r.Clients)
	}
	fmt.Fprintf(t, "%s\t%s, %s, %d accounts, %v after %v\n", r.Name(), r.Workload, loop, r.Accounts, r.Duration, r.Warmup)
	fmt.Fprintf(t, "transfers\t%.0f/s (%d made)\n", r.PerSecond, r.Made)
	names, values := r.Latency.Percentiles()
	var latencies []string
	for i, name := range names {
		latencies = append(latencies, name+" "+duration(values[i]))
	}
	fmt.Fprintf(t, "latency\t%s\n", strings.Join(latencies, ", "))
	fmt.Fprintf(t, "not made\t%s\n", counts(r.Codes))
	if r.Example != "" {
		fmt.Fprintf(t, "no answer\t%s\n", r.Example)
	}
	fmt.Fprintf(t, "conflicts\t%s\n", counts(r.Conflicts))
	if r.Groups.Count > 0 {
		fmt.Fprintf(t, "groups\t%d of %.1f transfers, the largest at most %.0f\n", r.Groups.Count, r.Groups.Mean, r.Groups.Largest)
	}
	for _, c := range []struct {
		name string
		cpu  time.Duration
	}{{"service", r.Cost.ServiceCPU}, {"database", r.Cost.DatabaseCPU}, {"generator", r.Cost.GeneratorCPU}, {"others", r.Cost.OthersCPU}} {
		fmt.Fprintf(t, "CPU, %s\t%.2f s, %.0f µs a transfer\n", c.name, c.cpu.Seconds(), r.PerTransfer(micros(c.cpu)))
	}
	fmt.Fprintf(t, "memory\tservice %s at most", mebibytes(r.Cost.PeakRSS()))
	if growth := r.Cost.RSSGrowth(); growth > 0 {
		fmt.Fprintf(t, " (last quarter to second: %.2f)", growth)
	}
	fmt.Fprintf(t, ", database %s\n", mebibytes(r.Cost.DatabaseRSS))
	fmt.Fprintf(t, "WAL\t%.1f MiB, %.0f bytes a transfer\n", float64(r.Cost.WAL)/(1<<20), r.PerTransfer(float64(r.Cost.WAL)))
	fmt.Fprintf(t, "HOT updates\t%.1f %% of the accounts'\n", 100*r.HotRatio)
	fmt.Fprintf(t, "verify\t%s\n", r.Verdict)
	return t.Flush()
}

func (v Verdict) String() string {
	switch {
	case !v.Verified:
		return "not verified: no database was named"
	case len(v.Findings) > 0:
		return "MONEY LOST: " + strings.Join(v.Findings, ", ")
	}
	return "every invariant holds"
}

func mebibytes(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }

// counts writes a map in the order of its keys.
func counts(m map[string]int64) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", key, m[key]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// duration writes milliseconds with three digits that count.
func duration(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	return strconv.FormatFloat(ms, 'f', digitsAfterPoint(ms), 64) + " ms"
}

func digitsAfterPoint(v float64) int {
	switch {
	case v < 10:
		return 2
	case v < 100:
		return 1
	}
	return 0
}

// A column is one column of a table of rows.
type column struct {
	name  string
	value func(Row) string
}

var columns = []column{
	{"workload", func(r Row) string { return r.Workload }},
	{"clients", func(r Row) string { return strconv.Itoa(r.Clients) }},
	{"what", func(r Row) string { return r.Name() }},
	{"per second", func(r Row) string { return fmt.Sprintf("%.0f", r.PerSecond.Median) }},
	{"min–max", func(r Row) string { return fmt.Sprintf("%.0f–%.0f", r.PerSecond.Min, r.PerSecond.Max) }},
	{"× base", func(r Row) string { return times(r.ToBase) }},
	{"× pipelined", func(r Row) string { return times(r.ToPipelined) }},
	{"hot/uniform", func(r Row) string { return times(r.ToUniform) }},
	{"loaded/empty", func(r Row) string { return times(r.ToEmpty) }},
	{"p50", func(r Row) string { return latencyOrNone(r.Latency.P50) }},
	{"p99", func(r Row) string { return latencyOrNone(r.Latency.P99) }},
	{"max", func(r Row) string { return latencyOrNone(r.Latency.Max) }},
	{"group", func(r Row) string { return number(r.GroupMean, 1) }},
	{"µs service", func(r Row) string { return number(r.ServiceCPU, 0) }},
	{"µs database", func(r Row) string { return number(r.DatabaseCPU, 0) }},
	{"WAL bytes", func(r Row) string { return number(r.WAL, 0) }},
	{"HOT %", func(r Row) string { return number(100*r.HotRatio, 1) }},
	{"% others", func(r Row) string { return number(100*r.Others, 0) }},
	{"RSS MiB", func(r Row) string { return number(float64(r.PeakRSS)/(1<<20), 0) }},
	{"retries", func(r Row) string { return strconv.FormatInt(r.Retries, 10) }},
	{"failed", func(r Row) string { return strconv.FormatInt(r.Failed, 10) }},
	{"money", Row.money},
}

// money says whether all of it is there.
func (r Row) money() string {
	if len(r.Findings) > 0 {
		return "LOST"
	}
	return "kept"
}

const none = "–"

func times(s Spread) string { return number(s.Median, 2) }

func number(v float64, digits int) string {
	if v == 0 {
		return none
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

func latencyOrNone(d time.Duration) string {
	if d == 0 {
		return none
	}
	return duration(d)
}

// tableOf returns the columns that say anything, and their cells.
func tableOf(rows []Row) (head []string, body [][]string) {
	body = make([][]string, len(rows))
	for _, c := range columns {
		var values []string
		says := false
		for _, r := range rows {
			v := c.value(r)
			values, says = append(values, v), says || v != none
		}
		if !says {
			continue
		}
		head = append(head, c.name)
		for i, v := range values {
			body[i] = append(body[i], v)
		}
	}
	return head, body
}

// WriteTable writes a summary for a terminal.
func WriteTable(w io.Writer, s Summary) error {
	head, body := tableOf(s.Rows)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cells := range append([][]string{head}, body...) {
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(s.remarks(), "\n"))
	return err
}

// WriteMarkdown writes a summary for documentation.
func WriteMarkdown(w io.Writer, s Summary) error {
	head, body := tableOf(s.Rows)
	lines := []string{"| " + strings.Join(head, " | ") + " |", "|" + strings.Repeat("---|", len(head))}
	for _, cells := range body {
		lines = append(lines, "| "+strings.Join(cells, " | ")+" |")
	}
	lines = append(lines, "")
	for _, remark := range s.remarks() {
		lines = append(lines, "- "+remark)
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// remarks say under which conditions the figures were taken.
func (s Summary) remarks() []string {
	keys := "with"
	if !s.Keys {
		keys = "without"
	}
	remarks := []string{
		fmt.Sprintf("%d accounts, %v after %v of warm-up, %s idempotency keys; medians of rounds", s.Accounts, s.Duration, s.Warmup, keys),
		s.Machine.String(),
	}
	for _, r := range s.Rows {
		for _, finding := range r.Findings {
			remarks = append(remarks, fmt.Sprintf("%s, %s, %d clients: %s", r.Name(), r.Workload, r.Clients, finding))
		}
	}
	remarks = append(remarks, s.Notes...)
	for _, t := range s.Targets {
		remarks = append(remarks, t.String())
	}
	return remarks
}

// String describes the machine in a line.
func (m Machine) String() string {
	text := fmt.Sprintf("%d processors, %s, %s, %s", m.Processors, m.Processor, m.System, m.Go)
	if m.PostgreSQL != "" {
		text += ", PostgreSQL " + m.PostgreSQL
	}
	for _, name := range slices.Sorted(maps.Keys(m.Settings)) {
		if v := m.Settings[name]; v != "" {
			text += fmt.Sprintf(", %s=%s", name, v)
		}
	}
	return text
}

// WriteCSV writes a summary for spreadsheets: every figure, in plain numbers.
func WriteCSV(w io.Writer, s Summary) error {
	out := csv.NewWriter(w)
	rows := [][]string{{
		"kind", "mode", "group_size", "workload", "clients", "preload", "rounds", "per_second", "per_second_min", "per_second_max",
		"to_base", "to_base_pipelined", "to_uniform", "to_empty", "p50_ms", "p90_ms", "p99_ms", "p99_9_ms", "max_ms",
		"group_mean", "service_cpu_us", "database_cpu_us", "wal_bytes", "hot_ratio", "others", "peak_rss", "retries", "deadlocks", "failed", "refused", "findings",
	}}
	for _, r := range s.Rows {
		row := []string{string(r.Kind), r.Mode, r.GroupSize, r.Workload, strconv.Itoa(r.Clients),
			strconv.FormatInt(r.Preload, 10), strconv.Itoa(r.Rounds)}
		for _, v := range []float64{r.PerSecond.Median, r.PerSecond.Min, r.PerSecond.Max,
			r.ToBase.Median, r.ToPipelined.Median, r.ToUniform.Median, r.ToEmpty.Median} {
			row = append(row, strconv.FormatFloat(v, 'f', 3, 64))
		}
		_, latencies := r.Latency.Percentiles()
		for _, d := range latencies {
			row = append(row, strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 3, 64))
		}
		for _, v := range []float64{r.GroupMean, r.ServiceCPU, r.DatabaseCPU, r.WAL, r.HotRatio, r.Others} {
			row = append(row, strconv.FormatFloat(v, 'f', 3, 64))
		}
		for _, n := range []int64{r.PeakRSS, r.Retries, r.Deadlocks, r.Failed, r.Refused} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		rows = append(rows, append(row, strings.Join(r.Findings, "; ")))
	}
	return out.WriteAll(rows)
}

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-analyze/charts"
)

// A PaymentRow is one cell over all rounds.
type PaymentRow struct {
	PaymentCell
	Rounds     int           `json:"rounds"`
	PerSecond  Spread        `json:"per_second"`
	ToOne      Spread        `json:"to_one"` // one worker of the same queue and group, in the same round
	Claim      time.Duration `json:"claim_ns"`
	ClaimDrift Spread        `json:"claim_drift"`
	Findings   []string      `json:"findings,omitempty"`
}

// A PaymentSummary is a comparison's outcome.
type PaymentSummary struct {
	At       time.Time    `json:"at"`
	Machine  Machine      `json:"machine"`
	Accounts int          `json:"accounts"`
	Payments int          `json:"payments"`
	Rows     []PaymentRow `json:"rows"`
}

// SummarizePayments joins the rounds of each cell, in the order in which they
// came.
func SummarizePayments(results []PaymentResult, accounts, payments int, m Machine) PaymentSummary {
	s := PaymentSummary{At: time.Now().UTC(), Machine: m, Accounts: accounts, Payments: payments}
	type key struct {
		PaymentCell
		round int
	}
	rates := map[key]float64{}
	for _, r := range results {
		rates[key{r.PaymentCell, r.Round}] = r.PerSecond
	}
	var cells []PaymentCell
	for _, r := range results {
		if !slices.Contains(cells, r.PaymentCell) {
			cells = append(cells, r.PaymentCell)
		}
	}
	for _, cell := range cells {
		one := cell
		one.Workers = 1
		row := PaymentRow{PaymentCell: cell}
		var perSecond, toOne, claims, drifts []float64
		for _, r := range results {
			if r.PaymentCell != cell {
				continue
			}
			row.Rounds++
			row.Findings = append(row.Findings, r.Findings...)
			perSecond, claims, drifts = append(perSecond, r.PerSecond), append(claims, float64(r.Claim)), append(drifts, r.ClaimDrift)
			if base := rates[key{one, r.Round}]; base > 0 {
				toOne = append(toOne, r.PerSecond/base)
			}
		}
		row.PerSecond, row.ToOne, row.ClaimDrift = spread(perSecond), spread(toOne), spread(drifts)
		row.Claim = time.Duration(spread(claims).Median)
		s.Rows = append(s.Rows, row)
	}
	return s
}

var paymentHead = []string{"queue", "group", "workers", "finished before", "vacuum", "payments a second", "min–max", "× one worker", "claim", "claim, last/first", "money"}

func (r PaymentRow) cells() []string {
	vacuum, money := "free", "kept"
	if r.Snapshot {
		vacuum = "held back"
	}
	if len(r.Findings) > 0 {
		money = "LOST"
	}
	return []string{
		string(r.Queue), strconv.Itoa(r.Group), strconv.Itoa(r.Workers), strconv.FormatInt(r.Finished, 10), vacuum,
		fmt.Sprintf("%.0f", r.PerSecond.Median), fmt.Sprintf("%.0f–%.0f", r.PerSecond.Min, r.PerSecond.Max),
		times(r.ToOne), latencyOrNone(r.Claim), times(r.ClaimDrift), money,
	}
}

func (s PaymentSummary) remarks() []string {
	return []string{fmt.Sprintf("%d payments between %d accounts; medians of rounds", s.Payments, s.Accounts), s.Machine.String()}
}

// WritePaymentTable writes a summary for a terminal.
func WritePaymentTable(w io.Writer, s PaymentSummary) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(paymentHead, "\t"))
	for _, r := range s.Rows {
		fmt.Fprintln(t, strings.Join(r.cells(), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(s.remarks(), "\n"))
	return err
}

// WritePaymentMarkdown writes a summary for documentation.
func WritePaymentMarkdown(w io.Writer, s PaymentSummary) error {
	lines := []string{"| " + strings.Join(paymentHead, " | ") + " |", "|" + strings.Repeat("---|", len(paymentHead))}
	for _, r := range s.Rows {
		lines = append(lines, "| "+strings.Join(r.cells(), " | ")+" |")
	}
	_, err := fmt.Fprintf(w, "%s\n\n- %s\n", strings.Join(lines, "\n"), strings.Join(s.remarks(), "\n- "))
	return err
}

// WritePaymentJSON writes a summary for programs.
func WritePaymentJSON(w io.Writer, s PaymentSummary) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(s)
}

// WritePaymentCharts writes the scaling as a picture into a directory: a line for each
// queue and group, by workers.
func WritePaymentCharts(dir string, s PaymentSummary) error {
	c := chart{title: "Queued payments by workers", unit: "payments a second", render: charts.LineRender}
	var counts []int
	for _, r := range s.Rows {
		counts = append(counts, r.Workers)
	}
	slices.Sort(counts)
	counts = slices.Compact(counts)
	for _, n := range counts {
		c.labels = append(c.labels, strconv.Itoa(n))
	}
	for _, r := range s.Rows {
		name := fmt.Sprintf("%s, groups of %d", r.Queue, r.Group)
		if r.Finished > 0 || r.Snapshot || slices.Contains(c.names, name) {
			continue
		}
		line := make([]float64, len(counts))
		for i, n := range counts {
			line[i] = charts.GetNullValue()
			cell := r.PaymentCell
			cell.Workers = n
			if at := slices.IndexFunc(s.Rows, func(r PaymentRow) bool { return r.PaymentCell == cell }); at >= 0 {
				line[i] = s.Rows[at].PerSecond.Median
			}
		}
		c.names, c.values = append(c.names, name), append(c.values, line)
	}
	svg, err := c.svg()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, c.fileName()), []byte(svg), 0o644); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	return nil
}

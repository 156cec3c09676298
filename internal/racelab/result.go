package racelab

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/shopspring/decimal"
)

// A Result is how one race ended. Amounts are in USD.
type Result struct {
	Scenario string `json:"scenario"`
	Mode     string `json:"mode"`
	Round    int    `json:"round"`

	// Kept says that every balance is what its entries say; it is false, with
	// nothing lost, where the race did not come to its end. Lost and
	// LostExternal are Σ |balance − Σ entries| over the customers' accounts
	// and over the external one; Overwritten counts the lost updates one by
	// one, also those that cancel.
	Kept         bool            `json:"kept"`
	Lost         decimal.Decimal `json:"lost"`
	LostExternal decimal.Decimal `json:"lost_external"`
	Overwritten  decimal.Decimal `json:"overwritten"`

	Retries   int            `json:"retries"` // conflicts that the service counted, deadlocks included
	Deadlocks int            `json:"deadlocks"`
	Answers   map[string]int `json:"answers"` // final ones, by status and code
	Resent    map[string]int `json:"resent"`  // others, by code: they were asked again

	// Elapsed is from the gate's opening to the last answer.
	Elapsed time.Duration `json:"elapsed_ns"`

	// Failures say what was not as it must be. A mode that loses money fails
	// if it lost none.
	Failures []string `json:"failures"`
}

// Failed reports whether anything was not as it must be.
func (r Result) Failed() bool { return len(r.Failures) > 0 }

// money is the table's word on the balances.
func (r Result) money() string {
	switch {
	case r.Kept:
		return "kept"
	case r.Lost.IsZero() && r.Overwritten.IsZero():
		return "unknown" // the race did not come to its end
	}
	return "LOST " + r.Lost.StringFixed(2)
}

// Verdict returns nil when every result is as it must be: modes that keep
// money kept it, with the exact outcomes, and modes that lose money lost some.
func Verdict(results []Result) error {
	var failed []string
	for _, r := range results {
		if r.Failed() {
			failed = append(failed, r.Scenario+" in mode "+r.Mode)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d races failed: %s", len(failed), len(results), strings.Join(failed, "; "))
}

// WriteTable writes results for people, a line each, and the failures below.
func WriteTable(w io.Writer, results []Result) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SCENARIO\tMODE\tMONEY\tRETRIES\tDEADLOCKS\tTIME\t")
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%v\t%s\n", r.Scenario, r.Mode, r.money(), r.Retries, r.Deadlocks,
			r.Elapsed.Round(time.Millisecond), map[bool]string{true: "FAILED"}[r.Failed()])
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		for _, failure := range r.Failures {
			if _, err := fmt.Fprintf(w, "\n%s in mode %s: %s\n", r.Scenario, r.Mode, failure); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteJSON writes results for programs.
func WriteJSON(w io.Writer, results []Result) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Passed  bool     `json:"passed"`
		Results []Result `json:"results"`
	}{Verdict(results) == nil, results})
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Seconds  string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Seconds string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure"`
	Out     string        `xml:"system-out"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes results as the XML that CI systems show: a test case each.
func WriteJUnit(w io.Writer, results []Result) error {
	suite := junitSuite{Name: "ledger race", Tests: len(results)}
	var total time.Duration
	for _, r := range results {
		total += r.Elapsed
		c := junitCase{
			Class: "ledger.race." + r.Mode, Name: fmt.Sprintf("%s, round %d", r.Scenario, r.Round), Seconds: seconds(r.Elapsed),
			Out: fmt.Sprintf("%s; %s; %d retries, %d deadlocks", r.money(), outcomes(r.Answers), r.Retries, r.Deadlocks),
		}
		if r.Failed() {
			suite.Failures++
			c.Failure = &junitFailure{Message: r.Failures[0], Text: strings.Join(r.Failures, "\n")}
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Seconds = seconds(total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

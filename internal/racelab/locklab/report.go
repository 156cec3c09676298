package locklab

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Verdict returns nil when everything holds that a mode of the service relies
// on. Its error names what does not, and the modes that must not be used.
func Verdict(findings []Finding) error {
	var broken, modes []string
	for _, f := range findings {
		if f.word() != "BROKEN" {
			continue
		}
		broken = append(broken, f.Scenario.Name)
		for _, mode := range f.Scenario.Modes {
			if !slices.Contains(modes, mode) {
				modes = append(modes, mode)
			}
		}
	}
	if len(broken) == 0 {
		return nil
	}
	return fmt.Errorf("%s: not as the service relies on it; do not use it here in mode %s", strings.Join(broken, ", "), strings.Join(modes, ", "))
}

// word is the verdict on one scenario.
func (f Finding) word() string {
	switch {
	case f.Skipped != "":
		return "skipped"
	case f.Holds():
		return "holds"
	case len(f.Scenario.Modes) == 0:
		return "differs" // and no mode relies on it
	}
	return "BROKEN"
}

// WriteTable writes findings for people: a line each, and below what was not as
// claimed.
func WriteTable(w io.Writer, findings []Finding) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SCENARIO\tSEEN\tMODES THAT RELY ON IT")
	for _, f := range findings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Scenario.Name, f.word(), f.Scenario.relied())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, f := range findings {
		if f.Holds() {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s: %s\n  %s\n", f.Scenario.Name, f.Scenario.Claim, f.Fault+f.Skipped); err != nil {
			return err
		}
	}
	return nil
}

func (c Scenario) relied() string {
	if len(c.Modes) == 0 {
		return "none"
	}
	return strings.Join(c.Modes, ", ")
}

// WriteMarkdown writes findings as docs/lab.md has them: each scenario, and what
// was seen.
func WriteMarkdown(w io.Writer, findings []Finding) error {
	if _, err := io.WriteString(w, preface); err != nil {
		return err
	}
	for _, f := range findings {
		fmt.Fprintf(w, "\n## %s\n\n%s\n\nRelied on by: %s. Seen: %s.\n", f.Scenario.Name, f.Scenario.Claim, f.Scenario.relied(), f.word())
		if !f.Holds() {
			fmt.Fprintf(w, "\n%s\n", f.Fault+f.Skipped)
		}
		if f.Skipped != "" {
			continue
		}
		if _, err := io.WriteString(w, "\n```text\n"); err != nil {
			return err
		}
		if err := Timeline(w, f); err != nil {
			return err
		}
		if _, err := io.WriteString(w, "```\n"); err != nil {
			return err
		}
	}
	return nil
}

const preface = `# The lock lab

What row locks do, as seen. ` + "`ledger lab`" + ` carries out every scenario below on a database, and this page is its output
(` + "`ledger lab --format markdown`" + `), so what it says is what happened. Time runs downwards, with a column for each session.
` + "`->`" + ` is what a statement returned: columns apart by a space, rows by a comma.

To certify another database before it is trusted with money: ` + "`ledger lab --database-url postgres://…`" + `. It exits with 1
when something does not hold that a mode of the service relies on, and names the modes. What no mode relies on may
differ.
`

type finding struct {
	Scenario string   `json:"scenario"`
	Claim    string   `json:"claim"`
	Modes    []string `json:"modes"`
	Holds    bool     `json:"holds"`
	Fault    string   `json:"fault,omitempty"`
	Skipped  string   `json:"skipped,omitempty"`
	Steps    []seen   `json:"steps"`
}

type seen struct {
	Session string `json:"session"`
	Does    string `json:"does"`
	Seen    string `json:"seen"`
}

// WriteJSON writes findings for programs.
func WriteJSON(w io.Writer, findings []Finding) error {
	all := []finding{}
	for _, f := range findings {
		out := finding{Scenario: f.Scenario.Name, Claim: f.Scenario.Claim, Modes: f.Scenario.Modes, Holds: f.Holds(), Fault: f.Fault, Skipped: f.Skipped, Steps: []seen{}}
		if out.Modes == nil {
			out.Modes = []string{}
		}
		for i, text := range f.Seen {
			step := f.Scenario.Steps[i]
			out.Steps = append(out.Steps, seen{Session: step.Session, Does: step.describe(), Seen: text})
		}
		all = append(all, out)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(struct {
		Passed   bool      `json:"passed"`
		Findings []finding `json:"findings"`
	}{Verdict(findings) == nil, all})
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
	Output  string        `xml:"system-out,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
}

// WriteJUnit writes findings for build servers. What differs, and no mode
// relies on, is no failure there.
func WriteJUnit(w io.Writer, findings []Finding) error {
	suite := junitSuite{Name: "ledger lab", Tests: len(findings)}
	for _, f := range findings {
		c := junitCase{Name: f.Scenario.Name}
		switch f.word() {
		case "BROKEN":
			suite.Failures++
			c.Failure = &junitMessage{Message: f.Fault}
		case "skipped":
			suite.Skipped++
			c.Skipped = &junitMessage{Message: f.Skipped}
		case "differs":
			c.Output = f.Fault
		}
		suite.Cases = append(suite.Cases, c)
	}
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

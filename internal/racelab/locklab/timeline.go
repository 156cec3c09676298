package locklab

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Timeline writes what was seen of a scenario, a column for each session and time
// downwards: each statement, what came of it, and where it waited.
func Timeline(w io.Writer, f Finding) error {
	names := f.Scenario.sessions()
	const width = 46
	line := func(column int, text string) string {
		cells := make([]string, len(names))
		cells[column] = text
		for i := range cells {
			cells[i] = fmt.Sprintf("%-*s", width, cells[i])
		}
		return strings.TrimRight(strings.Join(cells, "  "), " ")
	}
	var lines []string
	header := make([]string, len(names))
	for i, name := range names {
		header[i] = fmt.Sprintf("%-*s", width, "session "+name)
	}
	lines = append(lines, strings.TrimRight(strings.Join(header, "  "), " "))
	for i, step := range f.Scenario.Steps[:len(f.Seen)] {
		column := slices.Index(names, step.Session)
		for _, text := range wrap(step.shown(), width) {
			lines = append(lines, line(column, text))
		}
		switch seen := f.Seen[i]; {
		case seen == "waits":
			lines = append(lines, line(column, "... waits"))
		case !plain(step, seen):
			for _, text := range wrap("-> "+seen, width) {
				lines = append(lines, line(column, text))
			}
		}
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// WriteTimelines writes findings one below the other, each as a timeline.
func WriteTimelines(w io.Writer, findings []Finding) error {
	for i, f := range findings {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s: %s\n\n", f.Scenario.Name, f.Scenario.Claim)
		if f.Skipped == "" {
			if err := Timeline(w, f); err != nil {
				return err
			}
		}
		if !f.Holds() {
			if _, err := fmt.Fprintf(w, "\n%s: %s\n", f.word(), f.Fault+f.Skipped); err != nil {
				return err
			}
		}
	}
	return nil
}

// sessions are those of c, in the order of their names.
func (c Scenario) sessions() []string {
	var names []string
	for _, s := range c.Steps {
		if !slices.Contains(names, s.Session) {
			names = append(names, s.Session)
		}
	}
	slices.Sort(names)
	return names
}

// shown is what a reader sees s do; its waits and ends are what was seen.
func (s Step) shown() string {
	switch s.Act {
	case Run, Block:
		return s.SQL
	case Collide:
		return "deadlock with session " + s.SQL
	case Vanish:
		return "its connection is cut"
	case Lose:
		return "(idle)"
	}
	return ""
}

// plain reports whether what was seen says no more than that s was done.
func plain(s Step, seen string) bool {
	return s.Act == Vanish || s.Act == Run && s.Want == "" && s.State == "" && !strings.HasPrefix(seen, "error")
}

// wrap breaks text at spaces into lines of at most width, or longer words.
func wrap(text string, width int) []string {
	var lines []string
	for _, word := range strings.Fields(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

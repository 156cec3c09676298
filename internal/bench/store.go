package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// A Store keeps results between runs of the program. The zero value keeps none.
type Store struct {
	path    string
	results *[]Result
}

// OpenStore reads the results in a file of JSON lines, which need not be there.
// Half a line at its end is what a run that was cut off left, and is removed.
func OpenStore(path string) (Store, error) {
	s := Store{path: path, results: &[]Result{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("open the results: %w", err)
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	for line := range bytes.Lines(text[:whole]) {
		var r Result
		if err := json.Unmarshal(line, &r); err != nil {
			return s, fmt.Errorf("read the results in %s: %w", path, err)
		}
		*s.results = append(*s.results, r)
	}
	if whole < len(text) {
		if err := os.Truncate(path, int64(whole)); err != nil {
			return s, fmt.Errorf("remove half a result: %w", err)
		}
	}
	return s, nil
}

// Find returns the result of a cell in a round, measured under the same
// conditions. Where money was lost that must not be, it counts as none.
func (s Store) Find(cell Cell, c Conditions, round int) (Result, bool) {
	if s.results == nil {
		return Result{}, false
	}
	for _, r := range *s.results {
		if r.Cell == cell && r.Conditions == c && r.Round == round && (mayLose(r.Mode) || len(r.Verdict.Findings) == 0) {
			return r, true
		}
	}
	return Result{}, false
}

// Add appends a result.
func (s Store) Add(r Result) error {
	if s.results == nil {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("keep a result: %w", err)
	}
	file, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("keep a result: %w", err)
	}
	_, err = file.Write(append(line, '\n'))
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("keep a result: %w", err)
	}
	*s.results = append(*s.results, r)
	return nil
}

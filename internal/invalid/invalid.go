// Package invalid collects what is wrong with a caller's input, all of it at
// once, and holds the rules that every text and metadata obeys. No I/O.
package invalid

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of what callers may attach. The database checks some of them again.
const (
	MaxName          = 200 // characters
	MaxDescription   = 500 // characters
	MaxMetadata      = 16  // members
	MaxMetadataKey   = 40  // characters
	MaxMetadataValue = 500 // characters
)

// MaxFaults is how many faults are told at once.
const MaxFaults = 100

// A Fault is one thing that is wrong with one field.
type Fault struct {
	Field  string // as it is named in JSON, or a query parameter or header
	Detail string // a sentence without its subject: "must be positive"
}

// An Error is an input that was refused, with every fault of it. Nothing was
// done.
type Error struct{ Faults []Fault }

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("invalid input")
	for i, f := range e.Faults {
		b.WriteString([]string{": ", "; "}[min(i, 1)])
		b.WriteString(f.Field + " " + f.Detail)
	}
	return b.String()
}

// A Check collects faults. Its zero value has none.
type Check struct{ faults []Fault }

// Add notes a fault, until there are MaxFaults. A field's first fault is the one
// that counts: what is found later usually follows from it.
func (c *Check) Add(field, format string, args ...any) {
	if len(c.faults) == MaxFaults {
		return
	}
	for _, f := range c.faults {
		if f.Field == field {
			return
		}
	}
	c.faults = append(c.faults, Fault{field, fmt.Sprintf(format, args...)})
}

// Join notes the faults of err and returns nil, or returns an error of any
// other kind as it is.
func (c *Check) Join(err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	for _, f := range e.Faults {
		c.Add(f.Field, "%s", f.Detail)
	}
	return nil
}

// Within notes the faults of a part of the input, whose fields are named below
// field: "transfers/3" and "amount" make "transfers/3/amount".
func (c *Check) Within(field string, part Check) {
	for _, f := range part.faults {
		c.Add(field+"/"+f.Field, "%s", f.Detail)
	}
}

// Err returns an [*Error] with the faults noted so far, or nil.
func (c *Check) Err() error {
	if len(c.faults) == 0 {
		return nil
	}
	return &Error{c.faults}
}

// Text notes a fault when s is longer than limit characters, is not UTF-8, or
// has a NUL, which PostgreSQL's text cannot hold.
func (c *Check) Text(field, s string, limit int) {
	switch {
	case !utf8.ValidString(s):
		c.Add(field, "must be valid UTF-8")
	case strings.ContainsRune(s, 0):
		c.Add(field, "must not contain U+0000")
	case utf8.RuneCountInString(s) > limit:
		c.Add(field, "must be at most %d characters", limit)
	}
}

// Metadata notes a fault when m has too many members, an empty key, or a key
// or value that [Check.Text] would not pass.
func (c *Check) Metadata(field string, m map[string]string) {
	if len(m) > MaxMetadata {
		c.Add(field, "must have at most %d members", MaxMetadata)
	}
	for _, key := range slices.Sorted(maps.Keys(m)) { // so that equal inputs have equal errors
		if key == "" {
			c.Add(field, "must not have an empty key")
		}
		c.Text(field, key, MaxMetadataKey)
		c.Text(field+"/"+key, m[key], MaxMetadataValue)
	}
}

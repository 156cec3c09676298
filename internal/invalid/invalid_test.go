package invalid_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowlock/ledger/internal/invalid"
)

func TestAllFaultsComeAtOnceAndAFieldHasItsFirst(t *testing.T) {
	t.Parallel()
	var c invalid.Check
	c.Add("amount", "must be greater than %d", 0)
	c.Add("currency", "is required")
	c.Add("amount", "must be smaller")
	err := fmt.Errorf("read the body: %w", c.Err())

	var got *invalid.Error
	if !errors.As(err, &got) {
		t.Fatalf("error = %v, want an *invalid.Error", err)
	}
	want := []invalid.Fault{{"amount", "must be greater than 0"}, {"currency", "is required"}}
	if diff := cmp.Diff(want, got.Faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if got, want := got.Error(), "invalid input: amount must be greater than 0; currency is required"; got != want {
		t.Errorf("error = %q, want %q", got, want)
	}
}

func TestACheckWithoutFaultsIsNil(t *testing.T) {
	t.Parallel()
	var c invalid.Check
	if err := c.Err(); err != nil {
		t.Errorf("error = %v, want nil", err)
	}
}

func TestJoinTakesFaultsAndLeavesOtherErrors(t *testing.T) {
	t.Parallel()
	var c invalid.Check
	other := errors.New("the disk is full")
	if err := c.Join(other); err != other {
		t.Errorf("Join(%v) = %v, want it back", other, err)
	}
	if err := c.Join(nil); err != nil {
		t.Errorf("Join(nil) = %v, want nil", err)
	}
	joined := &invalid.Error{Faults: []invalid.Fault{{"name", "is 100% too long"}}}
	if err := c.Join(fmt.Errorf("validate: %w", joined)); err != nil {
		t.Errorf("Join of faults = %v, want nil", err)
	}
	if diff := cmp.Diff(joined, c.Err()); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestTextIsCountedInCharacters(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, why string }{
		{"", ""},
		{"four", ""},
		{"äöüß", ""},
		{"🏦🏦🏦🏦", ""},
		{"five!", "at most 4 characters"},
		{"äöüßé", "at most 4 characters"},
		{"a\x00b", "U+0000"},
		{"\xff", "UTF-8"},
		{"\xed\xa0\x80", "UTF-8"}, // a lone surrogate
	} {
		var c invalid.Check
		c.Text("name", tt.text, 4)
		err := c.Err()
		if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
			t.Errorf("Text(%q) = %v, want %q", tt.text, err, tt.why)
		}
	}
}

func TestMetadataIsBounded(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range 17 {
		many[fmt.Sprint("key", i)] = "value"
	}
	for _, tt := range []struct {
		name     string
		metadata map[string]string
		want     []invalid.Fault
	}{
		{"none", nil, nil},
		{"at the limits", map[string]string{strings.Repeat("k", 40): strings.Repeat("v", 500)}, nil},
		{"too many", many, []invalid.Fault{{"metadata", "must have at most 16 members"}}},
		{"empty key", map[string]string{"": "v"}, []invalid.Fault{{"metadata", "must not have an empty key"}}},
		{"long key", map[string]string{strings.Repeat("k", 41): "v"}, []invalid.Fault{{"metadata", "must be at most 40 characters"}}},
		{"long values, in the order of their keys", map[string]string{"b": strings.Repeat("v", 501), "a": "a\x00", "c": "fine"},
			[]invalid.Fault{{"metadata/a", "must not contain U+0000"}, {"metadata/b", "must be at most 500 characters"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var c invalid.Check
			c.Metadata("metadata", tt.metadata)
			var got *invalid.Error
			if errors.As(c.Err(), &got) != (tt.want != nil) {
				t.Fatalf("error = %v, want faults %v", c.Err(), tt.want)
			}
			if got != nil {
				if diff := cmp.Diff(tt.want, got.Faults); diff != "" {
					t.Errorf("faults (-want +got):\n%s", diff)
				}
			}
		})
	}
}

package idempotency_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/invalid"
)

func TestKeysArePrintableASCII(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key  string
		want bool
	}{
		{"k", true},
		{"0190a6f0-3c1e-7000-8000-000000000001", true},
		{" !~", true},
		{strings.Repeat("k", 255), true},
		{"", false},
		{strings.Repeat("k", 256), false},
		{strings.Repeat("k", 10_000), false},
		{"a\tb", false},
		{"a\x00", false},
		{"\x7f", false},
		{"ü", false},
		{"\xff", false},
	} {
		var c invalid.Check
		idempotency.Key{Principal: "p", Value: tt.key}.Check(&c)
		var faults *invalid.Error
		if got := c.Err() == nil; got != tt.want {
			t.Errorf("key %.20q passes: %v, want %v", tt.key, got, tt.want)
		} else if !got && (!errors.As(c.Err(), &faults) || faults.Faults[0].Field != "Idempotency-Key") {
			t.Errorf("key %.20q: error = %v, want a fault of the header", tt.key, c.Err())
		}
	}
}

func TestFingerprintsDoNotRunTogether(t *testing.T) {
	t.Parallel()
	lists := [][]string{
		{""}, {"", ""}, {"", "", ""},
		{"ab"}, {"ab", ""}, {"", "ab"}, {"a", "b"}, {"a", "", "b"}, {"b", "a"},
		{"a", "bc"}, {"ab", "c"}, {"abc"}, {"a\x01b"}, {"a", "\x01b"},
		{strings.Repeat("x", 127)}, {strings.Repeat("x", 128)}, {strings.Repeat("x", 127), "x"},
		{"POST /v1/transfers", "a"}, {"POST /v1/debits", "a"},
	}
	seen := map[idempotency.Fingerprint][]string{}
	for _, list := range lists {
		sum := idempotency.Sum(list[0], list[1:]...)
		if other, ok := seen[sum]; ok {
			t.Errorf("%q and %q have one fingerprint", list, other)
		}
		seen[sum] = list
		if again := idempotency.Sum(list[0], list[1:]...); again != sum {
			t.Errorf("%q has two fingerprints", list)
		}
	}
}

func TestMapsHaveOneFormWhateverTheirOrder(t *testing.T) {
	t.Parallel()
	a, b := map[string]string{}, map[string]string{}
	for i := range 100 {
		a[fmt.Sprint(i)] = "v"
		b[fmt.Sprint(99-i)] = "v"
	}
	if idempotency.SumMap(a) != idempotency.SumMap(b) {
		t.Error("one map has two forms")
	}
	if idempotency.SumMap(nil) != idempotency.SumMap(map[string]string{}) {
		t.Error("nil and the empty map differ, want the same: both are no metadata")
	}
	forms := map[string]map[string]string{}
	for _, m := range []map[string]string{{}, {"": ""}, {"a": "b"}, {"b": "a"}, {"ab": ""}, {"": "ab"}, {"a": "b", "c": "d"}, {"a": "bcd"}, {"a": "", "b": ""}} {
		form := idempotency.SumMap(m)
		if other, ok := forms[form]; ok {
			t.Errorf("%q and %q have one form", m, other)
		}
		forms[form] = m
	}
}

func TestClaimsAreQueuedInTheOrderOfTheirBytes(t *testing.T) {
	t.Parallel()
	var claims []*idempotency.Claim
	for _, key := range [][2]string{{"b", "A"}, {"a", "b"}, {"a", "B"}, {"a", "_"}, {"B", "z"}, {"a", "-"}, {"a", "b1"}, {"", "~"}} {
		claims = append(claims, &idempotency.Claim{Key: idempotency.Key{Principal: key[0], Value: key[1]}, ResourceID: uuid.New()})
	}
	b := &pgx.Batch{}
	idempotency.QueueClaims(b, claims)
	arguments := b.QueuedQueries[0].Arguments
	var got [][2]string
	for i, principal := range arguments[0].(pgtype.FlatArray[string]) {
		got = append(got, [2]string{principal, arguments[1].(pgtype.FlatArray[string])[i]})
	}
	want := [][2]string{{"", "~"}, {"B", "z"}, {"a", "-"}, {"a", "B"}, {"a", "_"}, {"a", "b"}, {"a", "b1"}, {"b", "A"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order of the claims (-want +got):\n%s", diff)
	}
}

// Whatever the fields: no two lists have one fingerprint, and no two maps.
func FuzzSum(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add("a", "\x01b", "a\x01", "b")
	f.Add("", "", "", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		equal := a == c && b == d
		if got := idempotency.Sum("r", a, b) == idempotency.Sum("r", c, d); got != equal {
			t.Errorf("the sums of %q, %q and %q, %q are equal: %v", a, b, c, d, got)
		}
		if idempotency.Sum(a, b) == idempotency.Sum(a, b, "") || idempotency.Sum("r", a, b) == idempotency.Sum("r", a+b) {
			t.Errorf("the sums of lists of %q and %q that differ are equal", a, b)
		}
		if got := idempotency.SumMap(map[string]string{a: b}) == idempotency.SumMap(map[string]string{c: d}); got != equal {
			t.Errorf("the sums of maps %q: %q and %q: %q are equal: %v", a, b, c, d, got)
		}
	})
}

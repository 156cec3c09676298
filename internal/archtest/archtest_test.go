// Package archtest holds the house rules that a machine can check: who may
// import whom, and what may be done in one place only.
//
// The one idea: a rule is a value with sources that break it and sources that
// keep it, so that each rule is known to be able to fail. Start reading at
// [rules].
package archtest

import (
	"os"
	"testing"
	"testing/fstest"
)

// A rule finds faults in a tree of sources.
type rule struct {
	name  string
	check func(t *tree) (faults []string)

	breaks []fstest.MapFS // each a tree with at least one fault
	keeps  []fstest.MapFS // each a tree without any
}

// rules is the table of contents.
var rules = []rule{
	domainIsPure, httpKnowsNoDatabase, retryStandsAlone, testingIsForTests,
	transactionsInRetry, balancesInTransfer, statusInHTTP,
	sqlIsNamed, columnsAreNamed, errorsByCode,
}

// one is a tree with a single file of Go.
func one(path, text string) fstest.MapFS {
	return fstest.MapFS{path: {Data: []byte(text)}}
}

func TestRules(t *testing.T) {
	tree, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.files) < 20 {
		t.Fatalf("found %d files of Go: that is not the whole module", len(tree.files))
	}
	for _, r := range rules {
		for _, fault := range r.check(tree) {
			t.Errorf("%s: %s", r.name, fault)
		}
	}
}

func TestRulesCanFail(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			if len(r.breaks) == 0 || len(r.keeps) == 0 {
				t.Error("want sources that break the rule and sources that keep it")
			}
			for i, fsys := range r.breaks {
				if len(faultsIn(t, r, fsys)) == 0 {
					t.Errorf("bad source %d: no fault was found", i+1)
				}
			}
			for i, fsys := range r.keeps {
				for _, fault := range faultsIn(t, r, fsys) {
					t.Errorf("good source %d: %s", i+1, fault)
				}
			}
		})
	}
}

func faultsIn(t *testing.T, r rule, fsys fstest.MapFS) []string {
	t.Helper()
	tree, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return r.check(tree)
}

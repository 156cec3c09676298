// Package race races the real service, as a process of its own, in every mode
// (with groups and without, where it has them) and every scenario of package
// racelab, on real PostgreSQL.
//
//	go test ./tests/race -args -mode=none -rounds=3
//
// A mode that loses money passes when it lost some and fails when it did not,
// so the suite is known to be able to fail. Start reading at [TestRace].
package race

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rowlock/ledger/internal/racelab"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
)

var (
	modeFlag     = flag.String("mode", "all", "modes to race, separated by commas")
	scenarioFlag = flag.String("scenario", "all", "scenarios to race, separated by commas")
	roundsFlag   = flag.Int("rounds", 1, "how often each scenario runs in each mode")
	seedFlag     = flag.Uint64("seed", 1, "of the random scenarios")
)

func TestMain(m *testing.M) { testdb.Main(m) }

// parallel is how many races run at once: each has sixteen workers already,
// and sessions of its own that the server must have room for.
const parallel = 3

// TestRace is one test, so that one binary serves all of it and goes with it.
func TestRace(t *testing.T) {
	modes, scenarios := selected(t)
	start := racelab.ExecService(binary(t))
	turns := make(chan struct{}, parallel)
	var summary results
	t.Cleanup(func() { summary.log(t) })

	for _, v := range racelab.Variants(modes) {
		mode, err := transfer.ModeByName(v.Mode)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(v.Name, func(t *testing.T) {
			for _, s := range scenarios {
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel()
					defer takeTurn(turns)()
					for round := range *roundsFlag {
						result, err := lab(t, start).Race(t.Context(), v, s, round+1)
						summary.judge(t, err, result)
					}
				})
			}
			if !mode.LosesMoney {
				t.Run("kill-9", func(t *testing.T) {
					t.Parallel()
					defer takeTurn(turns)()
					result, err := lab(t, start).Crash(t.Context(), v, crashes**roundsFlag)
					summary.judge(t, err, result)
				})
			}
		})
	}
	t.Run("no-key-update", func(t *testing.T) {
		weaker := lab(t, start)
		weaker.Flags = []string{"--row-lock", "no-key-update"}
		all, err := weaker.Run(t.Context(), []string{transfer.Pessimistic.Name}, []*racelab.Scenario{racelab.LostUpdate, racelab.Opposite})
		summary.judge(t, err, all...)
	})
	t.Run("schemas", func(t *testing.T) {
		summary.judge(t, nil, raceInSchemas(t, start)...)
	})
	t.Run("controls", func(t *testing.T) {
		all, err := lab(t, start).Controls(t.Context())
		summary.judge(t, err, all...)
	})
}

// crashes is how often a service is killed.
const crashes = 5

// selected returns what the flags ask for.
func selected(t *testing.T) ([]string, []*racelab.Scenario) {
	t.Helper()
	scenarios, err := racelab.ScenariosByName(*scenarioFlag)
	if err != nil {
		t.Fatal(err)
	}
	if *modeFlag == "" || *modeFlag == "all" {
		return racelab.ModeNames(), scenarios
	}
	return strings.Split(*modeFlag, ","), scenarios
}

// binary is the service: the one that LEDGER_TEST_BINARY names, or one built
// here.
func binary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("LEDGER_TEST_BINARY"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "ledger")
	args := []string{"build", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	build := exec.CommandContext(t.Context(), "go", append(args, "github.com/rowlock/ledger/cmd/ledger")...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the service: %v\n%s", err, out)
	}
	return path
}

// lab is a laboratory whose every race has a database of its own, which goes
// with t.
func lab(t *testing.T, start racelab.Starter) *racelab.Lab {
	return &racelab.Lab{
		Start: start,
		Seed:  *seedFlag,
		Database: func(context.Context) (string, func(context.Context) error, error) {
			return testdb.URL(t), func(context.Context) error { return nil }, nil
		},
	}
}

func takeTurn(turns chan struct{}) (giveBack func()) {
	turns <- struct{}{}
	return func() { <-turns }
}

// results collects what is shown at the end.
type results struct {
	mu  sync.Mutex
	all []racelab.Result
}

// judge fails t for every failure, and keeps the results.
func (r *results) judge(t *testing.T, err error, all ...racelab.Result) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range all {
		for _, failure := range result.Failures {
			t.Error(failure)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, all...)
}

func (r *results) log(t *testing.T) {
	slices.SortStableFunc(r.all, func(a, b racelab.Result) int { return strings.Compare(a.Scenario, b.Scenario) })
	var table strings.Builder
	if err := racelab.WriteTable(&table, r.all); err != nil {
		t.Error(err)
	}
	t.Logf("\n%s", table.String())
}

// Package racelab races requests against a running ledger and looks whether
// the money is still there.
//
// Its one idea: a black box and a gate. The lab knows the service by HTTP
// alone, and the database by looking into it afterwards. The race is forced,
// not hoped for: the lab holds the contended rows until every worker is seen
// waiting for them, in the database or in a service that waits for many, and
// then lets go. The same gate serves every mode, so the
// mode that locks nothing certainly loses, and a suite that does not notice
// is known to be blind.
//
// Start reading at [Lab.Run]; the scenarios are values, listed in scenario.go.
package racelab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowlock/ledger/internal/transfer"
)

// A Lab runs scenarios.
type Lab struct {
	// Start starts a service.
	Start Starter

	// Database makes an empty place for one scenario in one mode, and what
	// removes it again. The removal is called with a context that outlives an
	// interrupt.
	Database func(ctx context.Context) (url string, drop func(context.Context) error, err error)

	Flags    []string       // further flags for every service; whoever does not wait for locks cannot pass the gate
	Rounds   int            // how often each scenario runs in each mode; 0 means once
	Seed     uint64         // of the random requests; every round has its own
	Progress func(Progress) // where not nil, is told of every start and end
}

// Progress says where [Lab.Run] is.
type Progress struct {
	Done, Total    int // races
	Mode, Scenario string
	Round          int
	Result         *Result // nil when the race begins
}

// Run races every scenario in every variant of the modes, one after the other,
// and returns the results so far, also with an error. The error says that the lab could not
// do its work (ctx ended, or no database was to be had); what went wrong in a
// race is in its result, and [Verdict] judges them all.
func (l *Lab) Run(ctx context.Context, modes []string, scenarios []*Scenario) ([]Result, error) {
	rounds := max(1, l.Rounds)
	variants := Variants(modes)
	p := Progress{Total: rounds * len(variants) * len(scenarios)}
	var results []Result
	for round := 1; round <= rounds; round++ {
		for _, scenario := range scenarios {
			for _, v := range variants {
				if err := ctx.Err(); err != nil {
					return results, err
				}
				p.Mode, p.Scenario, p.Round, p.Result = v.Name, scenario.Name, round, nil
				l.progress(p)
				result, err := l.Race(ctx, v, scenario, round)
				if err != nil {
					return results, fmt.Errorf("%s in mode %s: %w", scenario.Name, v.Name, err)
				}
				results = append(results, result)
				p.Done++
				p.Result = &result
				l.progress(p)
			}
		}
	}
	return results, nil
}

func (l *Lab) progress(p Progress) {
	if l.Progress != nil {
		l.Progress(p)
	}
}

// Race runs one scenario in one variant. Its error is as [Lab.Run]'s.
func (l *Lab) Race(ctx context.Context, v Variant, s *Scenario, round int) (result Result, err error) {
	m, err := transfer.ModeByName(v.Mode)
	if err != nil {
		return Result{}, err
	}
	err = l.withDatabase(ctx, func(url string) error {
		r := &race{lab: l, variant: v, mode: m, scenario: s, url: url, result: &result}
		result = Result{Scenario: s.Name, Mode: v.Name, Round: round, Answers: map[string]int{}, Resent: map[string]int{}}
		return r.run(ctx)
	})
	return result, err
}

const dropTimeout = 30 * time.Second

// withDatabase runs fn on a database of its own and drops it, whatever
// happened.
func (l *Lab) withDatabase(ctx context.Context, fn func(url string) error) (err error) {
	url, drop, err := l.Database(ctx)
	if err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
		defer cancel()
		err = errors.Join(err, drop(ctx))
	}()
	return fn(url)
}

// A Variant is a way to serve a mode.
type Variant struct {
	Name  string // in results
	Mode  string
	Flags []string // of `ledger serve`
}

// Variants returns how modes are raced: each as users run it, and the one that
// groups transfers also without, and locking one row at a time.
func Variants(modes []string) []Variant {
	var all []Variant
	for _, mode := range modes {
		all = append(all, Variant{Name: mode, Mode: mode})
		if mode == transfer.Pessimistic.Name {
			all = append(all,
				Variant{Name: mode + ", ungrouped", Mode: mode, Flags: []string{"--group-size", "1"}},
				Variant{Name: mode + ", row by row", Mode: mode, Flags: []string{"--account-lock", "row", "--workers", "0"}})
		}
	}
	return all
}

// ModeNames returns every mode, in the order of their table.
func ModeNames() []string {
	var names []string
	for _, m := range transfer.Modes() {
		names = append(names, m.Name)
	}
	return names
}

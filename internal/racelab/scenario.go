package racelab

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/shopspring/decimal"
)

// A Scenario is concurrent requests and what must have come of them, in every
// mode that does not lose money.
type Scenario struct {
	Name string
	Doc  string // one line, for the documentation and the table

	// Accounts are opened and funded before the race. All are in USD and pay
	// down to zero.
	Accounts []Account

	// Requests makes what is sent. The same random source makes the same
	// requests again.
	Requests func(r *rand.Rand) []Request

	// Workers send the requests, each one at a time. None of them passes the
	// gate before all of them wait at it, so there are at least as many
	// requests.
	Workers int

	// Gate names the accounts whose rows are held until every worker waits for
	// one of them: the accounts that the requests contend for.
	Gate []string

	// Services is how many processes serve one database; the workers take
	// turns. 0 means 1.
	Services int

	// Want counts the final answers by outcome: "201", "201 replayed", or a
	// problem's status and code.
	Want map[string]int

	// Balances are the final balances, by account. Nil means: as if every
	// request had been made.
	Balances map[string]string

	// Loses is what a mode without locks must lose, in all customers' balances
	// together. "" means: something.
	Loses string

	// KeepsAnyway marks a scenario in which a mode without locks loses nothing
	// either, because something else takes turns for it.
	KeepsAnyway bool
}

// An Account takes part in a scenario.
type Account struct {
	Name  string
	Funds string // "" for none
}

// A Request is one transfer that a scenario asks for.
type Request struct {
	Debit, Credit string // accounts by name; "" is the outside
	Amount        string
	Key           string // "": a key of its own
}

// scenarios is the table of contents. To add a scenario: write it in its
// family's file, add its line. Tests, `ledger race` and documents range over
// this table.
var scenarios = []*Scenario{
	LostUpdate, DoubleSpend, Opposite, Ring, Random, Hot, OneKey, TwoServices,
}

// Scenarios returns every scenario.
func Scenarios() []*Scenario { return scenarios }

// ScenariosByName returns the scenarios that a comma-separated list names.
// "all" and "" name every one.
func ScenariosByName(list string) ([]*Scenario, error) {
	if list == "" || list == "all" {
		return scenarios, nil
	}
	var chosen []*Scenario
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(scenarios, func(s *Scenario) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown scenario %q: it is one of %s", name, strings.Join(scenarioNames(), ", "))
		}
		chosen = append(chosen, scenarios[i])
	}
	return chosen, nil
}

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.Name)
	}
	return names
}

// balances returns the final balances that the scenario demands.
func (s *Scenario) balances(requests []Request) map[string]decimal.Decimal {
	want := map[string]decimal.Decimal{}
	if s.Balances != nil {
		for name, amount := range s.Balances {
			want[name] = decimal.RequireFromString(amount)
		}
		return want
	}
	for _, a := range s.Accounts {
		want[a.Name] = a.funds()
	}
	for _, r := range requests {
		amount := decimal.RequireFromString(r.Amount)
		want[r.Debit] = want[r.Debit].Sub(amount)
		want[r.Credit] = want[r.Credit].Add(amount)
	}
	delete(want, "")
	return want
}

func (a Account) funds() decimal.Decimal {
	if a.Funds == "" {
		return decimal.Zero
	}
	return decimal.RequireFromString(a.Funds)
}

// services is how many processes the scenario has.
func (s *Scenario) services() int { return max(1, s.Services) }

// requests is how many final answers there are.
func (s *Scenario) requests() int {
	total := 0
	for n := range maps.Values(s.Want) {
		total += n
	}
	return total
}

// repeat returns n requests like r.
func repeat(n int, r Request) []Request { return slices.Repeat([]Request{r}, n) }

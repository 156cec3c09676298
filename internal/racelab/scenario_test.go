package racelab

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/shopspring/decimal"
)

func TestScenariosAreSound(t *testing.T) {
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			requests := s.Requests(rand.New(rand.NewPCG(1, 1)))
			if len(requests) != s.requests() {
				t.Errorf("requests = %d, want as many as answers, %d", len(requests), s.requests())
			}
			if len(requests) < s.Workers || s.Workers%s.services() != 0 {
				t.Errorf("%d requests for %d workers on %d services", len(requests), s.Workers, s.services())
			}
			if again := s.Requests(rand.New(rand.NewPCG(1, 1))); !cmp.Equal(requests, again) {
				t.Error("the same seed makes other requests")
			}
			var names []string
			for _, a := range s.Accounts {
				names = append(names, a.Name)
			}
			for _, name := range s.Gate {
				if !slices.Contains(names, name) {
					t.Errorf("the gate names account %q, which the scenario does not open", name)
				}
			}
			for i, r := range requests {
				if !slices.Contains(s.Gate, r.Debit) && !slices.Contains(s.Gate, r.Credit) {
					t.Fatalf("request %d touches none of the gate's accounts", i)
				}
				if r.Debit == r.Credit {
					t.Fatalf("request %d has one account on both sides", i)
				}
			}
		})
	}
}

// Where every request is wanted, no order of them may overdraw an account.
func TestFundsSuffice(t *testing.T) {
	for _, s := range Scenarios() {
		requests := s.Requests(rand.New(rand.NewPCG(1, 1)))
		if s.Want["201"] != len(requests) {
			continue
		}
		paid := map[string]decimal.Decimal{}
		for _, r := range requests {
			paid[r.Debit] = paid[r.Debit].Add(decimal.RequireFromString(r.Amount))
		}
		for _, a := range s.Accounts {
			if paid[a.Name].GreaterThan(a.funds()) {
				t.Errorf("%s: account %s has %s and may have to pay %s first", s.Name, a.Name, a.funds(), paid[a.Name])
			}
		}
	}
}

func TestBalancesAreAsIfEveryRequestWasMade(t *testing.T) {
	s := &Scenario{Accounts: []Account{{Name: "a", Funds: "10.00"}, {Name: "b"}}}
	got := s.balances([]Request{{Debit: "a", Credit: "b", Amount: "3.00"}, {Debit: "b", Amount: "1.00"}, {Credit: "a", Amount: "0.50"}})
	if len(got) != 2 || got["a"].StringFixed(2) != "7.50" || got["b"].StringFixed(2) != "2.00" {
		t.Errorf("balances = %v, want a 7.50 and b 2.00", got)
	}
}

func TestScenariosByName(t *testing.T) {
	all, err := ScenariosByName("all")
	if err != nil || len(all) != len(Scenarios()) {
		t.Errorf("all = %d scenarios, %v", len(all), err)
	}
	two, err := ScenariosByName("ring,one-key")
	if err != nil || !slices.Equal(two, []*Scenario{Ring, OneKey}) {
		t.Errorf("two = %v, %v", two, err)
	}
	if _, err := ScenariosByName("rings"); err == nil {
		t.Error("an unknown name is accepted")
	}
}

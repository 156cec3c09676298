package racelab

import (
	"fmt"
	"math/rand/v2"

	"github.com/shopspring/decimal"
)

// Opposite deadlocks any ledger that locks the debit side first. The amounts
// of the two directions differ so much that losses in one cannot hide behind
// losses in the other.
var Opposite = &Scenario{
	Name:     "opposite",
	Doc:      "Transfers between two accounts in both directions at once: all are made, and nothing deadlocks.",
	Accounts: []Account{{Name: "left", Funds: "10000.00"}, {Name: "right", Funds: "10000.00"}},
	Requests: func(*rand.Rand) []Request {
		var all []Request
		for range 60 {
			all = append(all,
				Request{Debit: "left", Credit: "right", Amount: "100.00"},
				Request{Debit: "right", Credit: "left", Amount: "1.00"})
		}
		return all
	},
	Workers: 16,
	Gate:    []string{"left", "right"},
	Want:    map[string]int{"201": 120},
}

// Ring is the longer cycle: each account pays the next one.
var Ring = &Scenario{
	Name: "ring",
	Doc:  "Six accounts, each paying the next: all transfers are made, and nothing deadlocks.",
	Accounts: []Account{
		{Name: "r0", Funds: "5000.00"}, {Name: "r1", Funds: "5000.00"}, {Name: "r2", Funds: "5000.00"},
		{Name: "r3", Funds: "5000.00"}, {Name: "r4", Funds: "5000.00"}, {Name: "r5", Funds: "5000.00"},
	},
	Requests: func(*rand.Rand) []Request {
		var all []Request
		for i := range 120 {
			from, amount := i%6, "100.00"
			if from%2 == 1 {
				amount = "1.00"
			}
			all = append(all, Request{Debit: fmt.Sprintf("r%d", from), Credit: fmt.Sprintf("r%d", (from+1)%6), Amount: amount})
		}
		return all
	},
	Workers: 16,
	Gate:    []string{"r0", "r1", "r2", "r3", "r4", "r5"},
	Want:    map[string]int{"201": 120},
}

// Random has no pattern that a lucky lock order would fit. Sixteen workers
// hold thirty-two sides of ten accounts, so some of them share one.
var Random = &Scenario{
	Name:     "random",
	Doc:      "Random transfers among ten accounts: all are made, and every balance is exact.",
	Accounts: randomAccounts(),
	Requests: func(r *rand.Rand) []Request {
		var all []Request
		for range 150 {
			from := r.IntN(randomAccountCount)
			to := (from + 1 + r.IntN(randomAccountCount-1)) % randomAccountCount
			all = append(all, Request{
				Debit: randomAccountName(from), Credit: randomAccountName(to),
				Amount: decimal.New(1+r.Int64N(1000), -2).StringFixed(2),
			})
		}
		return all
	},
	Workers: 16,
	Gate:    randomAccountNames(),
	Want:    map[string]int{"201": 150},
}

const randomAccountCount = 10

func randomAccountName(i int) string { return fmt.Sprintf("a%d", i) }

func randomAccountNames() []string {
	var names []string
	for i := range randomAccountCount {
		names = append(names, randomAccountName(i))
	}
	return names
}

// randomAccounts can pay for every request, whoever has to.
func randomAccounts() []Account {
	var all []Account
	for _, name := range randomAccountNames() {
		all = append(all, Account{Name: name, Funds: "1500.00"})
	}
	return all
}

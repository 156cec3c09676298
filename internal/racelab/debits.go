package racelab

import "math/rand/v2"

// LostUpdate is the textbook case: whoever writes a balance that he computed
// from a stale one takes back everybody else's debit.
var LostUpdate = &Scenario{
	Name:     "lost-update",
	Doc:      "500.00 and twelve concurrent debits of 100.00: five are made, the account is empty.",
	Accounts: []Account{{Name: "payer", Funds: "500.00"}},
	Requests: func(*rand.Rand) []Request { return repeat(12, Request{Debit: "payer", Amount: "100.00"}) },
	Workers:  12,
	Gate:     []string{"payer"},
	Want:     map[string]int{"201": 5, "422 insufficient-funds": 7},
	Balances: map[string]string{"payer": "0.00"},
	Loses:    "1100.00", // all twelve read 500.00 and write 400.00
}

// DoubleSpend has everybody see the same last coin.
var DoubleSpend = &Scenario{
	Name:     "double-spend",
	Doc:      "Fifty concurrent debits, money for one: one is made.",
	Accounts: []Account{{Name: "payer", Funds: "100.00"}},
	Requests: func(*rand.Rand) []Request { return repeat(50, Request{Debit: "payer", Amount: "100.00"}) },
	Workers:  16,
	Gate:     []string{"payer"},
	Want:     map[string]int{"201": 1, "422 insufficient-funds": 49},
	Balances: map[string]string{"payer": "0.00"},
}

// TwoServices has the two replicas of a service race for one account: locks
// within a process would not help. Whom the five transfers pay is left to
// chance, so only the payer's balance is named.
var TwoServices = &Scenario{
	Name:     "two-services",
	Doc:      "Two processes on one database, 500.00 and twenty concurrent transfers of 100.00 to two payees: five are made.",
	Accounts: []Account{{Name: "payer", Funds: "500.00"}, {Name: "first"}, {Name: "second"}},
	Requests: func(*rand.Rand) []Request {
		var all []Request
		for range 10 {
			all = append(all,
				Request{Debit: "payer", Credit: "first", Amount: "100.00"},
				Request{Debit: "payer", Credit: "second", Amount: "100.00"})
		}
		return all
	},
	Workers:  16,
	Gate:     []string{"payer", "first", "second"},
	Services: 2,
	Want:     map[string]int{"201": 5, "422 insufficient-funds": 15},
	Balances: map[string]string{"payer": "0.00"},
}

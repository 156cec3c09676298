package racelab

import "math/rand/v2"

// Hot is the account that everybody pays into: no request may be refused, and
// none may be lost.
var Hot = &Scenario{
	Name:     "hot-account",
	Doc:      "A hundred concurrent credits to one account: every one is made.",
	Accounts: []Account{{Name: "hot"}},
	Requests: func(*rand.Rand) []Request { return repeat(100, Request{Credit: "hot", Amount: "1.00"}) },
	Workers:  16,
	Gate:     []string{"hot"},
	Want:     map[string]int{"201": 100},
}

// OneKey is the impatient client. The requests take turns at the key's unique
// index in every mode, so even a mode without locks keeps the money.
var OneKey = &Scenario{
	Name:     "one-key",
	Doc:      "A hundred concurrent requests with one idempotency key: one transfer, ninety-nine replays of it.",
	Accounts: []Account{{Name: "payer", Funds: "500.00"}},
	Requests: func(*rand.Rand) []Request {
		return repeat(100, Request{Debit: "payer", Amount: "100.00", Key: "one"})
	},
	Workers:     16,
	Gate:        []string{"payer"},
	Want:        map[string]int{"201": 1, "201 replayed": 99},
	Balances:    map[string]string{"payer": "400.00"},
	KeepsAnyway: true,
}

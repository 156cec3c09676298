package bench

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A Workload says between which accounts money moves.
type Workload struct {
	Name string
	Doc  string // one line, for --help and the documentation

	// Declines says that every other account is poor: it never has anything.
	Declines bool

	// Locks says that another session keeps one account locked meanwhile, as a
	// program of somebody else's might. What is asked of that account fails;
	// the latencies are those of all others.
	Locks bool

	// picker returns the choice of one client among n accounts, by their places:
	// two different ones, at least two being there.
	picker func(r *rand.Rand, n int) func() (debit, credit int)
}

// workloads is the table of contents. Flags, tests and docs range over it.
var workloads = []Workload{
	{Name: "uniform", Doc: "both sides are random accounts", picker: uniform},
	{Name: "hot", Doc: "one side is always the same account", picker: hot},
	{Name: "zipf", Doc: "some accounts are met far more often than others", picker: zipf},
	{Name: "pairs", Doc: "a few pairs of accounts pay each other, in both directions at once", picker: pairs},
	{Name: "declines", Doc: "half of the transfers are refused for want of funds", picker: declines, Declines: true},
	{Name: "locked", Doc: "both sides are random accounts, of which another session keeps one locked", picker: uniform, Locks: true},
}

// Workloads returns every workload.
func Workloads() []Workload { return workloads }

// WorkloadByName returns the workload of that name.
func WorkloadByName(name string) (Workload, error) {
	var names []string
	for _, w := range workloads {
		if w.Name == name {
			return w, nil
		}
		names = append(names, w.Name)
	}
	return Workload{}, fmt.Errorf("unknown workload %q: it is one of %s", name, strings.Join(names, ", "))
}

func uniform(r *rand.Rand, n int) func() (debit, credit int) {
	return func() (int, int) {
		debit := r.IntN(n)
		return debit, other(r, n, debit)
	}
}

// other returns a random account that is not this one.
func other(r *rand.Rand, n, than int) int {
	i := r.IntN(n - 1)
	if i >= than {
		i++
	}
	return i
}

// hotAccount is the place of the hot account: in the middle, so that it is
// neither always locked first nor always last.
func hotAccount(n int) int { return n / 2 }

// hot moves money both ways, so that no account runs dry.
func hot(r *rand.Rand, n int) func() (debit, credit int) {
	at := hotAccount(n)
	return func() (int, int) { return eitherWay(r, at, other(r, n, at)) }
}

func eitherWay(r *rand.Rand, a, b int) (debit, credit int) {
	if r.Uint64()&1 == 0 {
		return a, b
	}
	return b, a
}

const zipfExponent = 1.1

func zipf(r *rand.Rand, n int) func() (debit, credit int) {
	ranks := rand.NewZipf(r, zipfExponent, 1, uint64(n-1))
	return func() (int, int) {
		debit, credit := int(ranks.Uint64()), int(ranks.Uint64())
		if debit == credit {
			credit = other(r, n, debit)
		}
		return debit, credit
	}
}

// hotPairs is how many pairs pay each other: few enough that they meet.
const hotPairs = 8

func pairs(r *rand.Rand, n int) func() (debit, credit int) {
	return func() (int, int) {
		first := 2 * r.IntN(min(hotPairs, n/2))
		return eitherWay(r, first, first+1)
	}
}

// declines has rich accounts at the even places and poor ones at the odd. Only
// rich ones are paid, so the poor stay poor.
func declines(r *rand.Rand, n int) func() (debit, credit int) {
	rich := (n + 1) / 2
	return func() (int, int) {
		credit := r.IntN(rich)
		if r.Uint64()&1 == 0 || rich < 2 {
			return 2*r.IntN(n/2) + 1, 2 * credit
		}
		return 2 * other(r, rich, credit), 2 * credit
	}
}

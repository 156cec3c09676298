// Package locklab shows what row locks do, on any database that speaks
// PostgreSQL's protocol, and says whether what the service relies on holds
// there.
//
// Its one idea: a scenario is data. It names its sessions, their statements in
// order, which of them must wait, what each must return and which SQLSTATE must
// come. Start reading at [Scenario]; the scenarios are in the files named for their
// subjects, and run.go carries them out.
package locklab

import (
	"fmt"
	"slices"
	"strings"
)

// A Scenario is one claim about locks, and how it is seen.
type Scenario struct {
	Name   string   // as --explain takes it
	Claim  string   // in one sentence
	Modes  []string // of the service that rely on it; nil: none does
	Engine string   // that it is about; "" for PostgreSQL and its like
	Setup  string   // SQL that is run before, in an empty schema
	Steps  []Step
}

// A Step is one thing that happens. Rows are written as text: columns apart by
// a space, rows by a comma and a space, "no row" for none; what a statement
// without rows returns is its command tag.
type Step struct {
	Session string
	Act     Act
	SQL     string
	Want    string // what must be returned; "" for whatever
	State   string // the SQLSTATE that must come; "" for success
}

// An Act is what a session does in a step.
type Act int

// The acts.
const (
	Run     Act = iota // a statement, to its end
	Block              // a statement that must wait
	Wait               // what waits must wait still
	Resume             // what waits must end
	Collide            // what waits must end here or in the other session, as a deadlock's victim; the other goes on
	Vanish             // the connection is cut
	Lose               // the connection must be cut by the server
)

func run(session, sql string) Step           { return Step{Session: session, SQL: sql} }
func returns(session, sql, want string) Step { return Step{Session: session, SQL: sql, Want: want} }
func fails(session, sql, state string) Step  { return Step{Session: session, SQL: sql, State: state} }
func blocks(session, sql string) Step        { return Step{Session: session, Act: Block, SQL: sql} }
func waits(session string) Step              { return Step{Session: session, Act: Wait} }
func resumes(session, want string) Step      { return Step{Session: session, Act: Resume, Want: want} }
func isRefused(session, state string) Step   { return Step{Session: session, Act: Resume, State: state} }
func vanishes(session string) Step           { return Step{Session: session, Act: Vanish} }
func loses(session string) Step              { return Step{Session: session, Act: Lose} }

// collides is the end of a deadlock between session and other.
func collides(session, other string) Step {
	return Step{Session: session, Act: Collide, SQL: other, State: "40P01"}
}

// safe are the modes that keep money.
var safe = []string{"pessimistic", "atomic", "optimistic", "serializable"}

// accounts are what most scenarios lock: two, of 500 and 300.
const accounts = `
	CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL, version int NOT NULL DEFAULT 0);
	INSERT INTO accounts (id, balance) VALUES (1, 500), (2, 300);`

// Scenarios returns all of them, in the order of the documentation.
func Scenarios() []Scenario {
	return slices.Concat(updates(), rowLocks(), waiting(), deadlocks(), snapshots(), keys(), queues(), contrasts())
}

// ScenariosByName returns those that names says, or all where it says none.
func ScenariosByName(names []string) ([]Scenario, error) {
	all := Scenarios()
	if len(names) == 0 {
		return all, nil
	}
	var chosen []Scenario
	for _, name := range names {
		i := slices.IndexFunc(all, func(c Scenario) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(namesOf(all), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func namesOf(scenarios []Scenario) []string {
	var names []string
	for _, c := range scenarios {
		names = append(names, c.Name)
	}
	return names
}

package locklab

import "slices"

// What a statement and a transaction see of what others commit meanwhile.

func snapshots() []Scenario {
	const (
		readSum  = `SELECT sum(balance) FROM accounts`
		fromOne  = `UPDATE accounts SET balance = balance - 600 WHERE id = 1`
		fromTwo  = `UPDATE accounts SET balance = balance - 600 WHERE id = 2`
		readBoth = `SELECT id, balance FROM accounts ORDER BY id`
	)
	// Each may take 600 as long as both accounts together have it.
	skew := func(level string, ends ...Step) []Step {
		return slices.Concat([]Step{
			run("A", "BEGIN ISOLATION LEVEL "+level),
			run("B", "BEGIN ISOLATION LEVEL "+level),
			returns("A", readSum, "800"),
			returns("B", readSum, "800"),
			run("A", fromOne),
			run("B", fromTwo),
			run("A", "COMMIT"),
		}, ends)
	}
	both := []Step{run("B", "COMMIT"), returns("A", readSum, "-400")}
	return []Scenario{{
		Name:  "write-skew-read-committed",
		Claim: "A rule across two accounts is broken at READ COMMITTED by two sessions that check it and write different rows.",
		Setup: accounts,
		Steps: skew("READ COMMITTED", both...),
	}, {
		Name:  "write-skew-repeatable-read",
		Claim: "REPEATABLE READ does not prevent write skew either.",
		Setup: accounts,
		Steps: skew("REPEATABLE READ", both...),
	}, {
		Name:  "write-skew-serializable",
		Claim: "SERIALIZABLE refuses the second of the two with 40001.",
		Modes: []string{"serializable"},
		Setup: accounts,
		Steps: skew("SERIALIZABLE", fails("B", "COMMIT", "40001"), returns("A", readSum, "200")),
	}, {
		Name:  "write-skew-locked",
		Claim: "Locking both accounts before the rule is checked prevents write skew at READ COMMITTED.",
		Modes: []string{"pessimistic"},
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("B", "BEGIN"),
			returns("A", readBoth+" FOR UPDATE", "1 500, 2 300"),
			blocks("B", readBoth+" FOR UPDATE"),
			run("A", fromOne),
			run("A", "COMMIT"),
			resumes("B", "1 -100, 2 300"),
			run("B", "ROLLBACK"),
			returns("A", readSum, "200"),
		},
	}, {
		Name:  "lock-with-aggregate",
		Claim: "A lock and an aggregate in one statement return a stale sum: the lock has waited, the sum is of before.",
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("A", "UPDATE accounts SET balance = 400 WHERE id = 1"),
			blocks("B", "WITH locked AS (SELECT id FROM accounts ORDER BY id FOR UPDATE) SELECT sum(balance) FROM accounts WHERE id IN (SELECT id FROM locked)"),
			run("A", "COMMIT"),
			resumes("B", "800"),
			returns("B", readSum, "700"),
		},
	}, {
		Name:  "lock-then-aggregate",
		Claim: "Locking in one statement and reading in the next returns what is there.",
		Modes: []string{"pessimistic"},
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("A", "UPDATE accounts SET balance = 400 WHERE id = 1"),
			run("B", "BEGIN"),
			blocks("B", "SELECT id FROM accounts ORDER BY id FOR UPDATE"),
			run("A", "COMMIT"),
			resumes("B", "1, 2"),
			returns("B", readSum, "700"),
			run("B", "COMMIT"),
		},
	}}
}

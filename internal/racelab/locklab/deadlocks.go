package locklab

// Two sessions that each hold what the other one needs.

func deadlocks() []Scenario {
	const (
		lockOne  = `SELECT balance FROM accounts WHERE id = 1 FOR UPDATE`
		lockTwo  = `SELECT balance FROM accounts WHERE id = 2 FOR UPDATE`
		lockRule = `SELECT id FROM rules WHERE id = 1 FOR UPDATE`
	)
	return []Scenario{{
		Name:  "deadlock",
		Claim: "Two sessions that lock the same rows in opposite order end in a deadlock: 40P01 for one, and the other goes on.",
		Modes: []string{"pessimistic", "atomic", "optimistic", "serializable"},
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("B", "BEGIN"),
			returns("A", lockOne, "500"),
			returns("B", lockTwo, "300"),
			blocks("A", lockTwo),
			blocks("B", lockOne),
			collides("A", "B"),
			run("A", "ROLLBACK"),
			run("B", "ROLLBACK"),
		},
	}, {
		Name:  "ordered-locks",
		Claim: "With ORDER BY id rows are locked in that order, wherever they lie and in whatever order they are asked for, so there is no deadlock.",
		Modes: []string{"pessimistic"},
		Setup: `
	CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL);
	INSERT INTO accounts VALUES (2, 300), (1, 500);`,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", lockOne, "500"),
			run("B", "BEGIN"),
			blocks("B", `SELECT id, balance FROM accounts WHERE id IN (2, 1) ORDER BY id FOR UPDATE`),
			returns("C", lockTwo+" NOWAIT", "300"), // B waits for the first one, and does not hold the second
			returns("A", lockTwo, "300"),
			run("A", "COMMIT"),
			resumes("B", "1 500, 2 300"),
			run("B", "COMMIT"),
		},
	}, {
		Name:  "ordered-locks-row-by-row",
		Claim: "Rows that are locked one by one in the order of their ids, with a statement for each, are all held to the end, and there is no deadlock.",
		Modes: []string{"pessimistic"}, // --account-lock row
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", lockOne, "500"),
			run("B", "BEGIN"),
			blocks("B", lockOne),
			returns("A", lockTwo, "300"),
			run("A", "UPDATE accounts SET balance = balance - 100 WHERE id = 1"),
			run("A", "UPDATE accounts SET balance = balance + 100 WHERE id = 2"),
			run("A", "COMMIT"),
			resumes("B", "400"),
			returns("B", lockTwo, "400"),
			fails("C", lockOne+" NOWAIT", "55P03"),
			run("B", "COMMIT"),
		},
	}, {
		Name:  "deadlock-across-tables",
		Claim: "The order of rows is not enough: two tables that are locked in different orders deadlock, too.",
		Setup: accounts + `
	CREATE TABLE rules (id int PRIMARY KEY);
	INSERT INTO rules VALUES (1);`,
		Steps: []Step{
			run("A", "BEGIN"),
			run("B", "BEGIN"),
			returns("A", lockOne, "500"),
			returns("B", lockRule, "1"),
			blocks("A", lockRule),
			blocks("B", lockOne),
			collides("A", "B"),
			run("A", "ROLLBACK"),
			run("B", "ROLLBACK"),
		},
	}}
}

package locklab

// What makes an idempotency key take effect once, and a refusal leave nothing.

func keys() []Scenario {
	const (
		table = `
	CREATE TABLE keys (key text PRIMARY KEY, answer int NOT NULL);
	CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL);
	INSERT INTO accounts VALUES (1, 500);`
		claimOne = `INSERT INTO keys VALUES ('k', 1) ON CONFLICT DO NOTHING RETURNING answer`
		claimTwo = `INSERT INTO keys VALUES ('k', 2) ON CONFLICT DO NOTHING RETURNING answer`
		lockKey  = `SELECT answer FROM keys WHERE key = 'k' FOR UPDATE`
	)
	return []Scenario{{
		Name:  "key-is-taken",
		Claim: "Who claims a key that is being claimed waits, gets nothing when the first has committed, and then finds what it was used for.",
		Modes: []string{"pessimistic", "atomic", "optimistic"},
		Setup: table,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", claimOne, "1"),
			run("B", "BEGIN"),
			blocks("B", claimTwo),
			run("A", "COMMIT"),
			resumes("B", "no row"),
			returns("B", lockKey, "1"),
			run("B", "COMMIT"),
		},
	}, {
		Name:  "key-is-free-again",
		Claim: "Who claims a key that is being claimed gets it when the first has rolled back.",
		Modes: safe,
		Setup: table,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", claimOne, "1"),
			run("B", "BEGIN"),
			blocks("B", claimTwo),
			run("A", "ROLLBACK"),
			resumes("B", "2"),
			run("B", "COMMIT"),
			returns("A", lockKey, "2"),
		},
	}, {
		Name:  "key-is-taken-serializable",
		Claim: "At SERIALIZABLE who claims a key that is being claimed is refused with 40001 when the first has committed, and finds it when he starts again.",
		Modes: []string{"serializable"},
		Setup: table,
		Steps: []Step{
			run("A", "BEGIN ISOLATION LEVEL SERIALIZABLE"),
			returns("A", claimOne, "1"),
			run("B", "BEGIN ISOLATION LEVEL SERIALIZABLE"),
			blocks("B", claimTwo),
			run("A", "COMMIT"),
			isRefused("B", "40001"),
			run("B", "ROLLBACK"),
			returns("B", claimTwo, "no row"),
			returns("B", lockKey, "1"),
		},
	}, {
		Name:  "savepoint",
		Claim: "ROLLBACK TO SAVEPOINT takes back what was changed since, keeps what was before, and the transaction goes on.",
		Modes: []string{"atomic"},
		Setup: table,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", claimOne, "1"),
			run("A", "SAVEPOINT claimed"),
			returns("A", "UPDATE accounts SET balance = balance - 100 WHERE id = 1 RETURNING balance", "400"),
			run("A", "ROLLBACK TO SAVEPOINT claimed"),
			run("A", "COMMIT"),
			returns("B", "SELECT balance FROM accounts WHERE id = 1", "500"),
			returns("B", lockKey, "1"),
		},
	}, {
		Name:  "one-snapshot",
		Claim: "REPEATABLE READ sees one moment in all its statements: what verifies a ledger does not take a transfer for lost money.",
		Modes: safe,
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN ISOLATION LEVEL REPEATABLE READ"),
			returns("A", "SELECT balance FROM accounts WHERE id = 1", "500"),
			run("B", "BEGIN"),
			run("B", "UPDATE accounts SET balance = balance - 100 WHERE id = 1"),
			run("B", "UPDATE accounts SET balance = balance + 100 WHERE id = 2"),
			run("B", "COMMIT"),
			returns("A", "SELECT balance FROM accounts WHERE id = 2", "300"),
			run("A", "COMMIT"),
			returns("A", "SELECT balance FROM accounts WHERE id = 2", "400"),
		},
	}}
}

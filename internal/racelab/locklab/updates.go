package locklab

// Money is lost when two sessions read a balance, decide, and write.

const (
	readBalance   = `SELECT balance FROM accounts WHERE id = 1`
	lockBalance   = readBalance + ` FOR UPDATE`
	readVersion   = `SELECT balance, version FROM accounts WHERE id = 1`
	take100       = `UPDATE accounts SET balance = balance - 100 WHERE id = 1 AND balance >= 100 RETURNING balance`
	take400       = `UPDATE accounts SET balance = balance - 400 WHERE id = 1 AND balance >= 400 RETURNING balance`
	writeIfUnread = `UPDATE accounts SET balance = 400, version = version + 1 WHERE id = 1 AND version = 0 RETURNING balance, version`
)

func updates() []Scenario {
	return []Scenario{{
		Name:  "lost-update",
		Claim: "At READ COMMITTED, two sessions that read a balance and write what they computed lose one of the two changes: 500 - 100 - 100 = 400.",
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("B", "BEGIN"),
			returns("A", readBalance, "500"),
			returns("B", readBalance, "500"),
			run("A", "UPDATE accounts SET balance = 400 WHERE id = 1"),
			run("A", "COMMIT"),
			run("B", "UPDATE accounts SET balance = 400 WHERE id = 1"),
			run("B", "COMMIT"),
			returns("A", readBalance, "400"),
		},
	}, {
		Name:  "for-update",
		Claim: "With FOR UPDATE the second session waits before it reads, and then reads what the first one wrote.",
		Modes: safe,
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("B", "BEGIN"),
			returns("A", lockBalance, "500"),
			blocks("B", lockBalance),
			run("A", "UPDATE accounts SET balance = 400 WHERE id = 1"),
			run("A", "COMMIT"),
			resumes("B", "400"),
			run("B", "UPDATE accounts SET balance = 300 WHERE id = 1"),
			run("B", "COMMIT"),
			returns("A", readBalance, "300"),
		},
	}, {
		Name:  "atomic-update",
		Claim: "One UPDATE that computes the new balance itself waits for the row and then computes from what is there.",
		Modes: []string{"atomic"},
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", take100, "400"),
			blocks("B", take100),
			run("A", "COMMIT"),
			resumes("B", "300"),
		},
	}, {
		Name:  "atomic-condition",
		Claim: "The condition of an UPDATE that has waited is judged again, on the row as it is then.",
		Modes: []string{"atomic", "optimistic"},
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", take400, "100"),
			blocks("B", take400),
			run("A", "COMMIT"),
			resumes("B", "no row"),
			returns("A", readBalance, "100"),
		},
	}, {
		Name:  "version-check",
		Claim: "A write on the condition that the version is still the one that was read matches no row when somebody was faster.",
		Modes: []string{"optimistic"},
		Setup: accounts,
		Steps: []Step{
			returns("A", readVersion, "500 0"),
			returns("B", readVersion, "500 0"),
			run("A", "BEGIN"),
			returns("A", writeIfUnread, "400 1"),
			blocks("B", writeIfUnread),
			run("A", "COMMIT"),
			resumes("B", "no row"),
		},
	}, {
		Name:  "serializable-update",
		Claim: "At SERIALIZABLE the second writer is refused with 40001 and can start again.",
		Modes: []string{"serializable"},
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN ISOLATION LEVEL SERIALIZABLE"),
			run("B", "BEGIN ISOLATION LEVEL SERIALIZABLE"),
			returns("A", readBalance, "500"),
			returns("B", readBalance, "500"),
			run("A", "UPDATE accounts SET balance = 400 WHERE id = 1"),
			blocks("B", "UPDATE accounts SET balance = 400 WHERE id = 1"),
			run("A", "COMMIT"),
			isRefused("B", "40001"),
			run("B", "ROLLBACK"),
			run("B", "BEGIN ISOLATION LEVEL SERIALIZABLE"),
			returns("B", readBalance, "400"),
			run("B", "UPDATE accounts SET balance = 300 WHERE id = 1"),
			run("B", "COMMIT"),
			returns("A", readBalance, "300"),
		},
	}, {
		Name:  "check-before-lock",
		Claim: "Funds that are checked before the lock are overdrawn, although the row is locked later.",
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("B", "BEGIN"),
			returns("A", "SELECT balance >= 400 FROM accounts WHERE id = 1", "t"),
			returns("B", "SELECT balance >= 400 FROM accounts WHERE id = 1", "t"),
			run("A", "SELECT FROM accounts WHERE id = 1 FOR UPDATE"),
			run("A", "UPDATE accounts SET balance = balance - 400 WHERE id = 1"),
			run("A", "COMMIT"),
			run("B", "SELECT FROM accounts WHERE id = 1 FOR UPDATE"),
			returns("B", "UPDATE accounts SET balance = balance - 400 WHERE id = 1 RETURNING balance", "-300"),
			run("B", "COMMIT"),
		},
	}, {
		Name:  "check-after-lock",
		Claim: "Funds that are checked after the lock are there when they are taken: the second session sees 100 and refuses.",
		Modes: []string{"pessimistic"},
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("B", "BEGIN"),
			returns("A", "SELECT balance >= 400 FROM accounts WHERE id = 1 FOR UPDATE", "t"),
			blocks("B", "SELECT balance >= 400 FROM accounts WHERE id = 1 FOR UPDATE"),
			run("A", "UPDATE accounts SET balance = balance - 400 WHERE id = 1"),
			run("A", "COMMIT"),
			resumes("B", "f"),
			run("B", "ROLLBACK"),
			returns("A", readBalance, "100"),
		},
	}, {
		Name:  "retry-in-aborted-transaction",
		Claim: "A statement that is repeated in the transaction that failed is refused with 25P02: the whole transaction must be repeated.",
		Modes: []string{"serializable"},
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN ISOLATION LEVEL SERIALIZABLE"),
			run("B", "BEGIN ISOLATION LEVEL SERIALIZABLE"),
			returns("A", readBalance, "500"),
			returns("B", readBalance, "500"),
			run("A", "UPDATE accounts SET balance = 400 WHERE id = 1"),
			run("A", "COMMIT"),
			fails("B", "UPDATE accounts SET balance = 400 WHERE id = 1", "40001"),
			fails("B", "UPDATE accounts SET balance = 400 WHERE id = 1", "25P02"),
			run("B", "ROLLBACK"),
			run("B", "BEGIN ISOLATION LEVEL SERIALIZABLE"),
			returns("B", readBalance, "400"),
			run("B", "UPDATE accounts SET balance = 300 WHERE id = 1"),
			run("B", "COMMIT"),
			returns("A", readBalance, "300"),
		},
	}}
}

package locklab

// How long a session waits, in which order, and how it need not.

func waiting() []Scenario {
	return []Scenario{{
		Name:  "nowait",
		Claim: "NOWAIT is refused at once with 55P03 where somebody else holds the row.",
		Modes: []string{"pessimistic"},
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("A", lockBalance),
			fails("B", lockBalance+" NOWAIT", "55P03"),
			returns("B", "SELECT balance FROM accounts WHERE id = 2 FOR UPDATE NOWAIT", "300"),
			run("A", "COMMIT"),
		},
	}, {
		Name:  "lock-timeout",
		Claim: "With lock_timeout a wait for a row ends after its time with 55P03.",
		Modes: []string{"pessimistic", "atomic", "optimistic", "serializable"},
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("A", lockBalance),
			run("B", "BEGIN"),
			run("B", "SELECT set_config('lock_timeout', '50ms', true)"),
			fails("B", lockBalance, "55P03"),
			run("B", "ROLLBACK"),
			run("A", "COMMIT"),
		},
	}, {
		Name:  "statement-timeout",
		Claim: "statement_timeout ends a statement with 57014, also while it waits for a row.",
		Modes: []string{"pessimistic", "atomic", "optimistic", "serializable"},
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("A", lockBalance),
			run("B", "BEGIN"),
			run("B", "SELECT set_config('statement_timeout', '50ms', true)"),
			fails("B", lockBalance, "57014"),
			run("B", "ROLLBACK"),
			run("A", "COMMIT"),
		},
	}, {
		Name:  "skip-locked",
		Claim: "SKIP LOCKED returns other rows, fewer than LIMIT where there are not enough, and none where all are locked.",
		Modes: []string{"pessimistic"},
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", "SELECT id FROM accounts ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED", "1"),
			run("B", "BEGIN"),
			returns("B", "SELECT id FROM accounts ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED", "2"),
			returns("C", "SELECT id FROM accounts ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED", "no row"),
			run("A", "COMMIT"),
			run("B", "COMMIT"),
		},
	}, {
		Name:  "skip-locked-finds-no-account",
		Claim: "SKIP LOCKED must not be used to find an account: one that is locked looks like one that does not exist.",
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("A", lockBalance),
			returns("B", lockBalance+" SKIP LOCKED", "no row"),
			returns("B", readBalance, "500"),
			run("A", "COMMIT"),
		},
	}, {
		Name:  "wait-queue",
		Claim: "A long transaction makes everybody wait, and those who wait for its lock are served in the order in which they came.",
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", lockBalance, "500"),
			run("B", "BEGIN"),
			run("C", "BEGIN"),
			blocks("B", lockBalance),
			blocks("C", lockBalance),
			waits("B"),
			run("A", "COMMIT"),
			resumes("B", "500"),
			waits("C"),
			run("B", "COMMIT"),
			resumes("C", "500"),
			run("C", "COMMIT"),
		},
	}, {
		Name:  "idle-in-transaction-timeout",
		Claim: "idle_in_transaction_session_timeout ends a session that holds its locks and sleeps, and the next one goes on.",
		Modes: []string{"pessimistic", "atomic", "optimistic", "serializable"},
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("A", "SELECT set_config('idle_in_transaction_session_timeout', '100ms', true)"),
			run("A", lockBalance),
			returns("B", lockBalance, "500"),
			loses("A"),
		},
	}}
}

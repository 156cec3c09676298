package locklab

// What another engine does, for contrast: nothing of the service runs on it.

// MariaDB is the engine of scenarios that show InnoDB.
const MariaDB = "MariaDB"

func contrasts() []Scenario {
	const (
		table = `CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL);
	INSERT INTO accounts (id, balance) VALUES (10, 500), (20, 300);`
		lockTen = `SELECT balance FROM accounts WHERE id = 10 FOR UPDATE`
		lockGap = `SELECT balance FROM accounts WHERE id BETWEEN 11 AND 19 FOR UPDATE`
		fillGap = `INSERT INTO accounts (id, balance) VALUES (15, 0)`
	)
	return []Scenario{{
		Name:  "no-gap-lock",
		Claim: "PostgreSQL locks rows and no gaps: where FOR UPDATE found none, another session can insert one.",
		Setup: table,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", lockGap, "no row"),
			returns("B", fillGap, "INSERT 0 1"),
			returns("A", lockGap, "0"),
			run("A", "COMMIT"),
		},
	}, {
		Name:   "innodb-gap-lock",
		Claim:  "At its default level InnoDB locks the gap: where FOR UPDATE found no row, an INSERT of another session waits.",
		Engine: MariaDB,
		Setup:  table,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", lockGap, "no row"),
			blocks("B", fillGap),
			run("A", "COMMIT"),
			resumes("B", "done"),
		},
	}, {
		Name:   "innodb-nowait",
		Claim:  "MariaDB's NOWAIT is refused at once, with error 1205.",
		Engine: MariaDB,
		Setup:  table,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", lockTen, "500"),
			fails("B", lockTen+" NOWAIT", "1205"),
			run("A", "COMMIT"),
			returns("B", lockTen+" NOWAIT", "500"),
		},
	}, {
		Name:   "innodb-skip-locked",
		Claim:  "InnoDB's SKIP LOCKED returns other rows, and none where all are locked.",
		Engine: MariaDB,
		Setup:  table,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", lockTen, "500"),
			run("B", "BEGIN"),
			returns("B", "SELECT id FROM accounts ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED", "20"),
			returns("C", "SELECT id FROM accounts ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED", "no row"),
			run("A", "COMMIT"),
			run("B", "COMMIT"),
		},
	}}
}

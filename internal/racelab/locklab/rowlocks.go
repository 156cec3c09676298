package locklab

import (
	"fmt"
	"slices"
	"strings"
)

// What a locked row keeps out, and what it does not.

func rowLocks() []Scenario {
	return slices.Concat(locked(), matrix(), references(), joins())
}

func locked() []Scenario {
	scenarios := []Scenario{{
		Name:  "select-does-not-wait",
		Claim: "A plain SELECT does not wait for a locked row, and sees it as it was before.",
		Modes: safe,
		Setup: accounts,
		Steps: []Step{
			run("A", "BEGIN"),
			run("A", lockBalance),
			returns("B", readBalance, "500"),
			run("A", "UPDATE accounts SET balance = 400 WHERE id = 1"),
			returns("B", readBalance, "500"),
			run("A", "COMMIT"),
			returns("B", readBalance, "400"),
		},
	}}
	for _, s := range []struct{ name, sql, committed, rolledBack string }{
		{"update", "UPDATE accounts SET balance = balance + 1 WHERE id = 1 RETURNING balance", "401", "501"},
		{"delete", "DELETE FROM accounts WHERE id = 1 RETURNING balance", "400", "500"},
		{"for-update", lockBalance, "400", "500"},
	} {
		for end, want := range map[string]string{"COMMIT": s.committed, "ROLLBACK": s.rolledBack} {
			scenarios = append(scenarios, Scenario{
				Name: "locked-row-blocks-" + s.name + "-until-" + strings.ToLower(end),
				Claim: fmt.Sprintf("A locked row makes %s wait, which goes on after %s with the row as it is then.",
					map[string]string{"update": "an UPDATE", "delete": "a DELETE", "for-update": "another FOR UPDATE"}[s.name], end),
				Modes: map[string][]string{"update": safe, "for-update": safe}[s.name], // accounts are never deleted
				Setup: accounts,
				Steps: []Step{
					run("A", "BEGIN"),
					run("A", lockBalance),
					blocks("B", s.sql),
					run("A", "UPDATE accounts SET balance = 400 WHERE id = 1"),
					waits("B"),
					run("A", end),
					resumes("B", want),
				},
			})
		}
	}
	slices.SortStableFunc(scenarios[1:], func(a, b Scenario) int { return strings.Compare(a.Name, b.Name) })
	return scenarios
}

// The strengths of row locks, the strongest first.
var strengths = []string{"UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"}

// conflicts says which strengths cannot be held by two at once: table 13.3 of
// PostgreSQL's documentation.
func conflicts(a, b string) bool {
	return slices.Index(strengths, a)+slices.Index(strengths, b) <= 3
}

// matrix is every pair of strengths.
func matrix() []Scenario {
	var scenarios []Scenario
	for _, held := range strengths {
		for _, wanted := range strengths {
			c := Scenario{
				Name:  "for-" + dashed(held) + "-then-for-" + dashed(wanted),
				Claim: fmt.Sprintf("FOR %s lets another session's FOR %s through.", held, wanted),
				Setup: accounts,
				Steps: []Step{
					run("A", "BEGIN"),
					run("A", readBalance+" FOR "+held),
					returns("B", readBalance+" FOR "+wanted, "500"),
					run("A", "COMMIT"),
				},
			}
			if conflicts(held, wanted) {
				c.Claim = fmt.Sprintf("FOR %s makes another session's FOR %s wait.", held, wanted)
				c.Steps[2] = blocks("B", c.Steps[2].SQL)
				c.Steps = append(c.Steps, resumes("B", "500"))
			}
			if strings.Contains(held, "UPDATE") && strings.Contains(wanted, "UPDATE") {
				c.Modes = safe // --row-lock has both, and a change of status takes the stronger one in every mode
			}
			scenarios = append(scenarios, c)
		}
	}
	return scenarios
}

func dashed(strength string) string { return strings.ReplaceAll(strings.ToLower(strength), " ", "-") }

const parents = `
	CREATE TABLE parents (id int PRIMARY KEY, name text NOT NULL);
	CREATE TABLE children (id int PRIMARY KEY, parent_id int NOT NULL REFERENCES parents);
	INSERT INTO parents VALUES (1, 'one');`

// references are about foreign keys, whose check takes a lock of its own.
func references() []Scenario {
	const insertChild = `INSERT INTO children VALUES (1, 1) RETURNING id`
	var scenarios []Scenario
	add := func(name, says, lock string, wait bool) {
		c := Scenario{
			Name: name, Claim: says, Setup: parents,
			Steps: []Step{run("A", "BEGIN"), run("A", lock), returns("B", insertChild, "1"), run("A", "COMMIT")},
		}
		if wait {
			c.Steps[2] = blocks("B", insertChild)
			c.Steps = append(c.Steps, resumes("B", "1"))
		}
		scenarios = append(scenarios, c)
	}
	for _, s := range strengths {
		says := "A row locked FOR " + s + " can be referred to by another session's new row."
		if s == "UPDATE" {
			says = "A row locked FOR UPDATE cannot be referred to: the INSERT of a child row waits."
		}
		add("child-of-parent-for-"+dashed(s), says, "SELECT FROM parents WHERE id = 1 FOR "+s, s == "UPDATE")
	}
	add("child-of-updated-parent", "An UPDATE of other columns than the key leaves the row to be referred to.",
		"UPDATE parents SET name = 'uno' WHERE id = 1", false)
	scenarios = append(scenarios, Scenario{
		Name:  "child-of-parent-whose-key-changes",
		Claim: "An UPDATE of the key makes the INSERT of a child row wait, and refuses it when the old key is gone (23503).",
		Setup: parents,
		Steps: []Step{
			run("A", "BEGIN"),
			run("A", "UPDATE parents SET id = 2 WHERE id = 1"),
			blocks("B", insertChild),
			run("A", "COMMIT"),
			isRefused("B", "23503"),
		},
	})
	return scenarios
}

const owned = `
	CREATE TABLE owners (id int PRIMARY KEY, name text NOT NULL);
	CREATE TABLE accounts (id int PRIMARY KEY, owner_id int NOT NULL, balance int NOT NULL);
	INSERT INTO owners VALUES (1, 'one');
	INSERT INTO accounts VALUES (1, 1, 500);`

// joins are about what FOR UPDATE locks where a statement reads more than rows
// of one table.
func joins() []Scenario {
	const join = `SELECT a.id FROM accounts a JOIN owners o ON o.id = a.owner_id WHERE a.id = 1 FOR UPDATE`
	scenarios := []Scenario{{
		Name:  "for-update-of-a-join",
		Claim: "FOR UPDATE on a join locks the rows of both tables.",
		Setup: owned,
		Steps: []Step{
			run("A", "BEGIN"),
			run("A", join),
			fails("B", "SELECT FROM accounts WHERE id = 1 FOR UPDATE NOWAIT", "55P03"),
			fails("B", "SELECT FROM owners WHERE id = 1 FOR UPDATE NOWAIT", "55P03"),
			run("A", "COMMIT"),
		},
	}, {
		Name:  "for-update-of-one-table",
		Claim: "FOR UPDATE OF a on a join locks the rows of that table alone.",
		Setup: owned,
		Steps: []Step{
			run("A", "BEGIN"),
			run("A", join+" OF a"),
			fails("B", "SELECT FROM accounts WHERE id = 1 FOR UPDATE NOWAIT", "55P03"),
			returns("B", "SELECT id FROM owners WHERE id = 1 FOR UPDATE NOWAIT", "1"),
			run("A", "COMMIT"),
		},
	}}
	for _, s := range []struct{ name, what, sql string }{
		{"group-by", "GROUP BY", "SELECT id FROM accounts GROUP BY id FOR UPDATE"},
		{"distinct", "DISTINCT", "SELECT DISTINCT id FROM accounts FOR UPDATE"},
		{"aggregate", "an aggregate", "SELECT sum(balance) FROM accounts FOR UPDATE"},
		{"union", "UNION", "SELECT id FROM accounts UNION SELECT id FROM owners FOR UPDATE"},
	} {
		scenarios = append(scenarios, Scenario{
			Name:  "for-update-with-" + s.name,
			Claim: "FOR UPDATE together with " + s.what + " is refused (0A000): there is no row to lock.",
			Setup: owned,
			Steps: []Step{fails("A", s.sql, "0A000")},
		})
	}
	return scenarios
}

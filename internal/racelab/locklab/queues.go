package locklab

// How workers take rows from a queue.

const payments = `
	CREATE TABLE payments (id int PRIMARY KEY, status text NOT NULL DEFAULT 'queued', leased_until timestamptz);
	INSERT INTO payments (id) VALUES (1), (2), (3);`

func queues() []Scenario {
	const (
		findNext = `SELECT id FROM payments WHERE status = 'queued' ORDER BY id LIMIT 1`
		markOne  = `UPDATE payments SET status = 'done' WHERE id = 1`
		take     = `WITH next AS MATERIALIZED (SELECT id FROM payments WHERE status = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) ` +
			`UPDATE payments p SET status = 'done' FROM next WHERE p.id = next.id RETURNING p.id`
		flag  = `UPDATE payments SET status = 'processing' WHERE id = (SELECT id FROM payments WHERE status = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id`
		lease = `WITH next AS MATERIALIZED (SELECT id FROM payments WHERE status <> 'done' AND (leased_until IS NULL OR leased_until < clock_timestamp()) ` +
			`ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) ` +
			`UPDATE payments p SET status = 'processing', leased_until = clock_timestamp() + `
		leased = ` FROM next WHERE p.id = next.id RETURNING p.id`
	)
	return []Scenario{{
		Name:  "naive-dequeue",
		Claim: "To look for the next row and then to mark it, without a lock, lets two workers take the same one.",
		Setup: payments,
		Steps: []Step{
			returns("A", findNext, "1"),
			returns("B", findNext, "1"),
			returns("A", markOne, "UPDATE 1"),
			returns("B", markOne, "UPDATE 1"),
		},
	}, {
		Name:  "skip-locked-dequeue",
		Claim: "A claim with FOR UPDATE SKIP LOCKED in a materialized CTE gives each worker a row of its own, and nobody waits.",
		Setup: payments,
		Steps: []Step{
			run("A", "BEGIN"),
			run("B", "BEGIN"),
			returns("A", take, "1"),
			returns("B", take, "2"),
			run("A", "COMMIT"),
			run("B", "COMMIT"),
			returns("A", take, "3"),
			returns("B", take, "no row"),
		},
	}, {
		Name:  "subquery-exceeds-limit",
		Claim: "A claim in a plain subquery can take more rows than its LIMIT: a nested loop runs the subquery again for every row.",
		Setup: payments,
		Steps: []Step{
			run("A", "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_hashagg = off; SET enable_sort = off; SET enable_material = off"),
			returns("A", "UPDATE payments SET status = 'done' WHERE id IN (SELECT id FROM payments WHERE status = 'queued' LIMIT 1 FOR UPDATE SKIP LOCKED)", "UPDATE 3"),
		},
	}, {
		Name:  "flagged-row-is-stuck",
		Claim: "A row that was flagged and committed stays stuck when its worker dies.",
		Setup: payments + `DELETE FROM payments WHERE id > 1;`,
		Steps: []Step{
			returns("A", flag, "1"),
			vanishes("A"),
			returns("B", flag, "no row"),
			returns("B", "SELECT status FROM payments WHERE id = 1", "processing"),
		},
	}, {
		Name:  "locked-row-is-freed",
		Claim: "A row that is claimed by its lock alone is free again by itself when its worker dies.",
		Setup: payments + `DELETE FROM payments WHERE id > 1;`,
		Steps: []Step{
			run("A", "BEGIN"),
			returns("A", take, "1"),
			returns("B", take, "no row"),
			vanishes("A"),
			returns("B", take, "1"),
		},
	}, {
		Name:  "lease-ends",
		Claim: "A row that is claimed by a lease is free again when the lease has ended, and not before.",
		Setup: payments + `DELETE FROM payments WHERE id > 1;`,
		Steps: []Step{
			returns("A", lease+`interval '1 hour'`+leased, "1"),
			vanishes("A"),
			returns("B", lease+`interval '1 hour'`+leased, "no row"),
			run("B", "UPDATE payments SET leased_until = clock_timestamp() - interval '1 second'"),
			returns("B", lease+`interval '1 hour'`+leased, "1"),
		},
	}}
}

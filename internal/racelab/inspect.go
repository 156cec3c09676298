package racelab

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/money"
	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/transfer"
)

// queues are the modes in which whoever comes second waits for his turn: no
// conflict can exhaust their attempts.
var queues = map[string]bool{transfer.Pessimistic.Name: true, transfer.Atomic.Name: true}

// conflictsOf names the conflicts of each mode, as its metrics do. must is the
// one that workers who come through the gate together certainly have; without
// it, or with any other, the mode is not what its name says.
var conflictsOf = map[string]struct{ must, may string }{
	transfer.Pessimistic.Name:  {},
	transfer.Atomic.Name:       {may: "stale"}, // what stood in the way was gone at the second look
	transfer.Optimistic.Name:   {must: "stale"},
	transfer.Serializable.Name: {must: "40001"},
	transfer.None.Name:         {},
}

// checkConflicts looks whether the mode's own mechanism was at work, and no
// other.
func (r *race) checkConflicts() {
	expected, known := conflictsOf[r.mode.Name]
	if !known {
		return
	}
	for sqlstate, n := range r.conflicts {
		if n > 0 && sqlstate != expected.must && sqlstate != expected.may && sqlstate != deadlockDetected {
			r.fail("mode %s had %d conflicts %q, which it cannot have", r.mode.Name, n, sqlstate)
		}
	}
	if expected.must != "" && r.conflicts[expected.must] == 0 && !r.scenario.KeepsAnyway {
		r.fail("mode %s had no conflict %q, though its workers contended", r.mode.Name, expected.must)
	}
}

// checkOutcomes compares the answers with what the scenario wants.
func (r *race) checkOutcomes() {
	for _, a := range r.answers {
		r.result.Answers[a.outcome()]++
	}
	if n := r.result.Resent["contention"]; queues[r.mode.Name] && n > 0 {
		r.fail("mode %s answered contention %d times, and must never", r.mode.Name, n)
	}
	if !r.loses() && !maps.Equal(r.result.Answers, r.scenario.Want) {
		r.fail("answers = %s, want %s", outcomes(r.result.Answers), outcomes(r.scenario.Want))
	}
	first := map[string]answer{}
	for _, a := range r.answers {
		other, seen := first[a.key]
		if !seen {
			first[a.key] = a
		} else if a.status != other.status || !bytes.Equal(a.body, other.body) {
			r.fail("key %s was answered %d %s and %d %s", a.key, other.status, other.body, a.status, a.body)
		}
	}
}

// A stored row is what the database has under one key of the race.
type stored struct {
	key           string
	resource      uuid.UUID
	refused       bool
	id            *uuid.UUID // nil: there is no transfer
	debit, credit *uuid.UUID
	amount        *decimal.Decimal
	debitAfter    *decimal.Decimal
	creditAfter   *decimal.Decimal
}

const selectStoredSQL = `
	SELECT k.key, k.resource_id, k.refusal IS NOT NULL,
	       t.id, t.debit_account_id, t.credit_account_id, t.amount, t.debit_balance_after, t.credit_balance_after
	  FROM idempotency_keys k
	  LEFT JOIN transfers t ON t.id = k.resource_id
	 WHERE NOT starts_with(k.key, $1)`

func scanStored(row pgx.CollectableRow) (s stored, err error) {
	return s, row.Scan(&s.key, &s.resource, &s.refused, &s.id, &s.debit, &s.credit, &s.amount, &s.debitAfter, &s.creditAfter)
}

const countKeylessSQL = `
	SELECT count(*)
	  FROM transfers t
	 WHERE NOT EXISTS (SELECT FROM idempotency_keys k WHERE k.resource_id = t.id)`

// checkStored compares what was answered with what the database has, key by
// key and in both directions, and the balances with the exact ones.
func (r *race) checkStored(ctx context.Context) error {
	rows, _ := r.db.Query(ctx, selectStoredSQL, setupPrefix)
	all, err := pgx.CollectRows(rows, scanStored)
	if err != nil {
		return fmt.Errorf("read what is stored: %w", err)
	}
	byKey := map[string]stored{}
	for _, s := range all {
		byKey[s.key] = s
	}
	answered := map[string]bool{}
	for _, a := range r.answers {
		answered[a.key] = true
		s, ok := byKey[a.key]
		if !ok {
			r.fail("key %s was answered %s and is not stored", a.key, a.outcome())
		} else if difference := s.differs(a); difference != "" {
			r.fail("key %s: %s", a.key, difference)
		}
	}
	for key := range byKey {
		if !answered[key] {
			r.fail("key %s is stored and was never answered", key)
		}
	}
	var keyless int
	if err := r.db.QueryRow(ctx, countKeylessSQL).Scan(&keyless); err != nil {
		return fmt.Errorf("count transfers without a key: %w", err)
	}
	if keyless > 0 {
		r.fail("%d transfers are stored that no key names", keyless)
	}
	return r.checkBalances(ctx)
}

// differs says in what s is not what a told its client, or "".
func (s stored) differs(a answer) string {
	switch {
	case !a.made() && s.id != nil:
		return fmt.Sprintf("answered %s, and transfer %s is stored", a.outcome(), *s.id)
	case !a.made() && !s.refused:
		return fmt.Sprintf("answered %s, and no refusal is stored", a.outcome())
	case !a.made():
		return ""
	case s.id == nil || s.refused:
		return fmt.Sprintf("answered with transfer %s, which is not stored", a.transfer.ID)
	}
	got := transferBody{
		ID: *s.id, DebitAccountID: *s.debit, CreditAccountID: *s.credit, Amount: money.Format(*s.amount, "USD"),
		DebitBalanceAfter: money.Format(*s.debitAfter, "USD"), CreditBalanceAfter: money.Format(*s.creditAfter, "USD"),
	}
	if got != a.transfer || a.request.Amount != got.Amount {
		return fmt.Sprintf("asked for %s, answered with %+v, stored is %+v", a.request.Amount, a.transfer, got)
	}
	return ""
}

const selectCustomerBalancesSQL = `
	SELECT name, balance
	  FROM accounts
	 WHERE kind = 'customer'
	 ORDER BY name`

func (r *race) checkBalances(ctx context.Context) error {
	want := r.scenario.balances(r.requests)
	rows, _ := r.db.Query(ctx, selectCustomerBalancesSQL)
	var name string
	var got decimal.Decimal
	_, err := pgx.ForEachRow(rows, []any{&name, &got}, func() error {
		exact, named := want[name]
		if named && !got.Equal(exact) && !r.loses() {
			r.fail("balance of %s = %s, want %s", name, got.StringFixed(2), exact.StringFixed(2))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the balances: %w", err)
	}
	return nil
}

const selectDeadlocksSQL = `
	SELECT deadlocks
	  FROM pg_stat_database
	 WHERE datname = current_database()`

func selectDeadlocks(ctx context.Context, db *postgres.DB) (n int, err error) {
	if err := db.QueryRow(ctx, selectDeadlocksSQL).Scan(&n); err != nil {
		return 0, fmt.Errorf("read pg_stat_database: %w", err)
	}
	return n, nil
}

// checkDeadlocks looks at both counters. A session tells pg_stat_database what
// it saw when it ends at the latest, so all of the race's must have ended.
func (r *race) checkDeadlocks(ctx context.Context, before int) error {
	if err := awaitSessionsEnd(ctx, r.db, r.name); err != nil {
		return err
	}
	after, err := selectDeadlocks(ctx, r.db)
	if err != nil {
		return err
	}
	if r.result.Deadlocks > 0 {
		r.fail("%d deadlocks (40P01) reached the service", r.result.Deadlocks)
	}
	if after != before {
		r.fail("pg_stat_database.deadlocks went from %d to %d", before, after)
	}
	return nil
}

const countSessionsSQL = `
	SELECT count(*)
	  FROM pg_stat_activity
	 WHERE datname = current_database()
	   AND application_name = $1`

const sessionsTimeout = 10 * time.Second

// awaitSessionsEnd returns when no session of the application name is left.
func awaitSessionsEnd(ctx context.Context, db *postgres.DB, name string) error {
	ctx, cancel := context.WithTimeout(ctx, sessionsTimeout)
	defer cancel()
	for {
		var n int
		if err := db.QueryRow(ctx, countSessionsSQL, name).Scan(&n); err != nil {
			return fmt.Errorf("wait for the services' sessions to end: %w", err)
		}
		if n == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of the services' sessions did not end: %w", n, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// outcomes writes counts in a fixed order.
func outcomes(counts map[string]int) string {
	var b bytes.Buffer
	for i, outcome := range slices.Sorted(maps.Keys(counts)) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d× %s", counts[outcome], outcome)
	}
	return b.String()
}

package idempotency_test

import (
	"testing"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/retry"
)

func TestAProbeTellsWhetherKeysCanBeClaimedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	if err := idempotency.Probe(t.Context(), db, policy); err != nil {
		t.Errorf("error = %v, want none", err)
	}
	wantCount(t, db, `SELECT count(*) FROM idempotency_keys`, 0)

	exec(t, db, `ALTER TABLE idempotency_keys RENAME TO elsewhere`)
	if err := idempotency.Probe(t.Context(), db, policy); retry.SQLState(err) != "42P01" {
		t.Errorf("error = %v, want that there is no table", err)
	}
}

// Package verify checks a ledger's invariants on a live database.
//
// Its one idea: everything is read in one snapshot, so transfers may go on
// meanwhile and what is found is never an artefact of reading at two times.
// The sums per account and the sums per entry are compared exactly and by
// sign, so that losses which cancel in a total are still found.
// Start reading at [Ledger].
package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

// snapshot makes all statements of a transaction see the same state.
var snapshot = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// statementTimeout is for reading whole tables, where the service's own limit
// is for reading a few rows.
const statementTimeout = time.Hour

// Ledger checks the ledger in db and reports what it found. It writes nothing
// and waits for no row's lock. Of policy it keeps all but the statements'
// timeout; ctx bounds the whole.
//
// The error is about reading alone, and is one of package retry's or the
// database's own: a damaged ledger is a [Report] with findings.
func Ledger(ctx context.Context, db retry.Beginner, policy retry.Policy) (Report, error) {
	policy.StatementTimeout = statementTimeout
	return retry.Tx(ctx, db, snapshot, policy, func(ctx context.Context, tx pgx.Tx) (Report, error) {
		r := newReport()
		for _, check := range checks {
			if err := check.run(ctx, tx, r); err != nil {
				return Report{}, fmt.Errorf("%s: %w", check.doing, err)
			}
		}
		return *r, nil
	})
}

// checks are all that is verified.
var checks = []struct {
	doing string
	run   func(context.Context, pgx.Tx, *Report) error
}{
	{"add up the balances", checkTotals},
	{"compare the accounts with their entries", checkAccounts},
	{"follow the statements", checkStatements},
	{"look up the transfers' accounts", checkTransfers},
	{"compare the holds with their captures", checkHolds},
	{"look up the captures' holds", checkCaptures},
	{"compare the reversals with what they reverse", checkReversals},
	{"look for the batches' members", checkBatches},
	{"look for references that are used twice", checkReferences},
	{"look up what the keys name", checkKeys},
	{"look up the payments' transfers", checkPayments},
}

// each runs sql and calls found for every row, without keeping them: a ruined
// ledger may have many.
func each(ctx context.Context, tx pgx.Tx, sql string, into []any, found func(), args ...any) error {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, into, func() error {
		found()
		return nil
	})
	return err
}

package race

import (
	"context"
	"errors"
	"testing"

	"github.com/rowlock/ledger/internal/racelab"
	"github.com/rowlock/ledger/internal/testdb"
)

const countRaceSchemasSQL = `
	SELECT count(*)
	  FROM pg_namespace
	 WHERE starts_with(nspname, 'ledger_race_')`

// raceInSchemas runs the lab as `ledger race --database-url` does, beside the
// user's own ledger, and interrupts its
// third race of four.
func raceInSchemas(t *testing.T, start racelab.Starter) []racelab.Result {
	t.Helper()
	db := testdb.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	services := 0
	lab := &racelab.Lab{
		Start: func(ctx context.Context, o racelab.StartOptions) (*racelab.Service, error) {
			service, err := start(ctx, o)
			if services++; services == 3 {
				cancel() // its migrated schema and its connections are there
			}
			return service, err
		},
		Database: func(ctx context.Context) (string, func(context.Context) error, error) {
			return racelab.WithSchema(ctx, db.URL)
		},
		Rounds: 2,
		Progress: func(p racelab.Progress) {
			if p.Total != 4 || p.Done > p.Total {
				t.Errorf("progress = %d of %d, want of 4", p.Done, p.Total)
			}
		},
	}
	results, err := lab.Run(ctx, []string{"atomic", "none"}, []*racelab.Scenario{racelab.LostUpdate})
	if !errors.Is(err, context.Canceled) || len(results) != 2 {
		t.Errorf("after an interrupt: %d results, %v, want the 2 from before", len(results), err)
	}
	var left int
	if err := db.QueryRow(t.Context(), countRaceSchemasSQL).Scan(&left); err != nil || left != 0 {
		t.Errorf("schemas that are left = %d, %v, want none", left, err)
	}
	return results
}

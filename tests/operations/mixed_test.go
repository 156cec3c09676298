package operations_test

import (
	"math/rand/v2"
	"testing"

	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
	"github.com/rowlock/ledger/tests/harness"
)

// kill -9 under all kinds of calls, in every safe mode: what was acknowledged is
// there, nothing is there twice, and the ledger is sound.
func testMixedLoadKilled(t *testing.T) {
	database := testdb.URL(t)
	var l *harness.MixedLoad
	for _, mode := range transfer.Modes() {
		if mode.LosesMoney {
			continue
		}
		for range 2 {
			p := harness.Serve(t, database, "--mode", mode.Name)
			if l == nil {
				l = harness.StartMixedLoad(t, 12, p.URL)
			}
			l.LeadTo(p.URL)
			l.WaitForMore(t, 60+rand.IntN(60))
			p.Kill(t)
		}
	}
	l.LeadTo(harness.Serve(t, database).URL)
	l.WaitForMore(t, 50)
	l.WaitForAll(t)
	l.End()
	l.Check(t, database)
}

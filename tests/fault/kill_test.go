package fault_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/tests/harness"
)

// kill -9 of the service, at random moments under a mixed load, and another one
// takes its place.
func killService(t *testing.T) {
	database := testdb.URL(t)
	p := harness.Serve(t, database)
	l := harness.StartMixedLoad(t, 12, p.URL)
	var recovery time.Duration
	for range *rounds {
		l.WaitForMore(t, 10+rand.IntN(100))
		p.Kill(t)
		killed := time.Now()
		p = harness.Serve(t, database)
		l.LeadTo(p.URL)
		l.WaitForMore(t, 1)
		recovery = max(recovery, time.Since(killed))
	}
	l.End()
	seen.add(line{"the service is killed", *rounds, l.Check(t, database), recovery})
}

// kill -9 of PostgreSQL's first process, upon which all of them end. The service
// stays, and goes on when the server is there again.
func killPostgres(t *testing.T) {
	dir := harness.DataDir(t)
	harness.RequirePostgres(t, dir)
	server := harness.StartPostgres(t, dir)
	address := harness.NewAddress(t, server)
	p := harness.Serve(t, address.URL)
	l := harness.StartMixedLoad(t, 12, p.URL)
	var recovery time.Duration
	for range *rounds {
		l.WaitForMore(t, 10+rand.IntN(100))
		harness.KillPID(t, harness.PostmasterOf(t, server))
		<-server.Exited()
		harness.StopPostgres(server)
		server = harness.StartPostgres(t, dir)
		up := time.Now()
		address.LeadTo(t, server)
		l.WaitForMore(t, 1)
		recovery = max(recovery, time.Since(up))
	}
	l.End()
	seen.add(line{"PostgreSQL is killed", *rounds, l.Check(t, server.DSN()), recovery})
	p.Stop(t)
	harness.StopPostgres(server)
}

// Package operations_test runs the real binary as its operators do: replicas
// that start together, rolling restarts, a database that dies.
package operations_test

import (
	"testing"

	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/tests/harness"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// TestOperations is one test, so that one binary serves all of it and goes with
// it.
func TestOperations(t *testing.T) {
	harness.Build(t)
	for _, test := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"Refusals", testRefusals},
		{"ReplicasStartTogether", testReplicasStartTogether},
		{"WaitsUntilSomebodyMigrated", testWaitsUntilSomebodyMigrated},
		{"RollingRestartBehindBalancer", testRollingRestartBehindBalancer},
		{"SIGTERMUnderLoad", testSIGTERMUnderLoad},
		{"PrivateServerStopsLast", testPrivateServerStopsLast},
		{"PostgresKilled", testPostgresKilled},
		{"ConnectionsExhausted", testConnectionsExhausted},
		{"ReplicaFrozen", testReplicaFrozen},
		{"TokensAreReadAgain", testTokensAreReadAgain},
		{"SlowCallersAreCut", testSlowCallersAreCut},
		{"ALockedAccountHoldsUpNobodyElse", testALockedAccountHoldsUpNobodyElse},
		{"HintsAndVerify", testHintsAndVerify},
		{"UnsafeModeSaysSo", testUnsafeModeSaysSo},
		{"MigratesAsAnotherRole", testMigratesAsAnotherRole},
		{"KeysExpire", testKeysExpire},
		{"HoldsExpire", testHoldsExpire},
		{"HangupStops", testHangupStops},
		{"Lab", testLab},
		{"Walkthrough", testWalkthrough},
		{"MixedLoadKilled", testMixedLoadKilled},
		{"PaymentsAreMade", testPaymentsAreMade},
		{"WorkersKilled", testWorkersKilled},
		{"WorkerFrozen", testWorkerFrozen},
		{"WorkersStop", testWorkersStop},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}

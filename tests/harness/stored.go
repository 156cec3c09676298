package harness

import "testing"

// WantStored fails the test unless a table has the rows of these ids, which were
// acknowledged, and no others.
func WantStored(t *testing.T, database, table string, acknowledged []string) Tally {
	t.Helper()
	return tally(t, database, table, acknowledged)
}

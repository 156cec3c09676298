package accounts

// For the test of their plans.
const (
	SelectEntriesSQL           = selectEntriesSQL
	SelectEntriesDescendingSQL = selectEntriesDescendingSQL
)

package accounts

// For the tests of their plans.
const (
	SelectEntriesSQL           = selectEntriesSQL
	SelectEntriesDescendingSQL = selectEntriesDescendingSQL
	SelectBalanceSQL           = selectBalanceSQL
	SelectBalanceBeforeSQL     = selectBalanceBeforeSQL
)

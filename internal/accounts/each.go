package accounts

import (
	"context"

	"github.com/rowlock/ledger/internal/retry"
)

const selectEveryAccountSQL = `
	SELECT id, kind, currency, name, status, balance, held, min_balance, max_balance,
	       debits_blocked, credits_blocked, version, metadata, created_at
	  FROM accounts
	 ORDER BY id`

// Each calls found for every account there is, in the order of their ids, in one
// snapshot, by [retry.Each].
func Each(ctx context.Context, db retry.Beginner, policy retry.Policy, found func(Account) error) error {
	return retry.Each(ctx, db, policy, selectEveryAccountSQL, scanAccount, found)
}

// The order is that of a merge of two indexes, or of a sort on disk where the
// server finds that cheaper: neither is kept in memory.
const selectEveryEntrySQL = `
	SELECT account_id, version, direction, amount, balance_after, transfer_id, other_account_id, currency, created_at
	  FROM entries
	 ORDER BY account_id, version`

// EachEntry is [Each] for the entries of all accounts, by account and version.
func EachEntry(ctx context.Context, db retry.Beginner, policy retry.Policy, found func(Entry) error) error {
	return retry.Each(ctx, db, policy, selectEveryEntrySQL, scanEntry, found)
}

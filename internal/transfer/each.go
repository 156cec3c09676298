package transfer

import (
	"context"

	"github.com/rowlock/ledger/internal/retry"
)

const selectEveryTransferSQL = selectListColumnsSQL + `
	  FROM transfers t
	 ORDER BY t.tx_id, t.id`

// Each calls found for every transfer there is, in the order of [Service.List]
// and in one snapshot, by [retry.Each].
func Each(ctx context.Context, db retry.Beginner, policy retry.Policy, found func(Transfer) error) error {
	return retry.Each(ctx, db, policy, selectEveryTransferSQL, scanTransfer, found)
}

// As [selectHoldSQL] has it, a hold has expired before the sweeper has come.
const selectEveryHoldSQL = `
	SELECT id, kind, debit_account_id, credit_account_id, amount, captured, currency,
	       CASE WHEN status = 'open' AND expires_at <= now() THEN 'expired' ELSE status END,
	       description, metadata, expires_at, ended_at, created_at
	  FROM holds
	 ORDER BY id`

// EachHold is [Each] for holds, in the order of their ids.
func EachHold(ctx context.Context, db retry.Beginner, policy retry.Policy, found func(Hold) error) error {
	return retry.Each(ctx, db, policy, selectEveryHoldSQL, scanHold, found)
}

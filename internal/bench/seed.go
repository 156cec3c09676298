package bench

import (
	"context"
	"encoding/binary"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/accounts"
)

// accountID is the id of the account at place i, as insertAccountsSQL makes it.
func accountID(i int) uuid.UUID {
	id := uuid.UUID{6: 0x70, 8: 0x80}
	binary.BigEndian.PutUint32(id[12:], uint32(i))
	return id
}

// funds is what every account that is not poor has at first, in USD.
const funds = "1000000.00"

const insertExternalSQL = `
	INSERT INTO accounts (id, kind, currency, name, min_balance, balance, version, last_entry_at)
	VALUES ($1, 'external', 'USD', 'external USD', NULL, -($2::numeric * $3::bigint), $3, now())`

const insertAccountsSQL = `
	INSERT INTO accounts (id, currency, name, balance, version, last_entry_at)
	SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 'USD', 'account ' || i,
	       CASE WHEN i % $2 = 0 THEN $3::numeric ELSE 0 END,
	       CASE WHEN i % $2 = 0 THEN 1 ELSE 0 END,
	       now()
	  FROM generate_series(0, $1::int - 1) i
	 ORDER BY i`

const insertFundingSQL = `
	INSERT INTO transfers (id, kind, debit_account_id, credit_account_id, amount, currency,
	                       debit_balance_after, credit_balance_after, debit_version, credit_version, created_at)
	SELECT ('00000000-0000-7000-8001-' || lpad(to_hex(i), 12, '0'))::uuid, 'credit', $4,
	       ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, $3::numeric, 'USD',
	       -($3::numeric * (i / $2 + 1)), $3::numeric, i / $2 + 1, 1, now()
	  FROM generate_series(0, $1::int - 1, $2::int) i
	 ORDER BY i`

// seed opens the accounts and gives each its funds by a transfer from outside,
// as if they had been asked for one by one. With poor ones, every other
// account gets none.
func seed(ctx context.Context, conn *pgx.Conn, n int, poor bool) (made int64, err error) {
	step := 1
	if poor {
		step = 2
	}
	funded := (n + step - 1) / step
	external := accounts.ExternalID("USD")
	for _, s := range []struct {
		sql  string
		args []any
	}{
		{insertExternalSQL, []any{external, funds, funded}},
		{insertAccountsSQL, []any{n, step, funds}},
		{insertFundingSQL, []any{n, step, funds, external}},
	} {
		if _, err := conn.Exec(ctx, s.sql, s.args...); err != nil {
			return 0, err
		}
	}
	return int64(funded), nil
}

// The accounts at places 2k and 2k+1 pay each other one amount to and fro, all
// pairs in turn: transfer m is number m / pairs of pair m % pairs. So every
// version and balance follows from m alone. The ids are those of long ago, as
// UUIDv7 sorts them.
const insertPreloadSQL = `
	INSERT INTO transfers (id, kind, debit_account_id, credit_account_id, amount, currency,
	                       debit_balance_after, credit_balance_after, debit_version, credit_version, created_at)
	SELECT (lpad(to_hex(m), 12, '0') || '70008002' || lpad(to_hex(m), 12, '0'))::uuid, 'transfer',
	       ('00000000-0000-7000-8000-' || lpad(to_hex(2 * pair + nth % 2), 12, '0'))::uuid,
	       ('00000000-0000-7000-8000-' || lpad(to_hex(2 * pair + 1 - nth % 2), 12, '0'))::uuid,
	       $4::numeric, 'USD',
	       $5::numeric - CASE WHEN nth % 2 = 0 THEN $4::numeric ELSE 0 END,
	       $5::numeric + CASE WHEN nth % 2 = 0 THEN $4::numeric ELSE 0 END,
	       nth + 2, nth + 2, now()
	  FROM generate_series($1::bigint, $2::bigint - 1) m,
	       LATERAL (SELECT m % $3::bigint AS pair, m / $3::bigint AS nth) p
	 ORDER BY m`

const updatePreloadedSQL = `
	UPDATE accounts a
	   SET version = version + p.count,
	       balance = balance + CASE WHEN p.count % 2 = 0 THEN 0 WHEN p.place % 2 = 0 THEN -$3::numeric ELSE $3::numeric END,
	       last_entry_at = now()
	  FROM (SELECT i AS place, $1::bigint / $2::bigint + CASE WHEN i / 2 < $1::bigint % $2::bigint THEN 1 ELSE 0 END AS count
	          FROM generate_series(0, 2 * $2::bigint - 1) i) p
	 WHERE a.id = ('00000000-0000-7000-8000-' || lpad(to_hex(p.place), 12, '0'))::uuid
	   AND p.count > 0`

// preloadBite is how many transfers one statement loads: an interrupt is
// noticed between two of them.
const preloadBite = 250_000

// preload adds transfers of the past. After the last few of them every account
// has an entry on each side since the checkpoint before: a server that has been
// running for a while has written those index pages in full, too, and a run of
// seconds would otherwise measure little but that.
func (b *Bench) preload(ctx context.Context, conn *pgx.Conn, count int64) error {
	if count == 0 {
		return nil
	}
	pairs := int64(b.Accounts / 2)
	last := max(0, count-2*pairs)
	for m := int64(0); m < last; m += preloadBite {
		if _, err := conn.Exec(ctx, insertPreloadSQL, m, min(m+preloadBite, last), pairs, amount, funds); err != nil {
			return err
		}
	}
	if err := b.settle(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, insertPreloadSQL, last, count, pairs, amount, funds); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, updatePreloadedSQL, count, pairs, amount); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "VACUUM (ANALYZE) accounts")
	return err
}

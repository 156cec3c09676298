package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/money"
)

const selectTotalsSQL = `
	SELECT currency, count(*), sum(balance)
	  FROM accounts
	 GROUP BY currency
	 ORDER BY currency`

// checkTotals adds up each currency. Every transfer takes from one account
// what it gives to another, so with the external account it is zero.
func checkTotals(ctx context.Context, tx pgx.Tx, r *Report) error {
	var currency string
	var count int64
	var sum decimal.Decimal
	return each(ctx, tx, selectTotalsSQL, []any{&currency, &count, &sum}, func() {
		r.Accounts += count
		r.total(currency).Sum = sum
		if !sum.IsZero() {
			r.add(Finding{Kind: CurrencySum, Currency: currency, Amount: sum,
				Detail: fmt.Sprintf("the balances in %s add up to %s and not to zero", currency, signed(sum, currency))})
		}
	})
}

const selectAccountsOffSQL = `
	WITH sums AS (
	  SELECT account_id,
	         sum(CASE direction WHEN 'credit' THEN amount ELSE -amount END) AS total,
	         count(*) AS entries,
	         max(version) AS last
	    FROM entries
	   GROUP BY account_id
	), rests AS (
	  SELECT debit_account_id, sum(amount - captured) AS rest
	    FROM holds
	   WHERE status = 'open'
	   GROUP BY debit_account_id
	)
	SELECT a.id, a.kind, a.currency, a.balance, a.held, a.min_balance, a.max_balance, a.version,
	       coalesce(s.total, 0), coalesce(s.entries, 0), coalesce(s.last, 0), coalesce(r.rest, 0)
	  FROM accounts a
	  LEFT JOIN sums s ON s.account_id = a.id
	  LEFT JOIN rests r ON r.debit_account_id = a.id
	 WHERE a.balance <> coalesce(s.total, 0)
	    OR a.version <> coalesce(s.entries, 0)
	    OR a.version <> coalesce(s.last, 0)
	    OR a.held <> coalesce(r.rest, 0)
	    OR a.balance - a.held < a.min_balance
	    OR a.balance > a.max_balance
	 ORDER BY a.id`

// checkAccounts compares each account with the entries and holds that it stands
// for, and with its limits.
func checkAccounts(ctx context.Context, tx pgx.Tx, r *Report) error {
	var id uuid.UUID
	var kind, currency string
	var balance, held, sum, rest decimal.Decimal
	var least, most *decimal.Decimal
	var version, entries, last int64
	into := []any{&id, &kind, &currency, &balance, &held, &least, &most, &version, &sum, &entries, &last, &rest}
	return each(ctx, tx, selectAccountsOffSQL, into, func() {
		find := func(kind Kind, amount decimal.Decimal, format string, args ...any) {
			r.add(Finding{Kind: kind, AccountID: id, Currency: currency, Amount: amount,
				Detail: fmt.Sprintf("account %s has ", id) + fmt.Sprintf(format, args...)})
		}
		in := func(d decimal.Decimal) string { return money.Format(d, currency) }
		if off := balance.Sub(sum); !off.IsZero() {
			total := r.total(currency)
			if kind == accounts.External {
				total.External = total.External.Add(off.Abs())
			} else {
				total.Customers = total.Customers.Add(off.Abs())
			}
			find(Balance, off, "%s where its entries add up to %s: off by %s", in(balance), in(sum), signed(off, currency))
		}
		if off := held.Sub(rest); !off.IsZero() {
			find(Held, off, "%s held where its open holds have %s left: off by %s", in(held), in(rest), signed(off, currency))
		}
		if version != entries || version != last {
			find(Version, decimal.Zero, "version %d, and %d entries of which the last is %d", version, entries, last)
		}
		if least != nil && balance.Sub(held).LessThan(*least) {
			below := balance.Sub(held).Sub(*least)
			find(Overdrawn, below, "%s, of which %s is held, below its minimum of %s by %s", in(balance), in(held), in(*least), signed(below, currency))
		}
		if most != nil && balance.GreaterThan(*most) {
			above := balance.Sub(*most)
			find(AboveMaximum, above, "%s, above its maximum of %s by %s", in(balance), in(*most), signed(above, currency))
		}
	})
}

// A duplicate version is a step of zero; a missing one is a longer step.
const selectStepsOffSQL = `
	WITH steps AS (
	  SELECT account_id, version, transfer_id, currency, balance_after, created_at,
	         CASE direction WHEN 'credit' THEN amount ELSE -amount END AS change,
	         lag(version, 1, 0::bigint) OVER statement AS version_before,
	         lag(balance_after, 1, 0::numeric) OVER statement AS balance_before,
	         lag(created_at, 1, '-infinity'::timestamptz) OVER statement AS before
	    FROM entries
	  WINDOW statement AS (PARTITION BY account_id ORDER BY version, created_at)
	)
	SELECT account_id, transfer_id, currency, version, version_before,
	       balance_after, balance_before + change,
	       CASE WHEN created_at < before THEN extract(epoch FROM before - created_at) ELSE 0 END::float8
	  FROM steps
	 WHERE version <> version_before + 1
	    OR balance_after <> balance_before + change
	    OR created_at < before
	 ORDER BY account_id, version`

// checkStatements follows each account's entries from the first to the last.
func checkStatements(ctx context.Context, tx pgx.Tx, r *Report) error {
	var account, transfer uuid.UUID
	var currency string
	var version, before int64
	var balance, follows decimal.Decimal
	var fallen float64
	into := []any{&account, &transfer, &currency, &version, &before, &balance, &follows, &fallen}
	return each(ctx, tx, selectStepsOffSQL, into, func() {
		f := Finding{AccountID: account, TransferID: transfer, Currency: currency}
		if version != before+1 {
			f.Kind = VersionGap
			f.Detail = fmt.Sprintf("account %s goes from version %d to %d at transfer %s", account, before, version, transfer)
			r.add(f)
		}
		if off := balance.Sub(follows); !off.IsZero() {
			total := r.total(currency)
			total.Overwritten = total.Overwritten.Add(off.Abs())
			f.Kind, f.Amount = RunningBalance, off
			f.Detail = fmt.Sprintf("account %s has %s after version %d where %s follows from the entry before: off by %s",
				account, money.Format(balance, currency), version, money.Format(follows, currency), signed(off, currency))
			r.add(f)
		}
		if fallen > 0 {
			f.Kind, f.Amount = TimeFalls, decimal.Zero
			f.Detail = fmt.Sprintf("account %s at version %d is %v older than the version before", account, version,
				time.Duration(fallen*float64(time.Second)))
			r.add(f)
		}
	})
}

package accounts

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const insertAccountSQL = `
	INSERT INTO accounts (id, currency, name, min_balance, max_balance, metadata)
	VALUES ($1, $2, $3, $4, $5, $6)
	ON CONFLICT (id) DO NOTHING
	RETURNING id, kind, currency, name, status, balance, held, min_balance, max_balance,
	          debits_blocked, credits_blocked, version, metadata, created_at`

// After the customer's account and not before: ids rise, as in every other
// place that holds more than one account, and the first account of a currency
// is what brings its external account.
const insertExternalSQL = `
	INSERT INTO accounts (id, kind, currency, name, min_balance)
	VALUES ($1, 'external', $2, 'external ' || $2, NULL)
	ON CONFLICT (id) DO NOTHING`

// insertAccount inserts an account and, where there is none yet, its
// currency's external account. exists is true, and nothing is inserted, where
// the id is in use.
func insertAccount(ctx context.Context, tx pgx.Tx, id uuid.UUID, o Opening) (account Account, exists bool, err error) {
	metadata := o.Metadata
	if metadata == nil {
		metadata = map[string]string{}
	}
	rows, _ := tx.Query(ctx, insertAccountSQL, id, o.Currency, o.Name, o.MinBalance, o.MaxBalance, metadata)
	account, err = pgx.CollectExactlyOneRow(rows, scanAccount)
	if errors.Is(err, pgx.ErrNoRows) {
		return Account{}, true, nil
	}
	if err != nil {
		return Account{}, false, fmt.Errorf("insert account: %w", err)
	}
	if _, err := tx.Exec(ctx, insertExternalSQL, ExternalID(o.Currency), o.Currency); err != nil {
		return Account{}, false, fmt.Errorf("insert external account: %w", err)
	}
	return account, false, nil
}

func scanAccount(row pgx.CollectableRow) (a Account, err error) {
	err = row.Scan(&a.ID, &a.Kind, &a.Currency, &a.Name, &a.Status,
		&a.Balance, &a.Held, &a.MinBalance, &a.MaxBalance,
		&a.DebitsBlocked, &a.CreditsBlocked, &a.Version, &a.Metadata, &a.CreatedAt)
	a.CreatedAt = a.CreatedAt.UTC()
	return a, err
}

const selectAccountSQL = `
	SELECT id, kind, currency, name, status, balance, held, min_balance, max_balance,
	       debits_blocked, credits_blocked, version, metadata, created_at
	  FROM accounts
	 WHERE id = $1`

// selectAccount reads one account; lock is "" or " FOR UPDATE".
func selectAccount(ctx context.Context, tx pgx.Tx, id uuid.UUID, lock string) (Account, error) {
	rows, _ := tx.Query(ctx, selectAccountSQL+lock, id)
	account, err := pgx.CollectExactlyOneRow(rows, scanAccount)
	if errors.Is(err, pgx.ErrNoRows) {
		return Account{}, ErrNotFound
	}
	if err != nil {
		return Account{}, fmt.Errorf("select account: %w", err)
	}
	return account, nil
}

const selectAccountsSQL = `
	SELECT id, kind, currency, name, status, balance, held, min_balance, max_balance,
	       debits_blocked, credits_blocked, version, metadata, created_at
	  FROM accounts
	 WHERE id > $1
	   AND ($2 = '' OR currency = $2)
	   AND ($3 = '' OR status = $3)
	 ORDER BY id
	 LIMIT $4`

func selectAccounts(ctx context.Context, tx pgx.Tx, f Filter) ([]Account, error) {
	rows, _ := tx.Query(ctx, selectAccountsSQL, f.After, f.Currency, f.Status, f.Limit)
	accounts, err := pgx.CollectRows(rows, scanAccount)
	if err != nil {
		return nil, fmt.Errorf("select accounts: %w", err)
	}
	return accounts, nil
}

const selectEntriesSQL = `
	SELECT account_id, version, direction, amount, balance_after, transfer_id, other_account_id, currency, created_at
	  FROM entries
	 WHERE account_id = $1
	   AND version > $2
	 ORDER BY version
	 LIMIT $3`

const selectEntriesDescendingSQL = `
	SELECT account_id, version, direction, amount, balance_after, transfer_id, other_account_id, currency, created_at
	  FROM entries
	 WHERE account_id = $1
	   AND version < $2
	 ORDER BY version DESC
	 LIMIT $3`

func selectEntries(ctx context.Context, tx pgx.Tx, id uuid.UUID, p Page) ([]Entry, error) {
	sql, after := selectEntriesSQL, p.After
	if p.Descending {
		sql = selectEntriesDescendingSQL
		if after == 0 {
			after = math.MaxInt64
		}
	}
	rows, _ := tx.Query(ctx, sql, id, after, p.Limit)
	entries, err := pgx.CollectRows(rows, scanEntry)
	if err != nil {
		return nil, fmt.Errorf("select entries: %w", err)
	}
	return entries, nil
}

func scanEntry(row pgx.CollectableRow) (e Entry, err error) {
	err = row.Scan(&e.AccountID, &e.Version, &e.Direction, &e.Amount, &e.BalanceAfter,
		&e.TransferID, &e.OtherAccountID, &e.Currency, &e.CreatedAt)
	e.CreatedAt = e.CreatedAt.UTC()
	return e, err
}

// All that a change may alter, in one statement: the row is held, so what did
// not change is what it was. Never the balance, nor what is held of it.
const updateAccountSQL = `
	UPDATE accounts
	   SET name = $2,
	       status = $3,
	       min_balance = $4,
	       max_balance = $5,
	       debits_blocked = $6,
	       credits_blocked = $7,
	       metadata = $8
	 WHERE id = $1`

// updateAccount writes an account whose row tx holds.
func updateAccount(ctx context.Context, tx pgx.Tx, a Account) error {
	_, err := tx.Exec(ctx, updateAccountSQL, a.ID, a.Name, a.Status, a.MinBalance, a.MaxBalance,
		a.DebitsBlocked, a.CreditsBlocked, a.Metadata)
	if err != nil {
		return fmt.Errorf("update account: %w", err)
	}
	return nil
}

package transfer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"
)

// Where every row is held, the order of the writes no longer matters, and a
// group of any size is written by two statements. Their parameters are arrays
// of pgtype's own types: a driver.Valuer for each element would cost more than
// all the rest.

// The version is compared although the row is held: it is the second guard of
// a gapless statement.
const updateHeldBalancesSQL = `
	UPDATE accounts a
	   SET balance = h.balance,
	       version = a.version + h.entries,
	       last_entry_at = $5
	  FROM unnest($1::uuid[], $2::numeric[], $3::bigint[], $4::bigint[]) AS h (id, balance, version, entries)
	 WHERE a.id = h.id
	   AND a.version = h.version`

const insertHeldTransfersSQL = `
	INSERT INTO transfers (id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	                       debit_balance_after, credit_balance_after, debit_version, credit_version, created_at)
	SELECT id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata::jsonb,
	       debit_balance_after, credit_balance_after, debit_version, credit_version, $13
	  FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::uuid[], $5::numeric[], $6::text[], $7::text[], $8::text[],
	              $9::numeric[], $10::numeric[], $11::bigint[], $12::bigint[])
	    AS t (id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	          debit_balance_after, credit_balance_after, debit_version, credit_version)
	RETURNING tx_id`

// queueHeld queues the writing of what was judged, whose accounts are all held.
func (bs *balances) queueHeld(b *pgx.Batch, ms []*move) error {
	ms = slices.DeleteFunc(slices.Clone(ms), func(m *move) bool { return m.refusal != nil })
	if len(ms) == 0 {
		return nil
	}
	bs.queueHeldBalances(b)
	return queueHeldTransfers(b, ms, bs.at)
}

func (bs *balances) queueHeldBalances(b *pgx.Batch) {
	changed := slices.DeleteFunc(slices.Collect(maps.Values(bs.byID)), func(a *balance) bool { return a.entries == 0 })
	var (
		ids      = make(pgtype.FlatArray[pgtype.UUID], len(changed))
		amounts  = make(pgtype.FlatArray[pgtype.Numeric], len(changed))
		versions = make(pgtype.FlatArray[int64], len(changed))
		entries  = make(pgtype.FlatArray[int64], len(changed))
	)
	for i, a := range changed {
		ids[i], amounts[i] = pgUUID(a.id), pgNumeric(a.amount)
		versions[i], entries[i] = a.version-a.entries, a.entries
	}
	b.Queue(updateHeldBalancesSQL, ids, amounts, versions, entries, bs.at).Exec(func(tag pgconn.CommandTag) error {
		if got, want := tag.RowsAffected(), int64(len(changed)); got != want {
			return fmt.Errorf("%d of %d accounts were written, though all were held", got, want)
		}
		return nil
	})
}

func queueHeldTransfers(b *pgx.Batch, ms []*move, at time.Time) error {
	n := len(ms)
	var (
		ids, debits, credits                      = make(pgtype.FlatArray[pgtype.UUID], n), make(pgtype.FlatArray[pgtype.UUID], n), make(pgtype.FlatArray[pgtype.UUID], n)
		amounts, debitBalances, creditBalances    = make(pgtype.FlatArray[pgtype.Numeric], n), make(pgtype.FlatArray[pgtype.Numeric], n), make(pgtype.FlatArray[pgtype.Numeric], n)
		kinds, currencies, descriptions, metadata = make(pgtype.FlatArray[string], n), make(pgtype.FlatArray[string], n), make(pgtype.FlatArray[string], n), make(pgtype.FlatArray[string], n)
		debitVersions, creditVersions             = make(pgtype.FlatArray[int64], n), make(pgtype.FlatArray[int64], n)
	)
	for i, m := range ms {
		t := &m.transfer
		ids[i], debits[i], credits[i] = pgUUID(t.ID), pgUUID(t.DebitAccountID), pgUUID(t.CreditAccountID)
		amounts[i], debitBalances[i], creditBalances[i] = pgNumeric(t.Amount), pgNumeric(t.DebitBalanceAfter), pgNumeric(t.CreditBalanceAfter)
		kinds[i], currencies[i], descriptions[i] = t.Kind, t.Currency, t.Description
		debitVersions[i], creditVersions[i] = t.DebitVersion, t.CreditVersion
		metadata[i] = "{}"
		if len(t.Metadata) > 0 {
			text, err := json.Marshal(t.Metadata)
			if err != nil {
				return fmt.Errorf("write metadata: %w", err)
			}
			metadata[i] = string(text)
		}
	}
	b.Queue(insertHeldTransfersSQL, ids, kinds, debits, credits, amounts, currencies, descriptions, metadata,
		debitBalances, creditBalances, debitVersions, creditVersions, at).Query(func(rows pgx.Rows) error {
		txIDs, err := pgx.CollectRows(rows, pgx.RowTo[uint64])
		if err == nil && len(txIDs) != n {
			err = errors.New("a transfer was not inserted")
		}
		for i := range txIDs {
			ms[i].transfer.TxID = txIDs[i] // one transaction: they are all the same
		}
		return err
	})
	return nil
}

func pgUUID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

func pgNumeric(d decimal.Decimal) pgtype.Numeric {
	return pgtype.Numeric{Int: d.Coefficient(), Exp: d.Exponent(), Valid: true}
}

func uuidArray(ids []uuid.UUID) pgtype.FlatArray[pgtype.UUID] {
	array := make(pgtype.FlatArray[pgtype.UUID], len(ids))
	for i, id := range ids {
		array[i] = pgUUID(id)
	}
	return array
}

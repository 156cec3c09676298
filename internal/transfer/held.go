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
	"github.com/jackc/pgx/v5/pgtype/zeronull"
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
	       held = coalesce(h.held, a.held),
	       version = a.version + h.entries,
	       last_entry_at = CASE WHEN h.entries > 0 THEN $6 ELSE a.last_entry_at END
	  FROM unnest($1::uuid[], $2::numeric[], $3::numeric[], $4::bigint[], $5::bigint[]) AS h (id, balance, held, version, entries)
	 WHERE a.id = h.id
	   AND a.version = h.version`

const insertHeldTransfersSQL = `
	INSERT INTO transfers (id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	                       debit_balance_after, credit_balance_after, debit_version, credit_version, created_at,
	                       hold_id, reverses_transfer_id, batch_id, reference)
	SELECT id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata::jsonb,
	       debit_balance_after, credit_balance_after, debit_version, credit_version, $13,
	       hold_id, reverses_transfer_id, batch_id, reference
	  FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::uuid[], $5::numeric[], $6::text[], $7::text[], $8::text[],
	              $9::numeric[], $10::numeric[], $11::bigint[], $12::bigint[], $14::uuid[], $15::uuid[], $16::uuid[], $17::text[])
	    AS t (id, kind, debit_account_id, credit_account_id, amount, currency, description, metadata,
	          debit_balance_after, credit_balance_after, debit_version, credit_version,
	          hold_id, reverses_transfer_id, batch_id, reference)
	RETURNING tx_id`

// queueHeld queues the writing of what was judged, whose accounts are all held.
func (b *books) queueHeld(batch *pgx.Batch) error {
	b.queueChangedHolds(batch)
	b.queueHeldBalances(batch)
	b.queueOpenedHolds(batch)
	if len(b.transfers) == 0 {
		return nil
	}
	return queueHeldTransfers(batch, b.transfers, b.at)
}

func (b *books) queueHeldBalances(batch *pgx.Batch) {
	changed := slices.DeleteFunc(slices.Collect(maps.Values(b.accounts)), func(a *balance) bool { return !a.changed() })
	if len(changed) == 0 {
		return
	}
	var (
		ids      = make(pgtype.FlatArray[pgtype.UUID], len(changed))
		amounts  = make(pgtype.FlatArray[pgtype.Numeric], len(changed))
		reserved = reservedAmounts(changed)
		versions = make(pgtype.FlatArray[int64], len(changed))
		entries  = make(pgtype.FlatArray[int64], len(changed))
	)
	for i, a := range changed {
		ids[i], amounts[i] = pgUUID(a.id), pgNumeric(a.amount)
		versions[i], entries[i] = a.version-a.entries, a.entries
	}
	batch.Queue(updateHeldBalancesSQL, ids, amounts, reserved, versions, entries, b.at).Exec(func(tag pgconn.CommandTag) error {
		if got, want := tag.RowsAffected(), int64(len(changed)); got != want {
			return fmt.Errorf("%d of %d accounts were written, though all were held", got, want)
		}
		return nil
	})
}

func queueHeldTransfers(b *pgx.Batch, transfers []*Transfer, at time.Time) error {
	n := len(transfers)
	var (
		ids, debits, credits                      = make(pgtype.FlatArray[pgtype.UUID], n), make(pgtype.FlatArray[pgtype.UUID], n), make(pgtype.FlatArray[pgtype.UUID], n)
		amounts, debitBalances, creditBalances    = make(pgtype.FlatArray[pgtype.Numeric], n), make(pgtype.FlatArray[pgtype.Numeric], n), make(pgtype.FlatArray[pgtype.Numeric], n)
		kinds, currencies, descriptions, metadata = make(pgtype.FlatArray[string], n), make(pgtype.FlatArray[string], n), make(pgtype.FlatArray[string], n), make(pgtype.FlatArray[string], n)
		debitVersions, creditVersions             = make(pgtype.FlatArray[int64], n), make(pgtype.FlatArray[int64], n)
	)
	for i, t := range transfers {
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
		debitBalances, creditBalances, debitVersions, creditVersions, at,
		optionalIDs(transfers, func(t *Transfer) uuid.UUID { return t.HoldID }),
		optionalIDs(transfers, func(t *Transfer) uuid.UUID { return t.ReversesTransferID }),
		optionalIDs(transfers, func(t *Transfer) uuid.UUID { return t.BatchID }),
		optionalReferences(transfers)).Query(func(rows pgx.Rows) error {
		txIDs, err := pgx.CollectRows(rows, pgx.RowTo[uint64])
		if err == nil && len(txIDs) != n {
			err = errors.New("a transfer was not inserted")
		}
		for i := range txIDs {
			transfers[i].TxID = txIDs[i] // one transaction: they are all the same
		}
		return err
	})
	return nil
}

// reservedAmounts returns what the holds keep, or NULL where none has changed:
// unnest fills up a shorter array with nulls, and most groups have none.
func reservedAmounts(changed []*balance) pgtype.FlatArray[pgtype.Numeric] {
	if !slices.ContainsFunc(changed, func(a *balance) bool { return !a.held.Equal(a.heldThen) }) {
		return nil
	}
	amounts := make(pgtype.FlatArray[pgtype.Numeric], len(changed))
	for i, a := range changed {
		amounts[i] = pgNumeric(a.held)
	}
	return amounts
}

// optionalIDs returns the ids that id says, or NULL where there is none at all.
func optionalIDs(transfers []*Transfer, id func(*Transfer) uuid.UUID) pgtype.FlatArray[pgtype.UUID] {
	if !slices.ContainsFunc(transfers, func(t *Transfer) bool { return id(t) != uuid.Nil }) {
		return nil
	}
	ids := make(pgtype.FlatArray[pgtype.UUID], len(transfers))
	for i, t := range transfers {
		ids[i] = pgtype.UUID{Bytes: id(t), Valid: id(t) != uuid.Nil}
	}
	return ids
}

// optionalReferences is optionalIDs for the references.
func optionalReferences(transfers []*Transfer) pgtype.FlatArray[zeronull.Text] {
	if !slices.ContainsFunc(transfers, func(t *Transfer) bool { return t.Reference != "" }) {
		return nil
	}
	references := make(pgtype.FlatArray[zeronull.Text], len(transfers))
	for i, t := range transfers {
		references[i] = zeronull.Text(t.Reference)
	}
	return references
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

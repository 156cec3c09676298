package transfer

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// References are looked up behind the account's lock: whoever used one has then
// committed. The unique index is the second guard. Both conditions on the
// reference are the index's own.
const selectReferencesSQL = `
	SELECT CASE kind WHEN 'credit' THEN credit_account_id ELSE debit_account_id END, reference, id
	  FROM transfers
	 WHERE (CASE kind WHEN 'credit' THEN credit_account_id ELSE debit_account_id END) = ANY($1)
	   AND reference = ANY($2)
	   AND reference IS NOT NULL`

// queueReferences queues the look who has used wanted before. It may find more.
func (b *books) queueReferences(batch *pgx.Batch, wanted []reference) {
	b.references = map[reference]uuid.UUID{}
	ids := make([]uuid.UUID, len(wanted))
	values := make(pgtype.FlatArray[string], len(wanted))
	for i, r := range wanted {
		ids[i], values[i] = r.accountID, r.value
	}
	batch.Queue(selectReferencesSQL, uuidArray(inOrder(ids)), values).Query(func(rows pgx.Rows) error {
		var used reference
		var id uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{&used.accountID, &used.value, &id}, func() error {
			b.references[used] = id
			return nil
		})
		return err
	})
}

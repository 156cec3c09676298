package verify

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const countKeysSQL = `
	SELECT count(*)
	  FROM idempotency_keys`

// A key names a transfer, a hold or a batch. A key with an answer is an
// account's or a payment's, but where the answer is an array: it has the
// refusals of a batch of which some members were refused, and null for each that
// was made. The second of two keys that name one effect names it wrongly.
const selectKeysOffSQL = `
	WITH batches AS (
	  SELECT batch_id, count(*) AS members
	    FROM transfers
	   WHERE batch_id IS NOT NULL
	   GROUP BY batch_id
	)
	SELECT principal, key, resource_id, refused
	  FROM (SELECT k.principal, k.key, k.resource_id, k.refusal IS NOT NULL AS refused,
	               CASE WHEN k.answer IS NULL
	                    THEN t.id IS NOT NULL OR h.id IS NOT NULL OR b.batch_id IS NOT NULL
	                    ELSE jsonb_array_length(jsonb_path_query_array(k.answer, '$[*] ? (@ == null)')) = coalesce(b.members, 0)
	               END AS made,
	               row_number() OVER (PARTITION BY k.resource_id ORDER BY k.created_at, k.principal, k.key) AS nth
	          FROM idempotency_keys k
	          LEFT JOIN transfers t ON t.id = k.resource_id
	          LEFT JOIN holds h ON h.id = k.resource_id
	          LEFT JOIN batches b ON b.batch_id = k.resource_id
	         WHERE k.answer IS NULL
	            OR jsonb_typeof(k.answer) = 'array') named
	 WHERE made = refused
	    OR nth > 1
	 ORDER BY principal, key`

// checkKeys looks for the effect that each key names, and for an effect where
// the answer was a refusal.
func checkKeys(ctx context.Context, tx pgx.Tx, r *Report) error {
	if err := tx.QueryRow(ctx, countKeysSQL).Scan(&r.Keys); err != nil {
		return err
	}
	var principal, key string
	var resource uuid.UUID
	var refused bool
	return each(ctx, tx, selectKeysOffSQL, []any{&principal, &key, &resource, &refused}, func() {
		f := Finding{Kind: KeyWithoutTransfer, TransferID: resource,
			Detail: fmt.Sprintf("idempotency key %q of principal %q names %s, and there is no such transfer, hold or batch, or it is another key's", key, principal, resource)}
		if refused {
			f.Kind = RefusedTransfer
			f.Detail = fmt.Sprintf("idempotency key %q of principal %q was refused, and what it names exists: %s", key, principal, resource)
		}
		r.add(f)
	})
}

-- +goose Up

-- One side of a transfer, as an account's statement shows it. A view over the
-- transfers, which already hold both sides; for one account it plans as a
-- merge of two indexes. Locks nothing.
SET LOCAL lock_timeout = '2s';

CREATE VIEW entries AS
  SELECT debit_account_id AS account_id, debit_version AS version, 'debit'::text AS direction, amount,
         debit_balance_after AS balance_after, id AS transfer_id, credit_account_id AS other_account_id,
         currency, created_at
    FROM transfers
   UNION ALL
  SELECT credit_account_id, credit_version, 'credit'::text, amount,
         credit_balance_after, id, debit_account_id,
         currency, created_at
    FROM transfers;

-- +goose Up

-- The transfer row is the double entry: both accounts, the amount, and what
-- each side's balance and version were after it. Rows are append-only.
-- A new table: nothing is locked for long.
--
-- (tx_id, id) is the order of the list of all transfers: ids and times become
-- visible out of commit order, and a reader that pages by them alone would
-- miss rows. The unique pairs of account and version are the second guard of
-- a gapless statement: two transfers cannot be the same entry of an account.
SET LOCAL lock_timeout = '2s';

CREATE TABLE transfers (
  id                   uuid        NOT NULL,
  debit_account_id     uuid        NOT NULL,
  credit_account_id    uuid        NOT NULL,
  debit_version        bigint      NOT NULL,
  credit_version       bigint      NOT NULL,
  tx_id                xid8        NOT NULL DEFAULT pg_current_xact_id(),
  created_at           timestamptz NOT NULL,
  amount               numeric     NOT NULL,
  debit_balance_after  numeric     NOT NULL,
  credit_balance_after numeric     NOT NULL,
  kind                 text        NOT NULL,
  currency             text        NOT NULL,
  description          text        NOT NULL DEFAULT '',
  metadata             jsonb       NOT NULL DEFAULT '{}',

  CONSTRAINT transfers_pkey PRIMARY KEY (id),
  CONSTRAINT transfers_kind_known CHECK (kind IN ('transfer', 'debit', 'credit')),
  CONSTRAINT transfers_currency_form CHECK (currency ~ '^[A-Z]{3}$'),
  CONSTRAINT transfers_two_accounts CHECK (debit_account_id <> credit_account_id),
  CONSTRAINT transfers_versions_count CHECK (debit_version > 0 AND credit_version > 0),
  CONSTRAINT transfers_amount_range CHECK (amount > 0 AND amount < 1e18 AND scale(amount) <= 18),
  CONSTRAINT transfers_balance_range CHECK (debit_balance_after > -1e28 AND debit_balance_after < 1e28
                                        AND credit_balance_after > -1e28 AND credit_balance_after < 1e28),
  CONSTRAINT transfers_description_length CHECK (char_length(description) <= 500),
  CONSTRAINT transfers_metadata_object CHECK (jsonb_typeof(metadata) = 'object')
);

CREATE UNIQUE INDEX transfers_debit_entry ON transfers (debit_account_id, debit_version);
CREATE UNIQUE INDEX transfers_credit_entry ON transfers (credit_account_id, credit_version);
CREATE INDEX transfers_tx_id_id ON transfers (tx_id, id);

CREATE TRIGGER transfers_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON transfers
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- +goose Up

-- Money that is reserved on an account now, to be captured, in parts or as a
-- whole, or released. A hold is open until nothing is left of it, or somebody
-- ends it, or its time is over. A new table: nothing is locked for long.
--
-- Its account counts what is reserved (accounts.held), so a judgement of funds
-- reads one row; held is always the sum of what is left of the open holds.
SET LOCAL lock_timeout = '2s';

CREATE TABLE holds (
  id                uuid        NOT NULL,
  debit_account_id  uuid        NOT NULL,
  credit_account_id uuid        NOT NULL,
  created_at        timestamptz NOT NULL,
  expires_at        timestamptz,
  ended_at          timestamptz,
  amount            numeric     NOT NULL,
  captured          numeric     NOT NULL DEFAULT 0,
  kind              text        NOT NULL,
  currency          text        NOT NULL,
  status            text        NOT NULL DEFAULT 'open',
  description       text        NOT NULL DEFAULT '',
  metadata          jsonb       NOT NULL DEFAULT '{}',

  CONSTRAINT holds_pkey PRIMARY KEY (id),
  CONSTRAINT holds_kind_known CHECK (kind IN ('transfer', 'debit')),
  CONSTRAINT holds_status_known CHECK (status IN ('open', 'captured', 'voided', 'expired')),
  CONSTRAINT holds_currency_form CHECK (currency ~ '^[A-Z]{3}$'),
  CONSTRAINT holds_two_accounts CHECK (debit_account_id <> credit_account_id),
  CONSTRAINT holds_amount_range CHECK (amount > 0 AND amount < 1e18 AND scale(amount) <= 18),
  CONSTRAINT holds_captured_range CHECK (captured >= 0 AND captured <= amount),
  CONSTRAINT holds_open_has_rest CHECK (status <> 'open' OR captured < amount),
  CONSTRAINT holds_ended CHECK ((status = 'open') = (ended_at IS NULL)),
  CONSTRAINT holds_description_length CHECK (char_length(description) <= 500),
  CONSTRAINT holds_metadata_object CHECK (jsonb_typeof(metadata) = 'object')
);

-- For the sweeper, for a judgement that needs an account's expired holds, and for the list.
CREATE INDEX holds_expiring ON holds (expires_at) WHERE status = 'open';
CREATE INDEX holds_open ON holds (debit_account_id, expires_at) WHERE status = 'open';
CREATE INDEX holds_debit_account ON holds (debit_account_id, id);

-- What has ended stays so, and none goes away.
CREATE TRIGGER holds_final BEFORE UPDATE ON holds
  FOR EACH ROW WHEN (OLD.status <> 'open') EXECUTE FUNCTION refuse_change();
CREATE TRIGGER holds_kept BEFORE DELETE OR TRUNCATE ON holds
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

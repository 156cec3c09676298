-- +goose Up

-- The holders of balances. A new ledger: nothing is locked for long.
--
-- Money is numeric without precision: a precision would round in silence. The
-- bounds are the guard, and the upper one is also what refuses NaN and
-- Infinity, which sort above every number.
--
-- version counts an account's entries and is raised by SQL alone, under the
-- row's lock, so that a statement is gapless and totally ordered.
--
-- No index on balance, version or last_entry_at, and room on every page: a
-- transfer's updates stay heap-only.
SET LOCAL lock_timeout = '2s';

CREATE TABLE accounts (
  id            uuid        NOT NULL,
  version       bigint      NOT NULL DEFAULT 0,
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  last_entry_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  balance       numeric     NOT NULL DEFAULT 0,
  min_balance   numeric              DEFAULT 0,
  kind          text        NOT NULL DEFAULT 'customer',
  currency      text        NOT NULL,
  status        text        NOT NULL DEFAULT 'open',
  name          text        NOT NULL DEFAULT '',
  metadata      jsonb       NOT NULL DEFAULT '{}',

  CONSTRAINT accounts_pkey PRIMARY KEY (id),
  CONSTRAINT accounts_kind_known CHECK (kind IN ('customer', 'external')),
  CONSTRAINT accounts_currency_form CHECK (currency ~ '^[A-Z]{3}$'),
  CONSTRAINT accounts_status_known CHECK (status IN ('open', 'frozen', 'closed')),
  CONSTRAINT accounts_version_counts CHECK (version >= 0),
  CONSTRAINT accounts_balance_range CHECK (balance > -1e28 AND balance < 1e28 AND scale(balance) <= 18),
  CONSTRAINT accounts_min_balance_range CHECK (min_balance > -1e28 AND min_balance <= 0 AND scale(min_balance) <= 18),
  CONSTRAINT accounts_balance_covered CHECK (balance >= min_balance),
  CONSTRAINT accounts_only_external_unlimited CHECK ((min_balance IS NULL) = (kind = 'external')),
  CONSTRAINT accounts_only_external_sorts_last CHECK ((id >= 'ffffffff-0000-0000-0000-000000000000') = (kind = 'external')),
  CONSTRAINT accounts_closed_empty CHECK (status <> 'closed' OR balance = 0),
  CONSTRAINT accounts_name_length CHECK (char_length(name) <= 200),
  CONSTRAINT accounts_metadata_object CHECK (jsonb_typeof(metadata) = 'object')
) WITH (fillfactor = 70);

CREATE INDEX accounts_currency_id ON accounts (currency, id);
CREATE INDEX accounts_not_open ON accounts (status, id) WHERE status <> 'open';

-- Transfers name accounts without a foreign key: the rows are locked by the
-- same transaction, and this keeps them from ever going away. A key would
-- cost a query a side and a share lock that can deadlock with an upgrade.
-- +goose StatementBegin
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% on %: its rows are kept', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER accounts_kept BEFORE DELETE OR TRUNCATE ON accounts
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

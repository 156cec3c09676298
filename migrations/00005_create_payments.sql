-- +goose Up

-- Transfers that were asked for now and are made later, by a worker. A new
-- table: nothing is locked for long.
--
-- A payment's transfer has the payment's id, so the key of transfers is the
-- second guard of "made once". A worker that makes payments in one transaction
-- leaves no trace until it commits; 'processing' is for those that are leased.
--
-- queued_at is when a payment became due and was put into the queue. Per
-- priority, it is the order of the queue: it comes from the database's clock, so
-- nothing is ever put in far behind the front, and a worker need not walk again
-- over what is finished there. Updates of status move a row from one partial
-- index to another; finished payments are in none of them.
SET LOCAL lock_timeout = '2s';

CREATE TABLE payments (
  id                uuid        NOT NULL,
  debit_account_id  uuid        NOT NULL,
  credit_account_id uuid        NOT NULL,
  created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  run_at            timestamptz NOT NULL,
  queued_at         timestamptz,
  approved_at       timestamptz,
  finished_at       timestamptz,
  leased_until      timestamptz,
  lease_number      bigint      NOT NULL DEFAULT 0,
  priority          smallint    NOT NULL DEFAULT 0,
  attempts          smallint    NOT NULL DEFAULT 0,
  max_attempts      smallint    NOT NULL,
  needs_approval    boolean     NOT NULL DEFAULT false,
  amount            numeric     NOT NULL,
  currency          text        NOT NULL,
  status            text        NOT NULL,
  leased_by         text,
  approved_by       text,
  last_code         text        NOT NULL DEFAULT '',
  description       text        NOT NULL DEFAULT '',
  metadata          jsonb       NOT NULL DEFAULT '{}',
  failures          jsonb       NOT NULL DEFAULT '[]',

  CONSTRAINT payments_pkey PRIMARY KEY (id),
  CONSTRAINT payments_status_known CHECK (status IN
    ('scheduled', 'awaiting_approval', 'queued', 'processing', 'done', 'failed', 'canceled')),
  CONSTRAINT payments_two_accounts CHECK (debit_account_id <> credit_account_id),
  CONSTRAINT payments_currency_form CHECK (currency ~ '^[A-Z]{3}$'),
  CONSTRAINT payments_amount_range CHECK (amount > 0 AND amount < 1e18 AND scale(amount) <= 18),
  CONSTRAINT payments_priority_range CHECK (priority BETWEEN 0 AND 9),
  CONSTRAINT payments_attempts_range CHECK (attempts BETWEEN 0 AND max_attempts AND max_attempts BETWEEN 1 AND 100),
  CONSTRAINT payments_queued_since CHECK ((status = 'queued') = (queued_at IS NOT NULL)),
  CONSTRAINT payments_leased CHECK ((status = 'processing') = (leased_by IS NOT NULL)
                                AND (status = 'processing') = (leased_until IS NOT NULL)),
  CONSTRAINT payments_finished CHECK ((status IN ('done', 'failed', 'canceled')) = (finished_at IS NOT NULL)),
  CONSTRAINT payments_approved CHECK ((approved_at IS NULL) = (approved_by IS NULL)),
  CONSTRAINT payments_description_length CHECK (char_length(description) <= 500),
  CONSTRAINT payments_metadata_object CHECK (jsonb_typeof(metadata) = 'object'),
  CONSTRAINT payments_failures_array CHECK (jsonb_typeof(failures) = 'array')
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX payments_queue ON payments (priority, queued_at, id) WHERE status = 'queued';
CREATE INDEX payments_schedule ON payments (run_at) WHERE status = 'scheduled';
CREATE INDEX payments_leases ON payments (leased_until) WHERE status = 'processing';

-- For the lists.
CREATE INDEX payments_status_id ON payments (status, id);
CREATE INDEX payments_debit_account ON payments (debit_account_id, id);
CREATE INDEX payments_credit_account ON payments (credit_account_id, id);

-- What was made, or called off, stays so.
CREATE TRIGGER payments_final BEFORE UPDATE ON payments
  FOR EACH ROW WHEN (OLD.status IN ('done', 'canceled')) EXECUTE FUNCTION refuse_change();

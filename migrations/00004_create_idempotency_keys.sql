-- +goose Up

-- A client's name for one intended effect. The claim names the effect by the
-- id that it has or would have had; a success is replayed from the immutable
-- row of that id, so only refusals, and answers whose resource can change
-- later, are stored. A new table: nothing is locked for long.
--
-- COLLATE "C": keys are locked in byte order, which is also Go's.
SET LOCAL lock_timeout = '2s';

CREATE TABLE idempotency_keys (
  resource_id uuid        NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  principal   text        COLLATE "C" NOT NULL,
  key         text        COLLATE "C" NOT NULL,
  fingerprint bytea       NOT NULL,
  refusal     jsonb,
  answer      jsonb,

  CONSTRAINT idempotency_keys_pkey PRIMARY KEY (principal, key),
  CONSTRAINT idempotency_keys_fingerprint_length CHECK (octet_length(fingerprint) = 32),
  CONSTRAINT idempotency_keys_key_length CHECK (octet_length(key) BETWEEN 1 AND 255),
  CONSTRAINT idempotency_keys_one_outcome CHECK (refusal IS NULL OR answer IS NULL)
);

-- For the sweeper, which removes the oldest first.
CREATE INDEX idempotency_keys_created_at ON idempotency_keys (created_at);

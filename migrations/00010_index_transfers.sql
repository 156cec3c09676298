-- +goose NO TRANSACTION
-- +goose Up

-- Ways to find transfers. All but the last are partial: a transfer that does not
-- use one pays nothing for it. The last is a summary of ranges of pages, which
-- inserting does not write. Built CONCURRENTLY, so writers never wait; what an
-- interrupted try has left is removed first.

DROP INDEX CONCURRENTLY IF EXISTS transfers_hold;
CREATE INDEX CONCURRENTLY transfers_hold ON transfers (hold_id, id) WHERE hold_id IS NOT NULL;

-- All reversals of one transfer, summed after its accounts are locked.
DROP INDEX CONCURRENTLY IF EXISTS transfers_reverses;
CREATE INDEX CONCURRENTLY transfers_reverses ON transfers (reverses_transfer_id, id) WHERE reverses_transfer_id IS NOT NULL;

DROP INDEX CONCURRENTLY IF EXISTS transfers_batch;
CREATE INDEX CONCURRENTLY transfers_batch ON transfers (batch_id, id) WHERE batch_id IS NOT NULL;

-- A reference is unique for the customer's side: the account that pays, and
-- where the money comes from outside, the one that is paid.
DROP INDEX CONCURRENTLY IF EXISTS transfers_reference;
CREATE UNIQUE INDEX CONCURRENTLY transfers_reference ON transfers
  ((CASE kind WHEN 'credit' THEN credit_account_id ELSE debit_account_id END), reference) WHERE reference IS NOT NULL;

DROP INDEX CONCURRENTLY IF EXISTS transfers_metadata;
CREATE INDEX CONCURRENTLY transfers_metadata ON transfers USING gin (metadata jsonb_path_ops) WHERE metadata <> '{}';

DROP INDEX CONCURRENTLY IF EXISTS transfers_ranges;
CREATE INDEX CONCURRENTLY transfers_ranges ON transfers USING brin (created_at, amount);

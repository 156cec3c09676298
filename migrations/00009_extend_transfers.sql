-- +goose Up

-- What a transfer may belong to, and the caller's own name for it. Most have
-- none of it, and a column without a value takes no room. Locks transfers for a
-- moment: nothing is written.
--
-- The length of a reference is checked by the service alone: a CHECK on this
-- table is read anew by every statement that inserts.
SET LOCAL lock_timeout = '2s';

ALTER TABLE transfers
  ADD COLUMN hold_id              uuid,
  ADD COLUMN reverses_transfer_id uuid,
  ADD COLUMN batch_id             uuid,
  ADD COLUMN reference            text;

-- +goose Up

-- The constraints of the migration before, over the rows that were there. It
-- reads the whole table and keeps neither readers nor writers waiting; then the
-- constraints that are implied by new ones go, which locks accounts for a moment.
SET LOCAL lock_timeout = '2s';

ALTER TABLE accounts VALIDATE CONSTRAINT accounts_held_range;
ALTER TABLE accounts VALIDATE CONSTRAINT accounts_available_covered;
ALTER TABLE accounts VALIDATE CONSTRAINT accounts_balance_capped;
ALTER TABLE accounts VALIDATE CONSTRAINT accounts_closed_has_nothing;
ALTER TABLE accounts VALIDATE CONSTRAINT accounts_only_customers_have_rules;
ALTER TABLE accounts
  DROP CONSTRAINT accounts_balance_covered,
  DROP CONSTRAINT accounts_closed_empty,
  DROP CONSTRAINT accounts_only_external_unlimited;

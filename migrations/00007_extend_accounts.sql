-- +goose Up

-- What holds reserve, and the rules of an account: an upper limit, and locks for
-- each direction. Locks accounts for a moment: the columns have constant
-- defaults, and the rows are compared with the constraints by the next migration.
--
-- Every statement that writes a balance reads the constraints anew, so they are
-- few, and three of them take the place of older ones.
SET LOCAL lock_timeout = '2s';

ALTER TABLE accounts
  ADD COLUMN held            numeric NOT NULL DEFAULT 0,
  ADD COLUMN max_balance     numeric,
  ADD COLUMN debits_blocked  boolean NOT NULL DEFAULT false,
  ADD COLUMN credits_blocked boolean NOT NULL DEFAULT false,
  ADD CONSTRAINT accounts_held_range CHECK (held >= 0 AND held < 1e28 AND scale(held) <= 18) NOT VALID,
  ADD CONSTRAINT accounts_available_covered CHECK (balance - held >= min_balance) NOT VALID,
  ADD CONSTRAINT accounts_balance_capped CHECK (balance <= max_balance AND max_balance >= 0 AND max_balance < 1e28 AND scale(max_balance) <= 18) NOT VALID,
  ADD CONSTRAINT accounts_closed_has_nothing CHECK (status <> 'closed' OR balance = 0 AND held = 0) NOT VALID,
  ADD CONSTRAINT accounts_only_customers_have_rules CHECK
    (CASE kind WHEN 'customer' THEN min_balance IS NOT NULL
               ELSE min_balance IS NULL AND max_balance IS NULL AND held = 0 AND NOT debits_blocked AND NOT credits_blocked END) NOT VALID;

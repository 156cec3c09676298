package accounts

import (
	"context"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/money"
)

// Limits are between what an account's balance stays.
type Limits struct {
	MinBalance *decimal.Decimal     // zero or negative; nil: as it is
	MaxBalance *decimal.NullDecimal // zero or positive, or null for no limit; nil: as it is
}

// Validate returns an [*invalid.Error] with all that is wrong with l in any
// currency, or nil.
func (l Limits) Validate() error {
	var c invalid.Check
	if l.MinBalance == nil && l.MaxBalance == nil {
		c.Add("body", "must have min_balance or max_balance")
	}
	checkSigns(&c, l.MinBalance, l.greatest())
	return c.Err()
}

// greatest is the MaxBalance that is asked for, if one is.
func (l Limits) greatest() *decimal.Decimal {
	if l.MaxBalance == nil || !l.MaxBalance.Valid {
		return nil
	}
	return &l.MaxBalance.Decimal
}

func checkSigns(c *invalid.Check, least, greatest *decimal.Decimal) {
	if least != nil && least.Sign() > 0 {
		c.Add("min_balance", "must be zero or negative")
	}
	if greatest != nil && greatest.Sign() < 0 {
		c.Add("max_balance", "must be zero or positive")
	}
}

func checkScale(c *invalid.Check, currency string, least, greatest *decimal.Decimal) {
	check := func(field string, limit *decimal.Decimal) {
		if limit == nil {
			return
		}
		if err := money.CheckRange(*limit, currency); err != nil {
			c.Add(field, "%v", err)
		}
	}
	check("min_balance", least)
	check("max_balance", greatest)
}

// SetLimits changes an account's limits. The error matches [*invalid.Error],
// [ErrNotFound], [ErrExternal], [ErrClosed], [*OutOfLimitsError], or is one of
// package retry's. After any of them but [retry.ErrCommitUnknown] both limits
// are as they were.
func (s *Service) SetLimits(ctx context.Context, id uuid.UUID, l Limits) (Account, error) {
	if err := l.Validate(); err != nil {
		return Account{}, err
	}
	return s.change(ctx, id, func(a *Account) error {
		if a.Status == Closed {
			return ErrClosed
		}
		var c invalid.Check
		checkScale(&c, a.Currency, l.MinBalance, l.greatest())
		if err := c.Err(); err != nil {
			return err
		}
		return a.limit(l)
	})
}

// limit gives a the limits that are asked for, or says which of them it breaks.
func (a *Account) limit(l Limits) error {
	found := OutOfLimitsError{AccountID: a.ID, Currency: a.Currency, Balance: a.Balance, Held: a.Held}
	if l.MinBalance != nil {
		if a.Available().LessThan(*l.MinBalance) {
			found.MinBalance = l.MinBalance
			return &found
		}
		a.MinBalance = l.MinBalance
	}
	if l.MaxBalance != nil {
		greatest := l.greatest()
		if greatest != nil && a.Balance.GreaterThan(*greatest) {
			found.MaxBalance = greatest
			return &found
		}
		a.MaxBalance = greatest
	}
	return nil
}

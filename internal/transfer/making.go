package transfer

import (
	"errors"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/money"
)

// A making is the step that makes a transfer. A capture and a reversal are
// transfers, too; where their amount is zero, it is what is left.
type making struct {
	Command
	id       uuid.UUID
	hold     *capturing // nil: it captures nothing
	reverses *Transfer  // nil: it reverses nothing
	batchID  uuid.UUID  // uuid.Nil: it is alone

	transfer Transfer
	wasMade  bool
}

// A capturing is what a capture does to its hold.
type capturing struct {
	id    uuid.UUID
	final bool // releases what it leaves
}

// plain reports whether nothing but its two accounts decides on s.
func (s *making) plain() bool {
	return s.hold == nil && s.reverses == nil && s.Reference == "" && s.IfVersion == nil
}

func (s *making) touched() [2]uuid.UUID { return [2]uuid.UUID{s.DebitAccountID, s.CreditAccountID} }

func (s *making) need(n *needs) {
	if s.hold != nil {
		n.holds = append(n.holds, s.hold.id)
	}
	if s.reverses != nil {
		n.reversed = append(n.reversed, s.reverses.ID)
	}
	if s.Reference != "" {
		n.references = append(n.references, s.reference())
	}
}

func (s *making) reset() { s.transfer, s.wasMade = Transfer{}, false }

func (s *making) found() bool { return s.wasMade }

func (s *making) queueFind(b *pgx.Batch, id uuid.UUID) {
	b.Queue(selectTransferSQL, id).Query(func(rows pgx.Rows) error {
		t, err := pgx.CollectExactlyOneRow(rows, scanTransfer)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		s.transfer, s.wasMade = t, err == nil
		return err
	})
}

// A reference is a caller's name for a transfer, as it must be unique: for the
// account that pays, and where the money comes from outside, the one that is paid.
type reference struct {
	accountID uuid.UUID
	value     string
}

func (s *making) reference() reference { return reference{s.sides()[0], s.Reference} }

// sides returns both accounts, the customer's first, in the order in which
// they are judged.
func (c Command) sides() [2]uuid.UUID {
	if c.Kind == Credit {
		return [2]uuid.UUID{c.CreditAccountID, c.DebitAccountID}
	}
	return [2]uuid.UUID{c.DebitAccountID, c.CreditAccountID}
}

// judge makes the transfer in memory, or says why it cannot be made. What it
// reads must be held, or be checked when it is written.
func (s *making) judge(b *books) *Refusal {
	if refusal := s.admit(b); refusal != nil {
		return refusal
	}
	amount, released, refusal := s.amounts(b)
	if refusal != nil {
		return refusal
	}
	debit, credit := b.accounts[s.DebitAccountID], b.accounts[s.CreditAccountID]
	debit.reserve(released.Neg())
	if refusal := b.cover(debit, credit, amount); refusal != nil {
		debit.reserve(released)
		return refusal
	}
	s.transfer = Transfer{
		ID: s.id, Kind: s.Kind, DebitAccountID: s.DebitAccountID, CreditAccountID: s.CreditAccountID,
		Amount: amount, Currency: s.Currency, Description: s.Description, Metadata: s.Metadata,
		BatchID: s.batchID, Reference: s.Reference,
		DebitVersion: debit.add(amount.Neg()), CreditVersion: credit.add(amount),
		DebitBalanceAfter: debit.amount, CreditBalanceAfter: credit.amount,
		CreatedAt: b.at.UTC(),
	}
	b.transfers = append(b.transfers, &s.transfer)
	s.note(b, amount)
	return nil
}

// admit says why the accounts take no part in s, whatever its amount is.
func (s *making) admit(b *books) *Refusal {
	for _, side := range s.sides() {
		if refusal := b.admit(side, side == s.DebitAccountID, s.sides()[0], s.Currency); refusal != nil {
			return refusal
		}
	}
	if s.Reference != "" {
		if user, used := b.references[s.reference()]; used {
			return &Refusal{Code: "reference-used", AccountID: s.sides()[0], OtherID: &user}
		}
	}
	if debit := b.accounts[s.DebitAccountID]; s.IfVersion != nil && debit.version != *s.IfVersion {
		return &Refusal{Code: "version-mismatch", AccountID: debit.id, Version: strconv.FormatInt(debit.version, 10)}
	}
	return nil
}

// amounts returns what is moved, and what becomes available with it because it
// was reserved.
func (s *making) amounts(b *books) (amount, released decimal.Decimal, refusal *Refusal) {
	amount = s.Amount
	switch {
	case s.hold != nil:
		h := b.holds[s.hold.id]
		if refusal := h.refuse(b.at); refusal != nil {
			return amount, released, refusal
		}
		if amount.IsZero() {
			amount = h.Rest()
		}
		if amount.GreaterThan(h.Rest()) {
			return amount, released, s.tooMuch("capture-exceeds-hold", h.ID, h.Rest(), amount)
		}
		released = amount
		if s.hold.final {
			released = h.Rest()
		}
	case s.reverses != nil:
		rest := s.reverses.Amount.Sub(b.reversed[s.reverses.ID])
		if amount.IsZero() {
			amount = rest
		}
		if rest.IsZero() || amount.GreaterThan(rest) {
			return amount, released, s.tooMuch("reversal-exceeds-transfer", s.reverses.ID, rest, amount)
		}
	}
	return amount, released, nil
}

func (s *making) tooMuch(code string, of uuid.UUID, rest, amount decimal.Decimal) *Refusal {
	if amount.IsZero() { // what is left was asked for, and it is nothing
		amount = s.reverses.Amount
	}
	return &Refusal{
		Code: code, AccountID: s.DebitAccountID, OtherID: &of, Currency: s.Currency,
		Available: money.Format(rest, s.Currency), Required: money.Format(amount, s.Currency),
	}
}

// note notes what the transfer, made in memory, uses up.
func (s *making) note(b *books, amount decimal.Decimal) {
	if s.Reference != "" {
		b.references[s.reference()] = s.id
	}
	if s.hold != nil {
		s.transfer.HoldID = s.hold.id
		b.holds[s.hold.id].capture(amount, s.hold.final, b.at)
	}
	if s.reverses != nil {
		s.transfer.ReversesTransferID = s.reverses.ID
		b.reversed[s.reverses.ID] = b.reversed[s.reverses.ID].Add(amount)
	}
}

// admit says why an account takes no part in what moves money out of it, where
// debits is true, or into it. named is the account that the customer named.
func (b *books) admit(id uuid.UUID, debits bool, named uuid.UUID, currency string) *Refusal {
	a := b.accounts[id]
	switch {
	case a == nil && accounts.IsExternal(id):
		// No account has this currency yet, so the customer's has another.
		return &Refusal{Code: "currency-mismatch", AccountID: named, Currency: currency}
	case a == nil:
		return &Refusal{Code: "account-not-found", AccountID: id}
	case a.currency != currency:
		return &Refusal{Code: "currency-mismatch", AccountID: id, Currency: currency}
	case a.status == accounts.Frozen:
		return &Refusal{Code: "account-frozen", AccountID: id}
	case a.status == accounts.Closed:
		return &Refusal{Code: "account-closed", AccountID: id}
	case debits && a.debitsBlocked:
		return &Refusal{Code: "debits-blocked", AccountID: id}
	case !debits && a.creditsBlocked:
		return &Refusal{Code: "credits-blocked", AccountID: id}
	}
	return nil
}

// cover says why the balances do not allow amount to be moved.
func (b *books) cover(debit, credit *balance, amount decimal.Decimal) *Refusal {
	if refusal := b.fund(debit, amount); refusal != nil {
		return refusal
	}
	switch after := credit.amount.Add(amount); {
	case debit.amount.Sub(amount).LessThanOrEqual(money.BalanceLimit.Neg()):
		return &Refusal{Code: "limit-exceeded", AccountID: debit.id}
	case credit.max != nil && after.GreaterThan(*credit.max):
		return &Refusal{
			Code: "max-balance-exceeded", AccountID: credit.id, Currency: credit.currency,
			Available: money.Format(credit.max.Sub(credit.amount), credit.currency), Required: money.Format(amount, credit.currency),
		}
	case after.GreaterThanOrEqual(money.BalanceLimit):
		return &Refusal{Code: "limit-exceeded", AccountID: credit.id}
	}
	return nil
}

// fund says so where an account cannot pay amount. Where holds are why, they may
// have expired: the account is noted as one to look at.
func (b *books) fund(debit *balance, amount decimal.Decimal) *Refusal {
	if debit.min == nil || !debit.available().LessThan(amount) {
		return nil
	}
	if debit.held.Sign() > 0 {
		b.poor = append(b.poor, debit.id)
	}
	return &Refusal{
		Code: "insufficient-funds", AccountID: debit.id, Currency: debit.currency,
		Available: money.Format(debit.available(), debit.currency), Required: money.Format(amount, debit.currency),
	}
}

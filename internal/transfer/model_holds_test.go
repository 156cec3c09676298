package transfer_test

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/transfer"
)

type modelHold struct {
	id             uuid.UUID
	command        transfer.Command // what a capture of all of it would be
	rest, captured decimal.Decimal
	status         string // as it is shown
	swept          bool   // expired, and known to be released
}

type modelTransfer struct {
	id       uuid.UUID
	command  transfer.Command
	reverses *modelTransfer
	reversed decimal.Decimal
}

// held is what open holds keep of an account.
func (m *model) held(id uuid.UUID) (sum decimal.Decimal) {
	for _, h := range m.holds {
		if h.command.DebitAccountID == id && h.status == transfer.HoldOpen {
			sum = sum.Add(h.rest)
		}
	}
	return sum
}

// overdue is what expired holds may still keep.
func (m *model) overdue(id uuid.UUID) (sum decimal.Decimal) {
	for _, h := range m.holds {
		if h.command.DebitAccountID == id && h.status == transfer.HoldExpired && !h.swept {
			sum = sum.Add(h.rest)
		}
	}
	return sum
}

func (m *model) hold(t *rapid.T) {
	debit, credit := m.account(t, "debit"), m.account(t, "credit")
	c := transfer.NewDebit(debit, amountIn(t), m.currency(t, debit))
	if debit != credit && rapid.IntRange(0, 3).Draw(t, "to leave the ledger") > 0 {
		c.Kind, c.CreditAccountID = transfer.Between, credit
	}
	asked := transfer.HoldCommand{Kind: c.Kind, DebitAccountID: debit, CreditAccountID: c.CreditAccountID, Amount: c.Amount, Currency: c.Currency}
	if rapid.Bool().Draw(t, "expires") {
		asked.ExpiresAt = time.Now().Add(24 * time.Hour)
	}
	want := m.judgeHold(c)
	if got := m.send(t, holding(asked), want); want == nil {
		m.holds = append(m.holds, &modelHold{id: got.made.(transfer.Hold).ID, command: c, rest: c.Amount, status: transfer.HoldOpen})
	}
}

// judgeHold asks of the credit side only whether it is there.
func (m *model) judgeHold(c transfer.Command) error {
	alone := c
	alone.CreditAccountID = c.DebitAccountID
	credit := m.accounts[c.CreditAccountID]
	debit := m.accounts[c.DebitAccountID]
	if debit != nil {
		blocked := debit.creditsBlocked
		debit.creditsBlocked = false // it gets nothing
		defer func() { debit.creditsBlocked = blocked }()
	}
	switch err := m.admit(alone); {
	case err != nil:
		return err
	case credit == nil && accounts.IsExternal(c.CreditAccountID):
		return transfer.ErrCurrencyMismatch
	case credit == nil:
		return transfer.ErrAccountNotFound
	case credit.currency != c.Currency:
		return transfer.ErrCurrencyMismatch
	case debit.balance.Sub(m.held(c.DebitAccountID)).Sub(c.Amount).LessThan(*debit.min):
		return transfer.ErrInsufficientFunds
	}
	return nil
}

func (m *model) someHold(t *rapid.T) *modelHold {
	if len(m.holds) == 0 {
		t.Skip("no hold")
	}
	return rapid.SampledFrom(m.holds).Draw(t, "hold")
}

// part is an amount, or none for all of it.
func part(t *rapid.T) string {
	if rapid.IntRange(0, 2).Draw(t, "all of it") == 0 {
		return ""
	}
	return amountIn(t).String()
}

func (m *model) capture(t *rapid.T) {
	h := m.someHold(t)
	asked := transfer.Capture{HoldID: h.id, Amount: part(t), Final: rapid.Bool().Draw(t, "final")}
	c := h.command
	c.Reference = rapid.SampledFrom([]string{"", "", "a", "d"}).Draw(t, "reference")
	asked.Reference = c.Reference
	want := m.judgeCapture(h, &c, asked)
	got := m.send(t, capturing(asked), want)
	if want != nil {
		return
	}
	h.rest, h.captured = h.rest.Sub(c.Amount), h.captured.Add(c.Amount)
	if asked.Final || h.rest.IsZero() {
		h.status = transfer.HoldCaptured
	}
	m.enter(c)
	m.wantMade(t, c, got.made.(transfer.Transfer))
}

func (m *model) judgeCapture(h *modelHold, c *transfer.Command, asked transfer.Capture) error {
	if err := m.admit(*c); err != nil {
		return err
	}
	if h.status != transfer.HoldOpen {
		return transfer.ErrHoldStatus
	}
	c.Amount = h.rest
	if asked.Amount != "" {
		c.Amount = number(asked.Amount)
	}
	if c.Amount.GreaterThan(h.rest) {
		return transfer.ErrCaptureExceedsHold
	}
	released := c.Amount
	if asked.Final {
		released = h.rest
	}
	return m.cover(*c, released)
}

func (m *model) void(t *rapid.T) {
	h := m.someHold(t)
	var want error
	if h.status != transfer.HoldOpen && h.status != transfer.HoldVoided {
		want = transfer.ErrHoldStatus
	}
	wantAnswer(t, "void", voiding(h.id)(context.Background(), m.service(t), transfer.Call{}), want)
	if h.status == transfer.HoldOpen {
		h.status = transfer.HoldVoided
	}
}

// expire has the time of a hold be over.
func (m *model) expire(t *rapid.T) {
	h := m.someHold(t)
	if h.status != transfer.HoldOpen {
		t.Skip("it has ended")
	}
	if _, err := m.l.db.Exec(context.Background(), `UPDATE holds SET expires_at = created_at WHERE id = $1`, h.id); err != nil {
		t.Fatal(err)
	}
	h.status = transfer.HoldExpired
}

func (m *model) sweep(t *rapid.T) {
	for {
		n, err := m.service(t).ExpireHolds(context.Background(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if n < 100 {
			break
		}
	}
	for _, h := range m.holds {
		h.swept = h.status == transfer.HoldExpired
	}
}

func (m *model) reverse(t *rapid.T) {
	if len(m.made) == 0 {
		t.Skip("no transfer")
	}
	original := rapid.SampledFrom(m.made).Draw(t, "original")
	asked := transfer.Reversal{TransferID: original.id, Amount: part(t)}
	c := transfer.Command{
		Kind:           map[string]string{transfer.Between: transfer.Between, transfer.Debit: transfer.Credit, transfer.Credit: transfer.Debit}[original.command.Kind],
		DebitAccountID: original.command.CreditAccountID, CreditAccountID: original.command.DebitAccountID, Currency: original.command.Currency,
		Reference: rapid.SampledFrom([]string{"", "", "b", "e"}).Draw(t, "reference"),
	}
	asked.Reference = c.Reference
	want := m.judgeReversal(original, &c, asked)
	got := m.send(t, reversing(asked), want)
	if want != nil {
		return
	}
	m.enter(c)
	m.wantMade(t, c, got.made.(transfer.Transfer))
	m.made[len(m.made)-1].reverses = original
	original.reversed = original.reversed.Add(c.Amount)
}

func (m *model) judgeReversal(original *modelTransfer, c *transfer.Command, asked transfer.Reversal) error {
	if original.reverses != nil {
		return transfer.ErrReversalOfReversal
	}
	if err := m.admit(*c); err != nil {
		return err
	}
	rest := original.command.Amount.Sub(original.reversed)
	c.Amount = rest
	if asked.Amount != "" {
		c.Amount = number(asked.Amount)
	}
	if rest.IsZero() || c.Amount.GreaterThan(rest) {
		return transfer.ErrReversalExceedsTransfer
	}
	return m.cover(*c, decimal.Zero)
}

func (m *model) batch(t *rapid.T) {
	atomic := rapid.Bool().Draw(t, "atomic")
	cs := make([]transfer.Command, rapid.IntRange(1, 4).Draw(t, "members"))
	for i := range cs {
		cs[i] = m.between(t)
	}
	before := m.copyAccounts()
	wants := make([]error, len(cs))
	var first error
	for i, c := range cs {
		if wants[i] = m.judge(c); wants[i] == nil {
			m.enter(c)
		} else if atomic {
			first = wants[i]
			break
		}
	}
	after := m.accounts
	if first != nil {
		after = before
	}
	m.accounts = before // as it is while the request is on its way
	got := m.send(t, batching(atomic, cs...), first)
	m.accounts = after
	if first != nil {
		return
	}
	for i, o := range got.made.(transfer.Batch).Outcomes {
		if !errors.Is(o.Refusal, wants[i]) || (o.Refusal == nil) != (wants[i] == nil) {
			t.Fatalf("member %d: %v, want %v", i, o.Refusal, wants[i])
		}
		if o.Refusal == nil {
			m.made = append(m.made, &modelTransfer{id: o.Transfer.ID, command: cs[i]})
		}
	}
}

func (m *model) copyAccounts() map[uuid.UUID]*modelAccount {
	all := map[uuid.UUID]*modelAccount{}
	for id, a := range m.accounts {
		copied := *a
		copied.references = maps.Clone(a.references)
		all[id] = &copied
	}
	return all
}

// setRules changes limits and directions of an account, where its balance allows
// it.
func (m *model) setRules(t *rapid.T) {
	id := rapid.SampledFrom(m.ids).Draw(t, "account")
	a := m.accounts[id]
	if a.status == "closed" {
		t.Skip("closed")
	}
	debits, credits := rapid.IntRange(0, 4).Draw(t, "debits") == 0, rapid.IntRange(0, 4).Draw(t, "credits") == 0
	if _, err := m.l.accounts.SetDirections(context.Background(), id, accounts.Directions{DebitsBlocked: &debits, CreditsBlocked: &credits}); err != nil {
		t.Fatal(err)
	}
	a.debitsBlocked, a.creditsBlocked = debits, credits
	limit := decimal.NullDecimal{Decimal: decimal.NewFromInt(int64(rapid.IntRange(0, 60).Draw(t, "maximum"))), Valid: rapid.Bool().Draw(t, "has a maximum")}
	_, err := m.l.accounts.SetLimits(context.Background(), id, accounts.Limits{MaxBalance: &limit})
	if _, off := errors.AsType[*accounts.OutOfLimitsError](err); off != (limit.Valid && a.balance.GreaterThan(limit.Decimal)) || err != nil && !off {
		t.Fatalf("a maximum of %v for %s: error = %v", limit, a.balance, err)
	}
	if err == nil {
		a.max = nil
		if limit.Valid {
			a.max = &limit.Decimal
		}
	}
}

func (m *model) checkHolds(t *rapid.T) {
	for _, want := range m.holds {
		got, err := m.services[0].GetHold(context.Background(), want.id)
		if err != nil {
			t.Fatalf("get hold: %v", err)
		}
		if got.Status != want.status || !got.Captured.Equal(want.captured) {
			t.Fatalf("hold %s = %s, %s captured, want %s, %s", want.id, got.Status, got.Captured, want.status, want.captured)
		}
	}
	for _, want := range m.made {
		_, reversed, err := m.services[0].GetReversed(context.Background(), want.id)
		if err != nil || !reversed.Equal(want.reversed) {
			t.Fatalf("reversed of %s = %s, error %v, want %s", want.id, reversed, err, want.reversed)
		}
	}
}

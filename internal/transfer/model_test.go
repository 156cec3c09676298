package transfer_test

import (
	"cmp"
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/transfer"
)

// A model is what the ledger should do, in the simplest words.
type model struct {
	l        *ledger
	services []*transfer.Service
	ids      []uuid.UUID
	accounts map[uuid.UUID]*modelAccount
	answers  []modelAnswer // under keys
}

type modelAccount struct {
	currency, status string
	balance          decimal.Decimal
	min              *decimal.Decimal
	version          int64
}

type modelAnswer struct {
	command transfer.Command
	id      uuid.UUID
	err     error
}

// Whatever is done, in whatever order and in two modes by turns, the ledger
// answers as the model does, and holds what the model holds.
func TestTheLedgerDoesWhatAModelDoes(t *testing.T) {
	t.Parallel()
	setChecks(t)
	l := newLedger(t)
	rapid.Check(t, func(t *rapid.T) {
		other := rapid.SampledFrom(ways()).Draw(t, "other mode")
		m := &model{
			l: l, services: []*transfer.Service{l.service(transfer.Pessimistic), other.service(l.db, patient)},
			accounts: map[uuid.UUID]*modelAccount{},
		}
		for _, currency := range []string{"USD", "JPY", "USD"} {
			m.open(t, currency)
		}
		t.Repeat(map[string]func(*rapid.T){
			"open":     func(t *rapid.T) { m.open(t, rapid.SampledFrom([]string{"USD", "JPY"}).Draw(t, "currency")) },
			"transfer": m.transfer,
			"debit":    func(t *rapid.T) { m.outside(t, transfer.NewDebit) },
			"credit":   func(t *rapid.T) { m.outside(t, transfer.NewCredit) },
			"replay":   m.replay,
			"status":   m.setStatus,
			"":         m.check,
		})
	})
	l.wantSound(t)
}

func (m *model) open(t *rapid.T, currency string) {
	minimum := decimal.NewFromInt(int64(-rapid.IntRange(0, 20).Draw(t, "overdraft")))
	account, _, err := m.l.accounts.Open(context.Background(), accounts.Opening{Currency: currency, MinBalance: minimum})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	m.ids = append(m.ids, account.ID)
	m.accounts[account.ID] = &modelAccount{currency: currency, status: "open", min: &minimum}

	external := accounts.ExternalID(currency)
	if m.accounts[external] == nil { // other checks have left it somewhere
		account, err := m.l.accounts.Get(context.Background(), external)
		if err != nil {
			t.Fatalf("get the external account: %v", err)
		}
		m.accounts[external] = &modelAccount{currency: currency, status: "open", balance: account.Balance, version: account.Version}
	}
}

func (m *model) account(t *rapid.T, label string) uuid.UUID {
	if rapid.IntRange(0, 19).Draw(t, label+" is nobody") == 0 {
		return uuid.Must(uuid.NewV7())
	}
	return rapid.SampledFrom(m.ids).Draw(t, label)
}

func (m *model) currency(t *rapid.T, id uuid.UUID) string {
	if a := m.accounts[id]; a != nil && rapid.IntRange(0, 9).Draw(t, "own currency") > 0 {
		return a.currency
	}
	return rapid.SampledFrom([]string{"USD", "JPY"}).Draw(t, "currency")
}

func amountIn(t *rapid.T) decimal.Decimal {
	return decimal.NewFromInt(int64(rapid.IntRange(1, 30).Draw(t, "amount")))
}

func (m *model) transfer(t *rapid.T) {
	debit, credit := m.account(t, "debit"), m.account(t, "credit")
	if debit == credit {
		t.Skip("one account")
	}
	m.create(t, transfer.Command{
		Kind: transfer.Between, DebitAccountID: debit, CreditAccountID: credit, Amount: amountIn(t), Currency: m.currency(t, debit),
	})
}

func (m *model) outside(t *rapid.T, command func(uuid.UUID, decimal.Decimal, string) transfer.Command) {
	id := m.account(t, "account")
	m.create(t, command(id, amountIn(t), m.currency(t, id)))
}

func (m *model) create(t *rapid.T, c transfer.Command) {
	if rapid.Bool().Draw(t, "with a key") {
		c = keyed(c, uuid.NewString())
	}
	want := m.judge(c)
	made, replayed, err := m.service(t).Create(context.Background(), c)
	if !errors.Is(err, want) || (err == nil) != (want == nil) || replayed {
		t.Fatalf("%s of %s %s = replayed %v, error %v, want %v", c.Kind, c.Amount, c.Currency, replayed, err, want)
	}
	if c.Key != nil {
		m.answers = append(m.answers, modelAnswer{command: c, id: made.ID, err: want})
	}
	if err != nil {
		return
	}
	m.enter(c)
	debit, credit := m.accounts[c.DebitAccountID], m.accounts[c.CreditAccountID]
	if !made.DebitBalanceAfter.Equal(debit.balance) || !made.CreditBalanceAfter.Equal(credit.balance) ||
		made.DebitVersion != debit.version || made.CreditVersion != credit.version {
		t.Fatalf("made = %+v, want balances %s and %s, versions %d and %d", made, debit.balance, credit.balance, debit.version, credit.version)
	}
}

// enter makes the transfer that c asks for.
func (m *model) enter(c transfer.Command) {
	debit, credit := m.accounts[c.DebitAccountID], m.accounts[c.CreditAccountID]
	debit.balance, debit.version = debit.balance.Sub(c.Amount), debit.version+1
	credit.balance, credit.version = credit.balance.Add(c.Amount), credit.version+1
}

// judge says why c is refused, or nil.
func (m *model) judge(c transfer.Command) error {
	sides := []uuid.UUID{c.DebitAccountID, c.CreditAccountID}
	if c.Kind == transfer.Credit {
		sides = []uuid.UUID{c.CreditAccountID, c.DebitAccountID}
	}
	for _, id := range sides {
		a := m.accounts[id]
		switch {
		case a == nil:
			return transfer.ErrAccountNotFound
		case a.currency != c.Currency:
			return transfer.ErrCurrencyMismatch
		case a.status == "frozen":
			return transfer.ErrAccountFrozen
		case a.status == "closed":
			return transfer.ErrAccountClosed
		}
	}
	debit := m.accounts[c.DebitAccountID]
	if debit.min != nil && debit.balance.Sub(c.Amount).LessThan(*debit.min) {
		return transfer.ErrInsufficientFunds
	}
	return nil
}

func (m *model) replay(t *rapid.T) {
	if len(m.answers) == 0 {
		t.Skip("nothing to replay")
	}
	answer := rapid.SampledFrom(m.answers).Draw(t, "answer")
	made, replayed, err := m.service(t).Create(context.Background(), answer.command)
	if !replayed || made.ID != answer.id || !errors.Is(err, answer.err) || (err == nil) != (answer.err == nil) {
		t.Fatalf("replay = %s, replayed %v, error %v, want %s, %v", made.ID, replayed, err, answer.id, answer.err)
	}
}

func (m *model) setStatus(t *rapid.T) {
	id := rapid.SampledFrom(m.ids).Draw(t, "account")
	a := m.accounts[id]
	status := rapid.SampledFrom([]string{"open", "frozen", "open", "closed"}).Draw(t, "status")
	change := map[string]func(context.Context, uuid.UUID) (accounts.Account, error){
		"open": m.l.accounts.Unfreeze, "frozen": m.l.accounts.Freeze, "closed": m.l.accounts.Close,
	}[status]
	var want error
	switch {
	case a.status == "closed" && status != "closed":
		want = accounts.ErrClosed
	case status == "closed" && !a.balance.IsZero():
		want = accounts.ErrNotEmpty
	default:
		a.status = status
	}
	if _, err := change(context.Background(), id); !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Fatalf("to %s: error = %v, want %v", status, err, want)
	}
}

func (m *model) service(t *rapid.T) *transfer.Service {
	return rapid.SampledFrom(m.services).Draw(t, "service")
}

// check compares the accounts that a check has.
func (m *model) check(t *rapid.T) {
	for id, want := range m.accounts {
		got, err := m.l.accounts.Get(context.Background(), id)
		if err != nil {
			t.Fatalf("get: %v", err)
		}
		if cmp.Or(got.Balance.Cmp(want.balance), cmp.Compare(got.Version, want.version), cmp.Compare(got.Status, want.status)) != 0 {
			t.Fatalf("account %s = %s %s, version %d, want %s %s, version %d", id, got.Balance, got.Status, got.Version, want.balance, want.status, want.version)
		}
	}
}

package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	holds    []*modelHold
	made     []*modelTransfer
	answers  []modelAnswer // under keys
}

type modelAccount struct {
	currency, status              string
	balance                       decimal.Decimal
	min, max                      *decimal.Decimal
	debitsBlocked, creditsBlocked bool
	references                    map[string]bool
	version                       int64
}

type modelAnswer struct {
	key     string
	request request
	result  result
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
			"hold":     m.hold,
			"capture":  m.capture,
			"void":     m.void,
			"expire":   m.expire,
			"sweep":    m.sweep,
			"reverse":  m.reverse,
			"batch":    m.batch,
			"replay":   m.replay,
			"status":   m.setStatus,
			"rules":    m.setRules,
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
	m.accounts[account.ID] = &modelAccount{currency: currency, status: "open", min: &minimum, references: map[string]bool{}}

	external := accounts.ExternalID(currency)
	if m.accounts[external] == nil { // other checks have left it somewhere
		account, err := m.l.accounts.Get(context.Background(), external)
		if err != nil {
			t.Fatalf("get the external account: %v", err)
		}
		m.accounts[external] = &modelAccount{currency: currency, status: "open", balance: account.Balance, version: account.Version, references: map[string]bool{}}
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

// adorn adds to c what a caller may add.
func (m *model) adorn(t *rapid.T, c transfer.Command) transfer.Command {
	c.Reference = rapid.SampledFrom([]string{"", "", "", "", "a", "b", "c"}).Draw(t, "reference")
	if debit := m.accounts[c.DebitAccountID]; debit != nil && rapid.IntRange(0, 9).Draw(t, "has a version") == 0 {
		c.IfVersion = new(debit.version + int64(rapid.IntRange(0, 1).Draw(t, "version")))
	}
	return c
}

func (m *model) between(t *rapid.T) transfer.Command {
	debit, credit := m.account(t, "debit"), m.account(t, "credit")
	if debit == credit {
		credit = uuid.Must(uuid.NewV7())
	}
	return m.adorn(t, transfer.Command{
		Kind: transfer.Between, DebitAccountID: debit, CreditAccountID: credit, Amount: amountIn(t), Currency: m.currency(t, debit),
	})
}

func (m *model) transfer(t *rapid.T) { m.create(t, m.between(t)) }

func (m *model) outside(t *rapid.T, command func(uuid.UUID, decimal.Decimal, string) transfer.Command) {
	id := m.account(t, "account")
	m.create(t, m.adorn(t, command(id, amountIn(t), m.currency(t, id))))
}

func (m *model) create(t *rapid.T, c transfer.Command) {
	want := m.judge(c)
	if got := m.send(t, creating(c), want); want == nil {
		m.enter(c)
		m.wantMade(t, c, got.made.(transfer.Transfer))
	}
}

// send sends r, perhaps under a key, perhaps rehearsed before, and wants that
// answer.
func (m *model) send(t *rapid.T, r request, want error) result {
	key := ""
	if rapid.Bool().Draw(t, "with a key") {
		key = uuid.NewString()
	}
	s := m.service(t)
	if rapid.IntRange(0, 9).Draw(t, "rehearsed") == 0 {
		call := callUnder(key)
		call.DryRun = true
		wantAnswer(t, "dry run", r(context.Background(), s, call), want)
	}
	got := r(context.Background(), s, callUnder(key))
	wantAnswer(t, "request", got, want)
	if key != "" && !errors.Is(want, transfer.ErrNotFound) && !errors.Is(want, transfer.ErrReversalOfReversal) {
		m.answers = append(m.answers, modelAnswer{key, r, got})
	}
	return got
}

func wantAnswer(t *rapid.T, what string, got result, want error) {
	if !errors.Is(got.err, want) || (got.err == nil) != (want == nil) || got.replayed {
		t.Fatalf("%s: replayed %v, error %v, want %v", what, got.replayed, got.err, want)
	}
}

// wantMade compares what was made of c, which the model has made as well.
func (m *model) wantMade(t *rapid.T, c transfer.Command, made transfer.Transfer) {
	debit, credit := m.accounts[c.DebitAccountID], m.accounts[c.CreditAccountID]
	if !made.Amount.Equal(c.Amount) || !made.DebitBalanceAfter.Equal(debit.balance) || !made.CreditBalanceAfter.Equal(credit.balance) ||
		made.DebitVersion != debit.version || made.CreditVersion != credit.version {
		t.Fatalf("made = %+v, want %s, balances %s and %s, versions %d and %d", made, c.Amount, debit.balance, credit.balance, debit.version, credit.version)
	}
	m.made = append(m.made, &modelTransfer{id: made.ID, command: c})
}

// enter makes the transfer that c asks for.
func (m *model) enter(c transfer.Command) {
	debit, credit := m.accounts[c.DebitAccountID], m.accounts[c.CreditAccountID]
	debit.balance, debit.version = debit.balance.Sub(c.Amount), debit.version+1
	credit.balance, credit.version = credit.balance.Add(c.Amount), credit.version+1
	if c.Reference != "" {
		m.accounts[sidesOf(c)[0]].references[c.Reference] = true
	}
}

// sidesOf are both accounts, the customer's first.
func sidesOf(c transfer.Command) [2]uuid.UUID {
	if c.Kind == transfer.Credit {
		return [2]uuid.UUID{c.CreditAccountID, c.DebitAccountID}
	}
	return [2]uuid.UUID{c.DebitAccountID, c.CreditAccountID}
}

// judge says why c is refused, or nil.
func (m *model) judge(c transfer.Command) error {
	if err := m.admit(c); err != nil {
		return err
	}
	return m.cover(c, decimal.Zero)
}

func (m *model) admit(c transfer.Command) error {
	for _, id := range sidesOf(c) {
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
		case a.debitsBlocked && id == c.DebitAccountID:
			return transfer.ErrDebitsBlocked
		case a.creditsBlocked && id == c.CreditAccountID:
			return transfer.ErrCreditsBlocked
		}
	}
	if c.Reference != "" && m.accounts[sidesOf(c)[0]].references[c.Reference] {
		return transfer.ErrReferenceUsed
	}
	if c.IfVersion != nil && *c.IfVersion != m.accounts[c.DebitAccountID].version {
		return transfer.ErrVersionMismatch
	}
	return nil
}

// cover says whether the balances allow c, with released out of its own hold.
func (m *model) cover(c transfer.Command, released decimal.Decimal) error {
	debit, credit := m.accounts[c.DebitAccountID], m.accounts[c.CreditAccountID]
	if debit.min != nil && debit.balance.Sub(m.held(c.DebitAccountID)).Add(released).Sub(c.Amount).LessThan(*debit.min) {
		return transfer.ErrInsufficientFunds
	}
	if credit.max != nil && credit.balance.Add(c.Amount).GreaterThan(*credit.max) {
		return transfer.ErrMaxBalanceExceeded
	}
	return nil
}

func (m *model) replay(t *rapid.T) {
	if len(m.answers) == 0 {
		t.Skip("nothing to replay")
	}
	a := rapid.SampledFrom(m.answers).Draw(t, "answer")
	got := a.request(context.Background(), m.service(t), callUnder(a.key))
	if diff := cmp.Diff(a.result.made, got.made, sameAnswers); diff != "" || !got.replayed {
		t.Fatalf("replayed %v, error %v (-first +replay):\n%s", got.replayed, got.err, diff)
	}
	if fmt.Sprint(a.result.err) != fmt.Sprint(got.err) {
		t.Fatalf("error = %v, want %v as before", got.err, a.result.err)
	}
}

func (m *model) setStatus(t *rapid.T) {
	id := rapid.SampledFrom(m.ids).Draw(t, "account")
	a := m.accounts[id]
	status := rapid.SampledFrom([]string{"open", "frozen", "open", "closed"}).Draw(t, "status")
	change := map[string]func(context.Context, uuid.UUID) (accounts.Account, error){
		"open": m.l.accounts.Unfreeze, "frozen": m.l.accounts.Freeze, "closed": m.l.accounts.Close,
	}[status]
	m.sweep(t) // what expired holds keep is still in the way
	var want error
	switch {
	case a.status == "closed" && status != "closed":
		want = accounts.ErrClosed
	case status == "closed" && (!a.balance.IsZero() || !m.held(id).IsZero()):
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

// check compares the accounts and holds that a check has.
func (m *model) check(t *rapid.T) {
	for id, want := range m.accounts {
		got, err := m.l.accounts.Get(context.Background(), id)
		if err != nil {
			t.Fatalf("get: %v", err)
		}
		if !got.Balance.Equal(want.balance) || got.Version != want.version || got.Status != want.status {
			t.Fatalf("account %s = %s %s, version %d, want %s %s, version %d", id, got.Balance, got.Status, got.Version, want.balance, want.status, want.version)
		}
		if least, most := m.held(id), m.held(id).Add(m.overdue(id)); got.Held.LessThan(least) || got.Held.GreaterThan(most) {
			t.Fatalf("account %s holds %s, want %s, and %s before the expired ones are released", id, got.Held, least, most)
		}
	}
	m.checkHolds(t)
}

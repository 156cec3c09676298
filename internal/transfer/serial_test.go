package transfer_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/rowlock/ledger/internal/transfer"
)

// Whatever is asked for at the same time, of groups of any shape and in two
// processes, the answers are those of some order, one after the other. The
// order of the transfers is known from the places that they took in both
// statements; a refusal must be what the model says at some place in it.
func TestGroupsDoWhatSomeOrderDoes(t *testing.T) {
	t.Parallel()
	setChecks(t)
	l := newLedger(t)
	rapid.Check(t, func(t *rapid.T) {
		m := &model{l: l, services: groupsOf(t, l), accounts: map[uuid.UUID]*modelAccount{}}
		for range rapid.IntRange(2, 5).Draw(t, "accounts") {
			m.open(t, "USD")
		}
		m.open(t, "JPY")
		for range rapid.IntRange(1, 3).Draw(t, "waves") {
			m.setStatus(t)
			m.wave(t)
			m.check(t)
		}
	})
	l.wantSound(t)
}

// setChecks has rapid check less often than it would by itself: each check is
// of dozens of transactions.
func setChecks(t *testing.T) {
	t.Helper()
	checksOnce.Do(func() {
		if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
			if err := checks.Value.Set("20"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

var checksOnce sync.Once

func groupsOf(t *rapid.T, l *ledger) (services []*transfer.Service) {
	for range 2 {
		g := transfer.Grouping{
			Size: rapid.SampledFrom([]int{1, 3, 64}).Draw(t, "size"), Lanes: rapid.IntRange(1, 3).Draw(t, "lanes"), Queue: 1024,
			LockWait: time.Duration(rapid.SampledFrom([]int{1, 50}).Draw(t, "lock wait")) * time.Millisecond, Waiters: 2,
		}
		services = append(services, transfer.New(l.db, transfer.Pessimistic, transfer.Locking{}, patient).Grouped(g))
	}
	return services
}

// A question is a command of a wave and its answer.
type question struct {
	command transfer.Command
	service *transfer.Service
	answer
}

// wave sends commands at once, some of them twice under one key, and judges
// their answers.
func (m *model) wave(t *rapid.T) {
	var questions []*question
	for range rapid.IntRange(1, 40).Draw(t, "commands") {
		c := m.command(t)
		if rapid.Bool().Draw(t, "with a key") {
			c = keyed(c, uuid.NewString())
		}
		for range rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "times") {
			questions = append(questions, &question{command: c, service: m.service(t)})
		}
	}
	together(len(questions), func(i int) {
		q := questions[i]
		q.transfer, q.replayed, q.err = q.service.Create(context.Background(), q.command)
	})
	m.judgeAnswers(t, questions)
}

func (m *model) command(t *rapid.T) transfer.Command {
	debit, credit := m.account(t, "debit"), m.account(t, "credit")
	currency, amount := m.currency(t, debit), amountIn(t)
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	switch {
	case kind == 0:
		return transfer.NewDebit(debit, amount, currency)
	case kind == 1 || debit == credit:
		return transfer.NewCredit(debit, amount, currency)
	}
	return between(debit, credit, amount.String(), currency)
}

// judgeAnswers finds the order in which the transfers were made, makes them in
// the model, and looks for the place of each refusal.
func (m *model) judgeAnswers(t *rapid.T, questions []*question) {
	first := map[string]*question{} // by key
	var made, refused []*question
	for _, q := range questions {
		switch {
		case q.replayed:
			continue
		case q.command.Key != nil && first[q.command.Key.Value] != nil:
			t.Fatalf("two answers of the key %s are no replays", q.command.Key.Value)
		case q.command.Key != nil:
			first[q.command.Key.Value] = q
		}
		if q.err == nil {
			made = append(made, q)
		} else {
			refused = append(refused, q)
		}
	}
	for _, q := range questions {
		if q.replayed {
			m.judgeReplay(t, first[q.command.Key.Value], q)
		}
	}
	refused = m.explain(t, refused)
	for len(made) > 0 {
		i := slices.IndexFunc(made, func(q *question) bool { return m.isNext(q.transfer) })
		if i < 0 {
			t.Fatalf("no order explains the places of %d transfers, %+v", len(made), made[0].transfer)
		}
		m.makeNext(t, made[i])
		made = slices.Delete(made, i, i+1)
		refused = m.explain(t, refused)
	}
	for _, q := range refused {
		t.Errorf("%s of %s was refused, and at no place of the order is this true: %v", q.command.Kind, q.command.Amount, q.err)
	}
}

func (m *model) judgeReplay(t *rapid.T, first, q *question) {
	if first == nil {
		t.Fatalf("all answers of the key %s are replays", q.command.Key.Value)
	}
	if q.transfer.ID != first.transfer.ID || fmt.Sprint(q.err) != fmt.Sprint(first.err) {
		t.Fatalf("replay = %s, %v, want %s, %v", q.transfer.ID, q.err, first.transfer.ID, first.err)
	}
}

// isNext reports whether made is the next entry of both its accounts.
func (m *model) isNext(made transfer.Transfer) bool {
	debit, credit := m.accounts[made.DebitAccountID], m.accounts[made.CreditAccountID]
	return made.DebitVersion == debit.version+1 && made.CreditVersion == credit.version+1
}

func (m *model) makeNext(t *rapid.T, q *question) {
	if err := m.judge(q.command); err != nil {
		t.Fatalf("%s of %s was made, want %v", q.command.Kind, q.command.Amount, err)
	}
	m.enter(q.command)
	debit, credit := m.accounts[q.command.DebitAccountID], m.accounts[q.command.CreditAccountID]
	if !q.transfer.DebitBalanceAfter.Equal(debit.balance) || !q.transfer.CreditBalanceAfter.Equal(credit.balance) {
		t.Fatalf("made = %+v, want balances %s and %s", q.transfer, debit.balance, credit.balance)
	}
}

// explain returns those of refused that the model, as it is, would not refuse
// with the same words.
func (m *model) explain(t *rapid.T, refused []*question) []*question {
	return slices.DeleteFunc(refused, func(q *question) bool {
		var refusal *transfer.Refusal
		if !errors.As(q.err, &refusal) {
			t.Fatalf("error = %v, want a refusal", q.err)
		}
		want := m.judge(q.command)
		if want == nil || !errors.Is(q.err, want) {
			return false
		}
		if !errors.Is(want, transfer.ErrInsufficientFunds) {
			return true
		}
		debit := m.accounts[q.command.DebitAccountID]
		return decimal.RequireFromString(refusal.Available).Equal(debit.balance.Sub(*debit.min))
	})
}

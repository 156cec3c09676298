package accounts_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/transfer"
)

func setLimits(l accounts.Limits) changer {
	return func(s *accounts.Service, ctx context.Context, id uuid.UUID) (accounts.Account, error) {
		return s.SetLimits(ctx, id, l)
	}
}

func setMin(least string) changer { return setLimits(accounts.Limits{MinBalance: new(number(least))}) }

func setMax(most string) changer { return setLimits(accounts.Limits{MaxBalance: limit(most)}) }

// limit is a maximum as it is asked for; "" for none.
func limit(s string) *decimal.NullDecimal {
	if s == "" {
		return &decimal.NullDecimal{}
	}
	return new(decimal.NewNullDecimal(number(s)))
}

// errOutOfLimits stands for any [accounts.OutOfLimitsError] in tables.
var errOutOfLimits = errors.New("out of limits")

func sentinel(err error) error {
	if _, ok := errors.AsType[*accounts.OutOfLimitsError](err); ok {
		return errOutOfLimits
	}
	return err
}

func TestLimitsAreJudgedByTheBalance(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	for _, tt := range []struct {
		name          string
		balance, held string
		least, most   string // asked for; "-" for neither
		refused       string // says what breaks which limit
	}{
		{"room below and above", "10", "0", "-5", "20", ""},
		{"exactly", "10", "10", "0", "10", ""},
		{"an overdraft is used", "-10", "0", "-10", "0", ""},
		{"no limit above", "10", "0", "-", "", ""},
		{"a minimum above an overdraft", "-10", "0", "-9.99", "-", "has -10.00 USD, of which 0.00 is held: what is available is below a min_balance of -9.99"},
		{"a minimum above what is available", "10", "12", "-1.99", "-", "has 10.00 USD, of which 12.00 is held: what is available is below a min_balance of -1.99"},
		{"a maximum below the balance", "10", "10", "-", "9.99", "has 10.00 USD, of which 10.00 is held: the balance is above a max_balance of 9.99"},
		{"one of two", "10", "0", "-1", "0", "has 10.00 USD, of which 0.00 is held: the balance is above a max_balance of 0.00"},
	} {
		before := open(t, s, accounts.Opening{Currency: "USD", MinBalance: number("-50"), MaxBalance: new(number("1000"))})
		exec(t, db, `UPDATE accounts SET balance = $2::text::numeric, held = $3::text::numeric WHERE id = $1`, before.ID, tt.balance, tt.held)
		before.Balance, before.Held = number(tt.balance), number(tt.held)
		want := before
		var l accounts.Limits
		if tt.least != "-" {
			l.MinBalance = new(number(tt.least))
			want.MinBalance = l.MinBalance
		}
		if tt.most != "-" {
			l.MaxBalance, want.MaxBalance = limit(tt.most), nil
			if tt.most != "" {
				want.MaxBalance = &l.MaxBalance.Decimal
			}
		}
		got, err := s.SetLimits(t.Context(), before.ID, l)
		if tt.refused != "" {
			refusal, ok := errors.AsType[*accounts.OutOfLimitsError](err)
			if text := "account " + before.ID.String() + " " + tt.refused; !ok || refusal.Error() != text {
				t.Errorf("%s: error = %v, want %s", tt.name, err, text)
			}
			want = before
		} else if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +answered):\n%s", tt.name, err, diff)
		}
		stored, err := s.Get(t.Context(), before.ID)
		if diff := cmp.Diff(want, stored); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +stored):\n%s", tt.name, err, diff)
		}
	}
}

func TestLimitsHaveTheCurrencysScale(t *testing.T) {
	t.Parallel()
	_, s := newService(t)
	id := open(t, s, accounts.Opening{Currency: "JPY"}).ID
	for _, tt := range []struct {
		limits accounts.Limits
		want   []string
	}{
		{accounts.Limits{MinBalance: new(number("-0.1")), MaxBalance: limit("0.1")}, []string{"min_balance", "max_balance"}},
		{accounts.Limits{MinBalance: new(number("-1e18")), MaxBalance: limit("1e18")}, []string{"min_balance", "max_balance"}},
		{accounts.Limits{MinBalance: new(number("-1.0")), MaxBalance: limit("999999999999999999")}, nil},
	} {
		_, err := s.SetLimits(t.Context(), id, tt.limits)
		if diff := cmp.Diff(tt.want, faultyFields(err)); diff != "" || (err == nil) != (tt.want == nil) {
			t.Errorf("error = %v, faulty fields (-want +got):\n%s", err, diff)
		}
	}
}

// While limits are set, transfers go on in every mode that keeps money. Whoever
// comes first, the answers tell of a state that the ledger then is in: a limit
// that was set holds, one that was refused was broken already, and the balance
// is what the transfers that were made have moved.
func TestLimitsRaceTransfers(t *testing.T) {
	t.Parallel()
	for _, mode := range transfer.Modes() {
		if mode.LosesMoney {
			continue
		}
		t.Run(mode.Name, func(t *testing.T) {
			t.Parallel()
			db, s := newService(t)
			transfers := transfer.New(db, mode, transfer.Locking{}, patient)
			for range 50 {
				raceLimit(t, s, transfers, transfer.NewCredit, accounts.Limits{MaxBalance: limit("2")})
				raceLimit(t, s, transfers, transfer.NewDebit, accounts.Limits{MinBalance: new(number("-2"))})
			}
			wantCount(t, db, `SELECT count(*) FROM accounts WHERE balance > max_balance OR balance - held < min_balance`, 0)
		})
	}
}

// raceLimit sets l, which allows two transfers, while four are made.
func raceLimit(t *testing.T, s *accounts.Service, transfers *transfer.Service,
	command func(uuid.UUID, decimal.Decimal, string) transfer.Command, l accounts.Limits) {
	t.Helper()
	id := open(t, s, accounts.Opening{Currency: "USD", MinBalance: number("-10")}).ID
	var made atomic.Int64
	var set error
	var done sync.WaitGroup
	for i := range 5 {
		done.Go(func() {
			if i == 2 {
				_, set = s.SetLimits(t.Context(), id, l)
				return
			}
			_, _, err := transfers.Create(t.Context(), command(id, number("1"), "USD"))
			_, refused := errors.AsType[*transfer.Refusal](err)
			switch {
			case err == nil:
				made.Add(1)
			case !refused && retry.SQLState(err) != "23514": // the second guard
				t.Errorf("transfer: error = %v, want none, a refusal or a constraint's", err)
			}
		})
	}
	done.Wait()
	account, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if moved := account.Balance.Abs(); !moved.Equal(decimal.NewFromInt(made.Load())) {
		t.Errorf("the balance is %s after %d transfers of 1", account.Balance, made.Load())
	}
	refusal, refused := errors.AsType[*accounts.OutOfLimitsError](set)
	switch {
	case set == nil && made.Load() != 2:
		t.Errorf("%d transfers are made under a limit of 2, which was set in time", made.Load())
	case refused && (made.Load() != 4 || refusal.Balance.Abs().LessThan(number("3"))):
		t.Errorf("%d transfers are made, and the limit is refused with %v", made.Load(), refusal)
	case set != nil && !refused:
		t.Errorf("SetLimits: error = %v", set)
	}
}

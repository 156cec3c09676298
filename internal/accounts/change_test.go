package accounts_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/invalid"
)

// A changer is a method of the service with what it is asked for.
type changer = func(*accounts.Service, context.Context, uuid.UUID) (accounts.Account, error)

func rename(name string) changer {
	return func(s *accounts.Service, ctx context.Context, id uuid.UUID) (accounts.Account, error) {
		return s.Update(ctx, id, accounts.Update{Name: &name})
	}
}

func blockDebits(s *accounts.Service, ctx context.Context, id uuid.UUID) (accounts.Account, error) {
	return s.SetDirections(ctx, id, accounts.Directions{DebitsBlocked: new(true)})
}

func TestUpdatesChangeWhatTheyNameAndNothingElse(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	want := open(t, s, accounts.Opening{
		Currency: "USD", Name: "Ada", MinBalance: number("-50"), MaxBalance: new(number("1000")), Metadata: map[string]string{"a": "b", "c": "d"},
	})
	credit(t, db, want.ID, "10", "USD")
	exec(t, db, `UPDATE accounts SET held = 4, debits_blocked = true, status = 'frozen' WHERE id = $1`, want.ID)
	want.Balance, want.Held, want.DebitsBlocked, want.Status, want.Version = number("10"), number("4"), true, "frozen", 1
	for _, tt := range []struct {
		name   string
		update accounts.Update
		change func(*accounts.Account)
	}{
		{"the name", accounts.Update{Name: new("Eve")}, func(a *accounts.Account) { a.Name = "Eve" }},
		{"metadata, as a whole", accounts.Update{Metadata: map[string]string{"e": "f"}}, func(a *accounts.Account) { a.Metadata = map[string]string{"e": "f"} }},
		{"both, to nothing", accounts.Update{Name: new(""), Metadata: map[string]string{}}, func(a *accounts.Account) { a.Name, a.Metadata = "", map[string]string{} }},
	} {
		tt.change(&want)
		got, err := s.Update(t.Context(), want.ID, tt.update)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +answered):\n%s", tt.name, err, diff)
		}
		stored, err := s.Get(t.Context(), want.ID)
		if diff := cmp.Diff(want, stored); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +stored):\n%s", tt.name, err, diff)
		}
	}
}

func TestDirectionsAreBlockedAlone(t *testing.T) {
	t.Parallel()
	_, s := newService(t)
	id := open(t, s, accounts.Opening{Currency: "USD"}).ID
	for _, tt := range []struct {
		directions      accounts.Directions
		debits, credits bool
	}{
		{accounts.Directions{DebitsBlocked: new(true)}, true, false},
		{accounts.Directions{DebitsBlocked: new(true)}, true, false},
		{accounts.Directions{CreditsBlocked: new(true)}, true, true},
		{accounts.Directions{DebitsBlocked: new(false)}, false, true},
		{accounts.Directions{DebitsBlocked: new(true), CreditsBlocked: new(false)}, true, false},
	} {
		got, err := s.SetDirections(t.Context(), id, tt.directions)
		stored, _ := s.Get(t.Context(), id)
		if diff := cmp.Diff(got, stored); diff != "" || err != nil {
			t.Errorf("error %v (-answered +stored):\n%s", err, diff)
		}
		if got.DebitsBlocked != tt.debits || got.CreditsBlocked != tt.credits {
			t.Errorf("debits blocked %v, credits %v, want %v, %v", got.DebitsBlocked, got.CreditsBlocked, tt.debits, tt.credits)
		}
	}
}

func TestChangesAreRefusedWhereTheyMayNotBe(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	opened := open(t, s, accounts.Opening{Currency: "JPY"}).ID
	frozen := open(t, s, accounts.Opening{Currency: "JPY"}).ID
	exec(t, db, `UPDATE accounts SET status = 'frozen' WHERE id = $1`, frozen)
	closed := open(t, s, accounts.Opening{Currency: "JPY"}).ID
	exec(t, db, `UPDATE accounts SET status = 'closed' WHERE id = $1`, closed)
	for name, tt := range map[string]struct {
		change   changer
		ofClosed error
	}{
		"an update":  {rename("Eve"), nil},
		"a minimum":  {setMin("-1"), accounts.ErrClosed},
		"a maximum":  {setMax("1"), accounts.ErrClosed},
		"directions": {blockDebits, accounts.ErrClosed},
	} {
		for id, want := range map[uuid.UUID]error{
			opened: nil, frozen: nil, closed: tt.ofClosed,
			accounts.ExternalID("JPY"): accounts.ErrExternal, uuid.Must(uuid.NewV7()): accounts.ErrNotFound,
		} {
			before, _ := s.Get(t.Context(), id)
			if _, err := tt.change(s, t.Context(), id); !errors.Is(err, want) {
				t.Errorf("%s of %s: error = %v, want %v", name, id, err, want)
			}
			if after, _ := s.Get(t.Context(), id); want != nil && !cmp.Equal(before, after) {
				t.Errorf("%s of %s is refused and changed it:\n%s", name, id, cmp.Diff(before, after))
			}
		}
	}
}

func TestChangesAreValidatedWithAllTheirFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change changer
		want   []string // fields
	}{
		{"an update of nothing", func(s *accounts.Service, ctx context.Context, id uuid.UUID) (accounts.Account, error) {
			return s.Update(ctx, id, accounts.Update{})
		}, []string{"body"}},
		{"a bad update", func(s *accounts.Service, ctx context.Context, id uuid.UUID) (accounts.Account, error) {
			return s.Update(ctx, id, accounts.Update{Name: new(strings.Repeat("ü", 201)), Metadata: map[string]string{"": "\x00"}})
		}, []string{"name", "metadata", "metadata/"}},
		{"limits of nothing", setLimits(accounts.Limits{}), []string{"body"}},
		{"bad limits", setLimits(accounts.Limits{MinBalance: new(number("0.01")), MaxBalance: limit("-0.01")}), []string{"min_balance", "max_balance"}},
		{"directions of nothing", func(s *accounts.Service, ctx context.Context, id uuid.UUID) (accounts.Account, error) {
			return s.SetDirections(ctx, id, accounts.Directions{})
		}, []string{"body"}},
	} {
		_, err := tt.change(accounts.New(nil, patient), t.Context(), uuid.Nil) // no database is asked
		if diff := cmp.Diff(tt.want, faultyFields(err)); diff != "" {
			t.Errorf("%s: faulty fields (-want +got):\n%s", tt.name, diff)
		}
	}
}

func faultyFields(err error) (fields []string) {
	var faults *invalid.Error
	if errors.As(err, &faults) {
		for _, f := range faults.Faults {
			fields = append(fields, f.Field)
		}
	}
	return fields
}

// A change whose COMMIT went unanswered is made again.
func TestALostAnswerOfAChangeIsFoundOut(t *testing.T) {
	t.Parallel()
	for _, carriedOut := range []bool{false, true} {
		db, s := newService(t)
		id := open(t, s, accounts.Opening{Currency: "USD"}).ID
		lossy := accounts.New(&lossyDB{Beginner: db, carriedOut: carriedOut}, patient)
		got, err := lossy.SetLimits(t.Context(), id, accounts.Limits{MinBalance: new(number("-5")), MaxBalance: limit("5")})
		stored, _ := s.Get(t.Context(), id)
		if diff := cmp.Diff(stored, got); diff != "" || err != nil || !stored.MinBalance.Equal(number("-5")) {
			t.Errorf("carried out %v: error %v (-stored +answered):\n%s", carriedOut, err, diff)
		}
	}
}

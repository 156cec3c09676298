package accounts_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/retry"
)

var zero = number("0")

func TestOpeningsAreValidatedWithAllTheirFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		opening accounts.Opening
		want    []string // fields
	}{
		{"good", accounts.Opening{Currency: "USD"}, nil},
		{"good overdraft", accounts.Opening{Currency: "KWD", MinBalance: number("-0.001")}, nil},
		{"good limits", accounts.Opening{Currency: "JPY", MinBalance: number("-1"), MaxBalance: new(number("0"))}, nil},
		{"all bad", accounts.Opening{
			ID: accounts.ExternalID("USD"), Currency: "usd", MinBalance: number("1"), MaxBalance: new(number("-1")),
			Name: strings.Repeat("ü", 201), Metadata: map[string]string{"a": "\x00"}, Key: key(""),
		}, []string{"id", "currency", "min_balance", "max_balance", "name", "metadata/a", "Idempotency-Key"}},
		{"no currency", accounts.Opening{}, []string{"currency"}},
		{"too precise", accounts.Opening{Currency: "JPY", MinBalance: number("-0.5"), MaxBalance: new(number("0.5"))}, []string{"min_balance", "max_balance"}},
		{"too large", accounts.Opening{Currency: "USD", MinBalance: number("-1e18"), MaxBalance: new(number("1e18"))}, []string{"min_balance", "max_balance"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.opening.Validate()
			if tt.want != nil {
				_, _, err = accounts.New(nil, patient).Open(t.Context(), tt.opening) // no database is asked
			}
			var got []string
			var faults *invalid.Error
			if errors.As(err, &faults) {
				for _, f := range faults.Faults {
					got = append(got, f.Field)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("faulty fields (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExternalIDsAreFixedAndSortLast(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ currency, want string }{
		{"USD", "ffffffff-ffff-8fff-bfff-555344000000"},
		{"JPY", "ffffffff-ffff-8fff-bfff-4a5059000000"},
		{"", "ffffffff-ffff-8fff-bfff-000000000000"}, // not valid, and no panic
		{"DOLLARS", "ffffffff-ffff-8fff-bfff-444f4c000000"},
	} {
		got := accounts.ExternalID(tt.currency)
		if got.String() != tt.want || !accounts.IsExternal(got) {
			t.Errorf("ExternalID(%q) = %s, external: %v, want %s", tt.currency, got, accounts.IsExternal(got), tt.want)
		}
	}
	for _, id := range []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.MustParse("fffffffe-ffff-ffff-ffff-ffffffffffff"), uuid.Nil} {
		if accounts.IsExternal(id) {
			t.Errorf("IsExternal(%s), want that it is not", id)
		}
	}
}

func TestOpenOpensWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	_, s := newService(t)
	minimum, maximum := number("-50"), number("1000")
	id := uuid.Must(uuid.NewV7())
	got := open(t, s, accounts.Opening{ID: id, Currency: "USD", Name: "Ada", MinBalance: minimum, MaxBalance: &maximum, Metadata: map[string]string{"a": "b"}})
	want := accounts.Account{
		ID: id, Kind: "customer", Currency: "USD", Name: "Ada", Status: "open", Balance: zero, MinBalance: &minimum, MaxBalance: &maximum,
		Metadata: map[string]string{"a": "b"}, CreatedAt: got.CreatedAt,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
	if got.CreatedAt.Location() != time.UTC || time.Since(got.CreatedAt).Abs() > time.Hour {
		t.Errorf("created at %v, want the present time in UTC", got.CreatedAt)
	}
	read, err := s.Get(t.Context(), id)
	if diff := cmp.Diff(got, read); diff != "" || err != nil {
		t.Errorf("read: error %v (-opened +read):\n%s", err, diff)
	}
	if chosen := open(t, s, accounts.Opening{Currency: "USD"}); chosen.ID.Version() != 7 || chosen.Metadata == nil {
		t.Errorf("opened %+v, want an id of version 7 and metadata that is empty", chosen)
	}
}

func TestTheFirstAccountOfACurrencyBringsTheExternalOne(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	if _, err := s.Get(t.Context(), accounts.ExternalID("CHF")); !errors.Is(err, accounts.ErrNotFound) {
		t.Errorf("external account before any other: error = %v, want %v", err, accounts.ErrNotFound)
	}
	var done sync.WaitGroup
	for i := range 20 {
		done.Go(func() {
			if _, _, err := s.Open(t.Context(), accounts.Opening{Currency: "CHF", Key: key(fmt.Sprint(i % 15))}); err != nil {
				t.Errorf("error = %v, want none", err)
			}
		})
	}
	done.Wait()
	wantCount(t, db, `SELECT count(*) FROM accounts WHERE kind = 'external'`, 1)
	wantCount(t, db, `SELECT count(*) FROM accounts WHERE kind = 'customer'`, 15)

	external, err := s.Get(t.Context(), accounts.ExternalID("CHF"))
	want := accounts.Account{
		ID: accounts.ExternalID("CHF"), Kind: "external", Currency: "CHF", Name: "external CHF", Status: "open",
		Balance: zero, Metadata: map[string]string{}, CreatedAt: external.CreatedAt,
	}
	if diff := cmp.Diff(want, external); diff != "" || err != nil {
		t.Errorf("external account: error %v (-want +got):\n%s", err, diff)
	}
}

func TestAnIDInUseIsRefusedForGoodUnderItsKey(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	id := open(t, s, accounts.Opening{Currency: "USD"}).ID
	o := accounts.Opening{ID: id, Currency: "EUR", Key: key("k")}
	for _, wantReplayed := range []bool{false, true} {
		if account, replayed, err := s.Open(t.Context(), o); !errors.Is(err, accounts.ErrExists) || replayed != wantReplayed || account.ID != uuid.Nil {
			t.Errorf("Open = %s, replayed %v, error %v, want %v and replayed %v", account.ID, replayed, err, accounts.ErrExists, wantReplayed)
		}
	}
	o.Key = nil
	if _, _, err := s.Open(t.Context(), o); !errors.Is(err, accounts.ErrExists) {
		t.Errorf("error = %v, want %v", err, accounts.ErrExists)
	}
	wantCount(t, db, `SELECT count(*) FROM accounts WHERE currency = 'EUR'`, 0) // no external one either
}

func TestAReplayIsTheFirstAnswerAndOpensNothing(t *testing.T) {
	t.Parallel()
	for _, id := range []uuid.UUID{uuid.Nil, uuid.Must(uuid.NewV7())} {
		db, s := newService(t)
		o := accounts.Opening{ID: id, Currency: "USD", Name: "Ada", MinBalance: number("-50.00"), Metadata: map[string]string{"a": "b"}, Key: key("k")}
		first := open(t, s, o)
		credit(t, db, first.ID, "10", "USD")
		if _, err := s.Freeze(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}

		o.MinBalance = number("-50") // the same amount
		again, replayed, err := s.Open(t.Context(), o)
		if err != nil || !replayed {
			t.Errorf("replay = replayed %v, error %v, want a replay", replayed, err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("opening and its replay differ (-first +replay):\n%s", diff)
		}
		for name, other := range map[string]accounts.Opening{
			"currency": {ID: id, Currency: "EUR", Key: key("k")},
			"name":     {ID: id, Currency: "USD", Name: "Eve", MinBalance: o.MinBalance, Metadata: o.Metadata, Key: key("k")},
			"maximum":  {ID: id, Currency: "USD", Name: "Ada", MinBalance: o.MinBalance, MaxBalance: new(zero), Metadata: o.Metadata, Key: key("k")},
			"id":       {ID: uuid.Must(uuid.NewV7()), Currency: "USD", Name: "Ada", MinBalance: o.MinBalance, Metadata: o.Metadata, Key: key("k")},
		} {
			if _, _, err := s.Open(t.Context(), other); !errors.Is(err, idempotency.ErrKeyReused) {
				t.Errorf("another %s under the key: error = %v, want %v", name, err, idempotency.ErrKeyReused)
			}
		}
		wantCount(t, db, `SELECT count(*) FROM accounts`, 2) // it and the external one

		o.ID = uuid.Nil
		o.Key = &idempotency.Key{Principal: "somebody else", Value: "k"}
		if other := open(t, s, o); other.ID == first.ID {
			t.Error("another principal got this one's account")
		}
	}
}

// What a key was claimed for, and what it was answered with, before accounts
// had holds, a maximum and directions.
func TestAnOpeningOfAnOlderReleaseIsReplayed(t *testing.T) {
	t.Parallel()
	db, s := newService(t)
	exec(t, db, `
		INSERT INTO idempotency_keys (principal, key, fingerprint, resource_id, answer)
		VALUES ('tester', 'k', '\x92dbb663e9851c021760febf98136c102b32d4a7a59bb5a1b5e8be9874c4158a', '0199d5f0-4b7c-7c1e-9d8a-1f2e3d4c5b6a',
		        '{"Call": "01a23068-2b1e-7565-8a9a-fa892ce84322", "Exists": false, "Account": {"ID": "0199d5f0-4b7c-7c1e-9d8a-1f2e3d4c5b6a",
		          "Kind": "customer", "Name": "Ada", "Status": "open", "Balance": "0", "Version": 0, "Currency": "USD", "Metadata": {"a": "b"},
		          "CreatedAt": "2026-12-01T07:01:02.89807Z", "MinBalance": "-50"}}')`)
	o := accounts.Opening{
		ID: uuid.MustParse("0199d5f0-4b7c-7c1e-9d8a-1f2e3d4c5b6a"), Currency: "USD", Name: "Ada",
		MinBalance: number("-50"), Metadata: map[string]string{"a": "b"}, Key: key("k"),
	}
	got, replayed, err := s.Open(t.Context(), o)
	want := accounts.Account{
		ID: o.ID, Kind: "customer", Currency: "USD", Name: "Ada", Status: "open", Balance: zero, MinBalance: &o.MinBalance,
		Metadata: map[string]string{"a": "b"}, CreatedAt: time.Date(2026, 12, 1, 7, 1, 2, 898070000, time.UTC),
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || !replayed {
		t.Errorf("replayed %v, error %v (-want +got):\n%s", replayed, err, diff)
	}
	o.MaxBalance = new(number("10"))
	if _, _, err := s.Open(t.Context(), o); !errors.Is(err, idempotency.ErrKeyReused) {
		t.Errorf("with a maximum: error = %v, want %v", err, idempotency.ErrKeyReused)
	}
}

func TestALostAnswerOfAnOpeningIsFoundOut(t *testing.T) {
	t.Parallel()
	chosen := func() uuid.UUID { return uuid.Must(uuid.NewV7()) }
	for _, tt := range []struct {
		name       string
		opening    accounts.Opening
		carriedOut bool
		want       error
	}{
		{"carried out", accounts.Opening{Currency: "USD"}, true, nil},
		{"not carried out", accounts.Opening{Currency: "USD"}, false, nil},
		{"with a key, carried out", accounts.Opening{Currency: "USD", Key: key("k")}, true, nil},
		{"with a key, not carried out", accounts.Opening{Currency: "USD", Key: key("k")}, false, nil},
		{"with an id and a key, carried out", accounts.Opening{ID: chosen(), Currency: "USD", Key: key("k")}, true, nil},
		{"with an id and a key, not carried out", accounts.Opening{ID: chosen(), Currency: "USD", Key: key("k")}, false, nil},
		{"with an id, not carried out", accounts.Opening{ID: chosen(), Currency: "USD"}, false, nil},
		{"with an id, carried out: nothing tells whose it is", accounts.Opening{ID: chosen(), Currency: "USD"}, true, retry.ErrCommitUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db, s := newService(t)
			policy := patient
			policy.Attempts = 5
			account, replayed, err := accounts.New(&lossyDB{Beginner: db, carriedOut: tt.carriedOut}, policy).Open(t.Context(), tt.opening)
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || replayed {
				t.Fatalf("Open = replayed %v, error %v, want %v and no replay", replayed, err, tt.want)
			}
			wantCount(t, db, `SELECT count(*) FROM accounts WHERE kind = 'customer'`, 1)
			if err != nil {
				return
			}
			stored, err := s.Get(t.Context(), account.ID)
			if diff := cmp.Diff(stored, account); diff != "" || err != nil {
				t.Errorf("what was answered is not what is stored: error %v (-stored +answered):\n%s", err, diff)
			}
			if tt.opening.Key != nil {
				if again, replayed, err := s.Open(t.Context(), tt.opening); err != nil || !replayed || again.ID != account.ID {
					t.Errorf("replay = %s, replayed %v, error %v, want %s", again.ID, replayed, err, account.ID)
				}
			}
		})
	}
}

package transfer_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/transfer"
)

func TestAPositionInTheOrderOfTransactionsBelongsToItsCluster(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.scatter(t, 10)
	s := l.service(transfer.Pessimistic)
	for _, tt := range []struct {
		filter transfer.Filter
		bound  bool
	}{
		{transfer.Filter{Limit: 4}, true},
		{transfer.Filter{Descending: true, Limit: 4}, true},
		{transfer.Filter{AccountID: scattered("2", 3), Descending: true, Limit: 4}, false},
	} {
		pageUntil(t, s, tt.filter, 1)
		first, err := s.List(t.Context(), tt.filter)
		if err != nil {
			t.Fatal(err)
		}
		after := transfer.Position{Version: 2}
		if first.Next != nil {
			after = *first.Next
		}
		after.Cluster++ // as the same rows have it in another
		tt.filter.After = &after
		if _, err := s.List(t.Context(), tt.filter); errors.Is(err, transfer.ErrPositionExpired) != tt.bound {
			t.Errorf("%+v after another cluster's position: error = %v, want %v: %t", tt.filter, err, transfer.ErrPositionExpired, tt.bound)
		}
	}
}

// Engines that speak PostgreSQL's protocol may not have the function, and hosts
// may not let everybody call it.
func TestAListDoesWithoutTheSystemIdentifier(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, change, options string }{
		{"there is none", `ALTER FUNCTION pg_control_system() RENAME TO pg_control_system_that_was`, ""},
		{"it is not for us", `REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC`, "&options=-c%20role%3Dpg_read_all_data"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.scatter(t, 10)
			s := l.service(transfer.Pessimistic)
			pageUntil(t, s, transfer.Filter{Limit: 4}, 10)
			_, named := read(t, s, transfer.Filter{Limit: 4})
			l.exec(t, tt.change)
			s = transfer.New(connect(t, l.db.URL+tt.options), transfer.Pessimistic, transfer.Locking{}, patient)

			got, unnamed := read(t, s, transfer.Filter{Limit: 4})
			if len(got) != 10 || unnamed == nil || unnamed.Cluster == 0 || unnamed.Cluster == named.Cluster {
				t.Errorf("%d transfers, and then %+v; want 10, and a cluster that is not %d", len(got), unnamed, named.Cluster)
			}
			if _, err := s.List(t.Context(), transfer.Filter{After: named, Limit: 4}); !errors.Is(err, transfer.ErrPositionExpired) {
				t.Errorf("error = %v, want %v", err, transfer.ErrPositionExpired)
			}
			if again, err := s.List(t.Context(), transfer.Filter{After: unnamed, Limit: 4}); err != nil || len(again.Transfers) != 0 || *again.Next != *unnamed {
				t.Errorf("the list goes on with %+v, %v; want nothing, and the same position", again, err)
			}
		})
	}
}

// A dump brings transaction ids along that the new cluster has yet to give.
// docs/feed.md has what to do.
func TestALogicalRestoreIsNumberedAnew(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/feed.md")
	if err != nil {
		t.Fatal(err)
	}
	_, statements, _ := strings.Cut(string(docs), "```sql\n")
	statements, _, _ = strings.Cut(statements, "```")

	l := newLedger(t)
	s := l.service(transfer.Pessimistic)
	l.scatter(t, 4)
	all := idsOf(pageUntil(t, s, transfer.Filter{Limit: 4}, 4))
	l.exec(t, `ALTER TABLE transfers DISABLE TRIGGER transfers_append_only`)
	l.exec(t, `UPDATE transfers SET tx_id = '1000000000000' WHERE id <> $1`, all[0])
	if got := page(t, s, transfer.Filter{Limit: 4}); len(got) != 1 {
		t.Errorf("the feed has %d transfers before, want the 1 with a lower number", len(got))
	}
	if _, err := l.db.Exec(t.Context(), statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
	if diff := cmp.Diff(all, idsOf(pageUntil(t, s, transfer.Filter{Limit: 4}, 4))); diff != "" {
		t.Errorf("the feed afterwards (-want +got):\n%s", diff)
	}
	if _, err := l.db.Exec(t.Context(), `DELETE FROM transfers`); err == nil {
		t.Error("transfers may be removed afterwards")
	}
}

func TestAnEmptyFeedHasAPlaceToGoOnFrom(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	s := l.service(transfer.Pessimistic)
	none, after := read(t, s, transfer.Filter{Limit: 4})
	if len(none) != 0 || after == nil {
		t.Fatalf("an empty ledger's feed has %d transfers, and then %v; want none, and a position", len(none), after)
	}
	l.scatter(t, 3)
	if got := pageUntil(t, s, transfer.Filter{After: after, Limit: 4}, 3); len(got) != 3 {
		t.Errorf("the feed goes on with %d transfers, want 3", len(got))
	}
}

func TestTheFeedsDelayIsThatOfWhatItHoldsBack(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	s := l.service(transfer.Pessimistic)
	delay := func() time.Duration {
		t.Helper()
		d, err := transfer.FeedDelay(t.Context(), l.db, patient)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if got := delay(); got != 0 {
		t.Errorf("an empty ledger's feed is %v behind, want 0", got)
	}
	other := l.session(t)
	if _, err := other.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	l.scatter(t, 1) // of January
	if got, want := delay(), time.Since(second(0)); got < want-time.Hour || got > want+time.Hour {
		t.Errorf("the feed is %v behind, want %v", got, want)
	}
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	pageUntil(t, s, transfer.Filter{Limit: 4}, 1)
	if got := delay(); got != 0 {
		t.Errorf("a feed that has all is %v behind, want 0", got)
	}
}

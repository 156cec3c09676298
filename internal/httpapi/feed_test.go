package httpapi

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
)

// A reader keeps its place in the feed, and counts how often it has seen each
// transfer.
type reader struct {
	*testing.T
	ledger http.Handler
	cursor string
	seen   map[string]int
}

// page reads the next page of the feed, from wherever the one before has led.
func (r *reader) page() (items int) {
	r.Helper()
	target := "/v1/transfers?order=asc&limit=7"
	if r.cursor != "" {
		target += "&cursor=" + r.cursor
	}
	w := do(r.ledger, "GET", target, "")
	var page struct {
		Items      []struct{ ID string }
		NextCursor string `json:"next_cursor"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != 200 || page.NextCursor == "" {
		r.Fatalf("GET %s: %d %s", target, w.Code, w.Body)
	}
	for _, item := range page.Items {
		r.seen[item.ID]++
	}
	if len(page.Items) == 0 && r.cursor != "" && page.NextCursor != r.cursor {
		r.Errorf("an empty page leads from %s to %s", r.cursor, page.NextCursor)
	}
	r.cursor = page.NextCursor
	return len(page.Items)
}

// readAll reads until the transfers that written has, and no others, were seen
// once, or until that takes too long. Others may still be written meanwhile.
func (r *reader) readAll(written func() map[string]bool) {
	r.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		items := r.page()
		all := written()
		if items == 0 && all != nil && len(r.seen) >= len(all) || time.Now().After(deadline) {
			break
		}
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	}
	all := written()
	for id := range all {
		if n := r.seen[id]; n != 1 {
			r.Errorf("transfer %s came %d times, want once", id, n)
		}
	}
	for id := range r.seen {
		if !all[id] {
			r.Errorf("transfer %s came and was not made", id)
		}
	}
}

// writers write n transfers each, in transactions that stay open for a while
// before and after, of which some are rolled back. The function that it returns
// has the ids of what was committed, when all have ended.
func writers(t *testing.T, db *testdb.DB, count, n int) (written func() map[string]bool) {
	const insertSQL = `
		INSERT INTO transfers (id, debit_account_id, credit_account_id, debit_version, credit_version, created_at, amount, debit_balance_after, credit_balance_after, kind, currency)
		VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, 1, clock_timestamp(), 1, 0, 0, 'transfer', 'USD')
		RETURNING id`
	pause := func() { time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond) }
	write := func(ctx context.Context) (id string, kept bool, err error) {
		tx, err := db.Begin(ctx)
		if err != nil {
			return "", false, err
		}
		defer tx.Rollback(ctx)
		if _, err := tx.Exec(ctx, `SELECT pg_current_xact_id()`); err != nil {
			return "", false, err
		}
		pause()
		if err := tx.QueryRow(ctx, insertSQL).Scan(&id); err != nil {
			return "", false, err
		}
		pause()
		if rand.IntN(5) == 0 {
			return "", false, nil
		}
		return id, true, tx.Commit(ctx)
	}
	var mu sync.Mutex
	all, working := map[string]bool{}, count
	for range count {
		go func() {
			for range n {
				id, kept, err := write(t.Context())
				if err != nil {
					t.Errorf("write: %v", err)
				}
				if kept {
					mu.Lock()
					all[id] = true
					mu.Unlock()
				}
			}
			mu.Lock()
			working--
			mu.Unlock()
		}()
	}
	return func() map[string]bool {
		mu.Lock()
		defer mu.Unlock()
		if working > 0 {
			return nil
		}
		return all
	}
}

// Transactions commit in another order than that in which they began to write.
// A reader that follows them and keeps its place sees each transfer once, and
// goes on from its last cursor.
func TestTheFeedHasEveryTransferOnce(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	config := configOn(db)
	r := &reader{T: t, ledger: New(config), seen: map[string]int{}}
	r.readAll(writers(t, db, 8, 25))

	// Later, in another process.
	again := &reader{T: t, ledger: New(config), cursor: r.cursor, seen: map[string]int{}}
	again.readAll(writers(t, db, 8, 10))
	if len(r.seen) == 0 || len(again.seen) == 0 {
		t.Errorf("%d transfers came, and later %d: want some", len(r.seen), len(again.seen))
	}
	for id := range again.seen {
		if r.seen[id] > 0 {
			t.Errorf("transfer %s came once more after its cursor", id)
		}
	}

	whole := &reader{T: t, ledger: New(config), seen: map[string]int{}}
	for whole.page() > 0 {
	}
	if got, want := len(whole.seen), len(r.seen)+len(again.seen); got != want {
		t.Errorf("from the start there are %d transfers, want %d", got, want)
	}
}

// A database that was restored from a dump has other transaction ids.
func TestACursorOfAnotherClusterHasExpired(t *testing.T) {
	t.Parallel()
	h := New(configOn(testdb.New(t)))
	id := openFunded(t, h, "1.00")
	awaitFeed(t, h, 1)
	foreign := transfer.Position{Version: 1, TxID: 1, ID: uuid.Must(uuid.NewV7()), Cluster: 42}
	for _, tt := range []struct {
		query  string
		filter transfer.Filter
		status int
	}{
		{"order=asc", transfer.Filter{}, 410},
		{"order=desc", transfer.Filter{Descending: true}, 410},
		{"currency=USD", transfer.Filter{Descending: true, Currency: "USD"}, 410},
		{"account_id=" + id, transfer.Filter{Descending: true, AccountID: uuid.MustParse(id)}, 200},
	} {
		target := "/v1/transfers?" + tt.query + "&cursor=" + sealCursor(transferList(tt.filter), positionPlace(foreign))
		w := do(h, "GET", target, "")
		var p problem
		json.Unmarshal(w.Body.Bytes(), &p) // its error: there is no code then
		if w.Code != tt.status || tt.status == 410 && (p.Code != "cursor-expired" || p.Retryable) {
			t.Errorf("GET %s: %d %s, want %d", target, w.Code, w.Body, tt.status)
		}
	}
}

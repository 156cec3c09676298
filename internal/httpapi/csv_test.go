package httpapi

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
)

const insertCreditsSQL = `
	INSERT INTO transfers (id, debit_account_id, credit_account_id, debit_version, credit_version, created_at, amount,
	                       debit_balance_after, credit_balance_after, kind, currency)
	SELECT gen_random_uuid(), $1, $2, n, n, clock_timestamp(), 1, -n, n, 'credit', 'USD'
	  FROM generate_series($3::bigint, $4::bigint) n`

// insertCredits gives an account entries, more quickly than requests would.
func insertCredits(t testing.TB, db *testdb.DB, id string, first, last int) {
	t.Helper()
	for _, statement := range []struct {
		sql  string
		args []any
	}{
		{insertCreditsSQL, []any{accounts.ExternalID("USD"), id, first, last}},
		{`UPDATE accounts SET version = $2, balance = $2::bigint WHERE id = $1`, []any{id, last}},
	} {
		if _, err := db.Exec(context.Background(), statement.sql, statement.args...); err != nil {
			t.Fatal(err)
		}
	}
}

const csvAccount = "0199d5f0-0000-7000-8000-00000000000a"

// nasty are texts that a form of lines and commas may spoil, or that a
// spreadsheet may take for a formula.
var nasty = []string{
	"", "rent", "a,b", `say "yes"`, `"`, "two\nlines", "two\r\nlines", "a\rb", " spaced ", "=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1",
	"＝1", "'", "'=1", "''", `\.`, "ключ", "=HYPERLINK(\"http://x\",\"y\")", "a=1",
}

// Every list in CSV has what it has in JSON, in the same order.
func TestCSVIsTheSameAsJSON(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	h := New(configOn(db))
	do(h, "POST", "/v1/accounts", `{"currency":"USD","id":"`+csvAccount+`"}`, "Content-Type: application/json")
	insertCredits(t, db, csvAccount, 1, 2*streamPage)
	for i, text := range nasty {
		body, _ := json.Marshal(map[string]any{
			"account_id": csvAccount, "amount": "1.00", "currency": "USD", "description": text,
			"reference": fmt.Sprintf("%s %d", text, i), "metadata": map[string]string{"=key": text, "b": "x"},
		})
		if w := do(h, "POST", "/v1/debits", string(body), "Content-Type: application/json"); w.Code != 201 {
			t.Fatalf("debit: %d %s", w.Code, w.Body)
		}
	}
	const all = 2*streamPage + 24
	for _, tt := range []struct {
		target string
		want   int
	}{
		{"/v1/accounts/" + csvAccount + "/entries?order=asc", all},
		{"/v1/accounts/" + csvAccount + "/entries?order=desc", all},
		{"/v1/accounts/" + csvAccount + "/statement?to=9999-01-01T00:00:00Z", all},
		{"/v1/transfers?order=desc", all},
		{"/v1/transfers?order=desc&currency=EUR", 0},
		{"/v1/transfers?order=asc&account_id=" + csvAccount, all},
		{"/v1/transfers?order=desc&amount_min=1.00&currency=USD&account_id=" + csvAccount, all},
		{"/v1/transfers?order=desc&reference=rent%201", 1},
	} {
		items, page := jsonItems(t, h, tt.target)
		w := do(h, "GET", tt.target, "", "Accept: text/csv")
		if w.Code != 200 {
			t.Fatalf("GET %s: %d %s", tt.target, w.Code, w.Body)
		}
		names, records := readCSV(t, w.Body.Bytes())
		if strings.Contains(tt.target, "/statement") {
			last := len(records) - 1
			for line, want := range map[int][]any{0: {"opening", page["opening_version"], page["opening_balance"]}, last: {"closing", page["closing_version"], page["closing_balance"]}} {
				got := records[line]
				if diff := cmp.Diff(want, []any{got["direction"], got["version"], got["balance_after"]}); diff != "" {
					t.Errorf("GET %s: line %d (-want +got):\n%s", tt.target, line, diff)
				}
			}
			records = records[1:last]
		}
		if len(records) != tt.want || len(items) != tt.want {
			t.Fatalf("GET %s: %d lines of CSV and %d items of JSON, want %d", tt.target, len(records), len(items), tt.want)
		}
		for i, item := range items {
			want := map[string]string{}
			for _, name := range names {
				want[name] = cellOf(item[name])
			}
			if diff := cmp.Diff(want, records[i]); diff != "" {
				t.Fatalf("GET %s: item %d (-JSON +CSV):\n%s", tt.target, i, diff)
			}
			delete(item, "reversed_amount")
			if len(item) > len(names) {
				t.Fatalf("GET %s: item %d has %d members and CSV %d columns", tt.target, i, len(item), len(names))
			}
		}
	}
}

// jsonItems reads all pages of a list, and returns the last page as well.
func jsonItems(t *testing.T, h http.Handler, target string) (items []map[string]any, last map[string]any) {
	t.Helper()
	for cursor := ""; ; {
		var page struct {
			Items      []map[string]any
			NextCursor *string `json:"next_cursor"`
		}
		w := do(h, "GET", target+"&limit=100"+cursor, "")
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != 200 {
			t.Fatalf("GET %s: %d %s", target, w.Code, w.Body)
		}
		items = append(items, page.Items...)
		if page.NextCursor == nil {
			json.Unmarshal(w.Body.Bytes(), &last)
			return items, last
		}
		cursor = "&cursor=" + *page.NextCursor
	}
}

// readCSV reads a body with the library's reader, takes a ' off the texts, and
// wants no text to begin like a formula.
func readCSV(t *testing.T, body []byte) (names []string, records []map[string]string) {
	t.Helper()
	lines, err := csv.NewReader(bytes.NewReader(body)).ReadAll()
	if err != nil || len(lines) == 0 || !bytes.HasSuffix(body, []byte("\r\n")) {
		t.Fatalf("the body is no CSV with a line of names: %v\n%.1000s", err, body)
	}
	for _, line := range lines[1:] {
		record := map[string]string{}
		for i, cell := range line {
			name := lines[0][i]
			if name == "description" || name == "reference" {
				if cell != "" && strings.ContainsAny(cell[:1], "=+-@\t\r\n") {
					t.Errorf("%s is %q, which a spreadsheet would take for a formula", name, cell)
				}
				cell = strings.TrimPrefix(cell, "'")
			}
			record[name] = cell
		}
		records = append(records, record)
	}
	return lines[0], records
}

// cellOf is what a JSON value is in CSV, as Go's reader has it: to it, all ends of
// line are one.
func cellOf(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return strings.ReplaceAll(v, "\r\n", "\n")
	}
	text := &bytes.Buffer{}
	encoder := json.NewEncoder(text)
	encoder.SetEscapeHTML(false)
	encoder.Encode(value)
	return strings.TrimSpace(text.String())
}

// The feed in CSV ends where it is known to have all.
func TestTheFeedAsCSVIsItsListUpwards(t *testing.T) {
	t.Parallel()
	h := New(configOn(testdb.New(t)))
	for range 3 {
		openFunded(t, h, "1.00")
	}
	awaitFeed(t, h, 3)
	items, _ := jsonItems(t, h, "/v1/transfers?order=desc")
	_, records := readCSV(t, do(h, "GET", "/v1/transfers?order=asc", "", "Accept: text/csv").Body.Bytes())
	if len(records) != 3 || len(items) != 3 {
		t.Fatalf("%d lines and %d items, want 3", len(records), len(items))
	}
	for i, record := range records {
		if record["id"] != items[2-i]["id"] {
			t.Errorf("line %d is of %s, want %s", i, record["id"], items[2-i]["id"])
		}
	}
}

// Ends of line within a text stay what they are, and amounts are numbers.
func TestCSVKeepsTextsAndAmountsAsTheyAre(t *testing.T) {
	t.Parallel()
	row := string(csvColumnsOf[transferJSON]().append(nil, transferJSON{Description: "two\r\nlines\n\"and\" more", DebitBalanceAfter: "-1.00", Metadata: map[string]string{"b": "=1", "a": ","}}))
	want := `,,,,,,"two` + "\r\nlines\n" + `""and"" more","{""a"":"","",""b"":""=1""}",-1.00,,,,,,` + "\r\n"
	if row != want {
		t.Errorf("got %q, want %q", row, want)
	}
}

// A list that grows while it is read ends with what it had in the beginning.
func TestAStreamEndsThoughItsListGrows(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	h := New(configOn(db))
	do(h, "POST", "/v1/accounts", `{"currency":"USD","id":"`+csvAccount+`"}`, "Content-Type: application/json")
	made := streamPage + 10
	insertCredits(t, db, csvAccount, 1, made)
	growing := &growingDB{Beginner: db, grow: func() {
		made++
		insertCredits(t, db, csvAccount, made, made)
	}}
	config := configOn(db)
	config.Accounts = accounts.New(growing, policy)
	config.Transfers = transfer.New(growing, transfer.Pessimistic, transfer.Locking{}, policy)
	h = New(config)
	for _, target := range []string{
		"/v1/accounts/" + csvAccount + "/entries", "/v1/accounts/" + csvAccount + "/entries?order=desc",
		"/v1/accounts/" + csvAccount + "/statement",
		"/v1/transfers?order=asc&account_id=" + csvAccount, "/v1/transfers?order=desc&account_id=" + csvAccount,
	} {
		want := made + 1 // with the one that is made as the first transaction begins
		w := do(h, "GET", target, "", "Accept: text/csv")
		_, records := readCSV(t, w.Body.Bytes())
		if strings.Contains(target, "/statement") {
			records = records[1 : len(records)-1]
		}
		versions := map[string]bool{}
		for _, r := range records {
			versions[r["version"]+r["id"]] = true
		}
		if len(records) != want || len(versions) != want || made < want+1 {
			t.Errorf("GET %s: %d lines, %d of them different, want %d", target, len(records), len(versions), want)
		}
	}
}

// A growingDB makes something before each transaction.
type growingDB struct {
	retry.Beginner
	grow func()
}

func (db *growingDB) BeginWith(ctx context.Context, begin *pgx.Batch) (pgx.Tx, error) {
	db.grow()
	return db.Beginner.BeginWith(ctx, begin)
}

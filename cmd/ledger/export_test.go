package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// patient is a policy whose limits no test reaches.
var patient = retry.Policy{Attempts: 1000, MinPause: time.Millisecond, MaxPause: 20 * time.Millisecond}

// A bank is a ledger with some accounts that have money.
type bank struct {
	db        *testdb.DB
	transfers *transfer.Service
	ids       []uuid.UUID
}

func openBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{db: testdb.New(t)}
	b.db.AcquireTimeout = time.Minute
	b.transfers = transfer.New(b.db, transfer.Pessimistic, transfer.Locking{}, patient)
	for i := range 5 {
		account, _, err := accounts.New(b.db, patient).Open(t.Context(), accounts.Opening{Currency: "USD", Name: fmt.Sprintf("=account %d", i)})
		if err == nil {
			_, _, err = b.transfers.Create(t.Context(), transfer.NewCredit(account.ID, decimal.NewFromInt(1000), "USD"))
		}
		if err != nil {
			t.Fatal(err)
		}
		b.ids = append(b.ids, account.ID)
	}
	kept := transfer.HoldCommand{Kind: transfer.Between, DebitAccountID: b.ids[0], CreditAccountID: b.ids[1], Amount: decimal.NewFromInt(10), Currency: "USD"}
	if _, _, err := b.transfers.Hold(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	return b
}

// move makes random transfers until ctx ends.
func (b *bank) move(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		pair := rand.Perm(len(b.ids))
		_, _, err := b.transfers.Create(context.WithoutCancel(ctx), transfer.Command{
			Kind: transfer.Between, DebitAccountID: b.ids[pair[0]], CreditAccountID: b.ids[pair[1]], Amount: decimal.New(rand.Int64N(100)+1, -2), Currency: "USD",
		})
		if err != nil && !errors.Is(err, transfer.ErrInsufficientFunds) {
			t.Errorf("transfer: %v", err)
			return
		}
	}
}

// ledger runs a command line, as main does.
func ledger(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), args, &out, &errs)
	return status, out.String(), errs.String()
}

// Accounts are exported as they were at one moment, though money moves meanwhile:
// their balances add up to zero. So do entries: each account's are without a gap.
func TestAnExportIsOneSnapshot(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	ctx, stop := context.WithCancel(t.Context())
	var moving sync.WaitGroup
	for range 3 {
		moving.Go(func() { b.move(ctx, t) })
	}
	defer moving.Wait()
	defer stop()
	for range 10 {
		sum := decimal.Zero
		for _, line := range exported(t, b, "accounts") {
			sum = sum.Add(decimal.RequireFromString(line["balance"].(string)))
		}
		if !sum.IsZero() {
			t.Errorf("the exported balances add up to %s, want 0", sum)
		}
		total, last := decimal.Zero, map[string]int{}
		for _, line := range exported(t, b, "entries") {
			id := line["account_id"].(string)
			if last[id]++; fmt.Sprint(last[id]) != line["version"] {
				t.Fatalf("entry %v of account %s comes after %d", line["version"], id, last[id]-1)
			}
			amount := decimal.RequireFromString(line["amount"].(string))
			if line["direction"] == "debit" {
				amount = amount.Neg()
			}
			total = total.Add(amount)
		}
		if !total.IsZero() || len(last) != len(b.ids)+1 {
			t.Errorf("the exported entries of %d accounts add up to %s, want 0 of %d", len(last), total, len(b.ids)+1)
		}
	}
}

func exported(t *testing.T, b *bank, kind string) (lines []map[string]any) {
	t.Helper()
	status, stdout, stderr := ledger(t, "export", "--kind", kind, "--database-url", b.db.URL)
	if status != 0 || stderr != "" {
		t.Fatalf("export %s: status %d, %s", kind, status, stderr)
	}
	scanner := bufio.NewScanner(strings.NewReader(stdout))
	for scanner.Scan() {
		var line map[string]any
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			t.Fatalf("export %s: %q: %v", kind, scanner.Text(), err)
		}
		lines = append(lines, line)
	}
	return lines
}

// Each kind has as many lines in either form, and CSV has a line of names even
// where there is nothing else.
func TestAnExportHasAllOfItsKind(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	for kind, want := range map[string]int{"accounts": 6, "transfers": 5, "entries": 10, "holds": 1} {
		if got := len(exported(t, b, kind)); got != want {
			t.Errorf("%s: %d JSON lines, want %d", kind, got, want)
		}
		file := filepath.Join(t.TempDir(), "out.csv")
		if status, _, stderr := ledger(t, "export", "--kind", kind, "--format", "csv", "--out", file, "--database-url", b.db.URL); status != 0 {
			t.Fatalf("%s: status %d, %s", kind, status, stderr)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		records, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
		if err != nil || len(records) != want+1 {
			t.Errorf("%s: %d CSV lines, %v; want %d", kind, len(records), err, want+1)
		}
		if kind == "accounts" && !strings.Contains(string(text), ",'=account 1,") {
			t.Errorf("a name that looks like a formula is not marked:\n%s", text)
		}
	}
}

// An export that fails leaves what was there as it was, and nothing beside it.
func TestAnExportThatFailsLeavesNoFile(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	if _, err := db.Exec(t.Context(), `ALTER TABLE holds RENAME TO gone`); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "holds")
	if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := ledger(t, "export", "--kind", "holds", "--format", "csv", "--out", file, "--database-url", db.URL)
	if status != 1 || !strings.Contains(stderr, "export holds") {
		t.Errorf("status %d, %s; want 1", status, stderr)
	}
	for name, out := range map[string]string{"a directory": dir, "a device": os.DevNull, "nowhere": filepath.Join(dir, "no", "file")} {
		if status, _, stderr := ledger(t, "export", "--kind", "accounts", "--out", out, "--database-url", db.URL); status != 1 || stderr == "" {
			t.Errorf("%s: status %d, %s; want 1", name, status, stderr)
		}
	}
	failed := errors.New("the disk is full")
	err := writeWhole(file, func(w io.Writer) error {
		io.WriteString(w, "half")
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("error = %v, want %v", err, failed)
	}
	text, err := os.ReadFile(file)
	if names, _ := os.ReadDir(dir); err != nil || string(text) != "before" || len(names) != 1 {
		t.Errorf("the directory has %v and the file %q, %v; want the file as before", names, text, err)
	}
}

// What is there under the name, by a link as well, is replaced as a whole.
func TestAFileIsReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("before"), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	err := writeWhole(link, func(w io.Writer) error {
		if text, err := os.ReadFile(file); err != nil || string(text) != "before" {
			t.Errorf("meanwhile the file is %q, %v", text, err)
		}
		_, err := io.WriteString(w, "after")
		return err
	})
	text, _ := os.ReadFile(file)
	if info, _ := os.Lstat(link); err != nil || string(text) != "after" || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("got %q, %v; want it replaced, and the link to stay", text, err)
	}
}

func TestAnExportIsAskedForInFull(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"export"}, {"export", "--kind", "wallets"}, {"export", "--kind", "holds", "--format", "xml"}} {
		if status, _, stderr := ledger(t, args...); status != 2 || stderr == "" {
			t.Errorf("%q: status %d, %q; want 2", args, status, stderr)
		}
	}
	if status, stdout, _ := ledger(t, "export", "--help"); status != 0 || !strings.Contains(stdout, "ledger export --kind entries --format csv --out entries.csv") {
		t.Errorf("--help: status %d, %s", status, stdout)
	}
}

package verify_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
	"github.com/rowlock/ledger/internal/verify"
)

// fullLedger is [ledger] with all that a transfer may belong to. What is made
// has its name as its description, and so has its key.
func fullLedger(t *testing.T) *testdb.DB {
	t.Helper()
	db := ledger(t)
	f := &full{t: t, s: transfer.New(db, transfer.Pessimistic, transfer.Locking{}, policy)}
	if _, err := db.Exec(t.Context(), `UPDATE accounts SET max_balance = 100 WHERE id = $1`, bob); err != nil {
		t.Fatal(err)
	}
	f.holds(db)
	f.reversals()
	f.batches()
	f.references()
	return db
}

type full struct {
	t *testing.T
	s *transfer.Service
}

func (f *full) call(name string) transfer.Call {
	return transfer.Call{Key: &idempotency.Key{Principal: "alice", Value: name}}
}

// made fails the test unless err is what is wanted.
func (f *full) made(err, want error) {
	f.t.Helper()
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		f.t.Fatalf("error = %v, want %v", err, want)
	}
}

func (f *full) hold(name string, amount int64, want error) transfer.Hold {
	f.t.Helper()
	h, _, err := f.s.Hold(f.t.Context(), transfer.HoldCommand{
		Call: f.call(name), Kind: transfer.Between, DebitAccountID: alice, CreditAccountID: bob,
		Amount: decimal.NewFromInt(amount), Currency: "USD", ExpiresAt: time.Now().Add(24 * time.Hour), Description: name,
	})
	f.made(err, want)
	return h
}

func (f *full) capture(h transfer.Hold, amount string, final bool) {
	f.t.Helper()
	_, _, err := f.s.Capture(f.t.Context(), transfer.Capture{
		Call: f.call("capture of " + h.Description), HoldID: h.ID, Amount: amount, Final: final, Description: "capture of " + h.Description,
	})
	f.made(err, nil)
}

// holds leaves 6 of alice's held.
func (f *full) holds(db *testdb.DB) {
	f.t.Helper()
	f.capture(f.hold("open", 10, nil), "4", false)
	f.capture(f.hold("whole", 5, nil), "", false)
	f.capture(f.hold("final", 8, nil), "5", true)
	if _, err := f.s.Void(f.t.Context(), f.hold("voided", 3, nil).ID, transfer.Call{}); err != nil {
		f.t.Fatal(err)
	}
	f.hold("expired", 2, nil)
	if _, err := db.Exec(f.t.Context(), `UPDATE holds SET expires_at = created_at WHERE description = 'expired'`); err != nil {
		f.t.Fatal(err)
	}
	if n, err := f.s.ExpireHolds(f.t.Context(), 10); n != 1 || err != nil {
		f.t.Fatalf("ExpireHolds = %d, %v, want 1", n, err)
	}
	f.hold("refused hold", 1000, transfer.ErrInsufficientFunds)
}

func (f *full) reversals() {
	f.t.Helper()
	all, err := f.s.List(f.t.Context(), transfer.Filter{AccountID: alice, Limit: 3}) // the credit, the transfer and the debit
	f.made(err, nil)
	for _, r := range []struct {
		name   string
		of     int
		amount string
	}{{"reversal", 1, "10"}, {"second reversal", 1, "5"}, {"reversal of the debit", 2, ""}, {"reversal of the credit", 0, "1"}} {
		_, _, err := f.s.Reverse(f.t.Context(), transfer.Reversal{Call: f.call(r.name), TransferID: all.Transfers[r.of].ID, Amount: r.amount, Description: r.name})
		f.made(err, nil)
	}
}

func (f *full) batches() {
	f.t.Helper()
	for _, b := range []struct {
		name    string
		atomic  bool
		amounts []int64
		want    error
	}{
		{"atomic", true, []int64{1, 1, 1}, nil},
		{"refused batch", true, []int64{1, 1000}, transfer.ErrInsufficientFunds},
		{"independent", false, []int64{1, 1000, 1}, nil},
		{"all made", false, []int64{1, 1}, nil},
		{"none made", false, []int64{1000, 1000}, nil},
	} {
		c := transfer.BatchCommand{Call: f.call(b.name), Atomic: b.atomic}
		for _, amount := range b.amounts {
			c.Transfers = append(c.Transfers, transfer.Command{
				Kind: transfer.Between, DebitAccountID: alice, CreditAccountID: bob, Amount: decimal.NewFromInt(amount), Currency: "USD", Description: b.name,
			})
		}
		_, _, err := f.s.CreateBatch(f.t.Context(), c)
		f.made(err, b.want)
	}
	back := transfer.Command{Kind: transfer.Between, DebitAccountID: bob, CreditAccountID: alice, Amount: decimal.NewFromInt(12), Currency: "USD", Description: "back"}
	_, _, err := f.s.Create(f.t.Context(), back)
	f.made(err, nil)
}

// references has both accounts use one, and one account use two.
func (f *full) references() {
	f.t.Helper()
	for _, r := range []struct {
		account   uuid.UUID
		reference string
	}{{alice, "r"}, {alice, "r2"}, {bob, "r"}} {
		c := transfer.NewCredit(r.account, decimal.NewFromInt(1), "USD")
		c.Reference, c.Description = r.reference, "with a reference"
		_, _, err := f.s.Create(f.t.Context(), c)
		f.made(err, nil)
	}
}

func TestCleanWithAllThatATransferMayBelongTo(t *testing.T) {
	t.Parallel()
	report := check(t, fullLedger(t))
	if !report.Clean() {
		t.Errorf("findings = %+v, want none", report.Findings)
	}
	if report.Holds != 5 || report.Transfers != 21 || report.Keys != 22 {
		t.Errorf("holds, transfers, keys = %d, %d, %d, want 5, 21, 22", report.Holds, report.Transfers, report.Keys)
	}
}

func TestDamageToWhatTransfersBelongToIsFound(t *testing.T) {
	t.Parallel()
	const aliceID, bobID = "'0a000000-0000-7000-8000-000000000001'", "'0b000000-0000-7000-8000-000000000002'"
	const nobody = "'0c000000-0000-7000-8000-000000000003'"
	type counts = map[verify.Kind]int64
	tests := []struct {
		name   string
		sql    string
		want   counts
		amount string // of the first finding, where there is one
	}{
		{"held without holds", "UPDATE accounts SET held = held + 1 WHERE id = " + aliceID, counts{verify.Held: 1}, "1"},
		{"a hold that is not held", "UPDATE accounts SET held = 0 WHERE id = " + aliceID, counts{verify.Held: 1}, "-6"},
		{"an account holds for another's hold", "UPDATE accounts SET held = CASE id WHEN " + aliceID + " THEN 0 ELSE 6 END WHERE kind = 'customer'",
			counts{verify.Held: 2}, "-6"},
		{"a release that did not reach its account", "UPDATE holds SET status = 'voided', ended_at = now() WHERE description = 'open'",
			counts{verify.Held: 1}, "6"},
		{"held is out of reach", `ALTER TABLE accounts DROP CONSTRAINT accounts_available_covered;
			UPDATE holds SET amount = 1004 WHERE description = 'open'; UPDATE accounts SET held = 1000 WHERE id = ` + aliceID,
			counts{verify.Overdrawn: 1}, "-923"},
		{"a balance above its maximum", "ALTER TABLE accounts DROP CONSTRAINT accounts_balance_capped; UPDATE accounts SET max_balance = 1 WHERE id = " + bobID,
			counts{verify.AboveMaximum: 1}, "24"},

		{"a hold of nobody's", "UPDATE holds SET debit_account_id = " + nobody + " WHERE description = 'voided'", counts{verify.MissingAccount: 1}, "3"},
		{"a hold for nobody", "UPDATE holds SET credit_account_id = " + nobody + " WHERE description = 'voided'", counts{verify.MissingAccount: 1}, "3"},
		{"a hold in another currency", "UPDATE holds SET currency = 'EUR' WHERE description = 'voided'", counts{verify.CurrencyMismatch: 2}, "3"},
		{"a capture was forgotten", "UPDATE holds SET captured = 4 WHERE description = 'final'", counts{verify.HoldCaptured: 1}, "-1"},
		{"a capture was made up", "UPDATE holds SET captured = 1 WHERE description = 'voided'", counts{verify.HoldCaptured: 1}, "1"},
		{"a capture names no hold", "UPDATE transfers SET hold_id = gen_random_uuid() WHERE description = 'capture of final'",
			counts{verify.HoldCaptured: 1, verify.WrongCapture: 1}, "5"},
		{"a capture names another hold", "UPDATE transfers SET hold_id = (SELECT id FROM holds WHERE description = 'voided') WHERE description = 'capture of final'",
			counts{verify.HoldCaptured: 2}, ""},
		{"a capture of another kind", "UPDATE holds SET kind = 'debit' WHERE description = 'final'", counts{verify.WrongCapture: 1}, "5"},
		{"a capture for another account", "UPDATE holds SET credit_account_id = (SELECT id FROM accounts WHERE kind = 'external') WHERE description = 'final'",
			counts{verify.WrongCapture: 1}, "5"},
		{"ended with something open", "ALTER TABLE holds DROP CONSTRAINT holds_ended; UPDATE holds SET ended_at = now() WHERE description = 'open'",
			counts{verify.HoldStatus: 1}, "0"},
		{"open with nothing left", `ALTER TABLE holds DROP CONSTRAINT holds_open_has_rest;
			UPDATE holds SET status = 'open', ended_at = NULL WHERE description = 'whole'`, counts{verify.HoldStatus: 1}, "0"},
		{"captured without a capture", "UPDATE holds SET status = 'captured' WHERE description = 'voided'", counts{verify.HoldStatus: 1}, "0"},
		{"voided with nothing left", "UPDATE holds SET status = 'voided' WHERE description = 'whole'", counts{verify.HoldStatus: 1}, "0"},
		{"expired before its time", "UPDATE holds SET expires_at = ended_at + interval '1 hour' WHERE description = 'expired'", counts{verify.HoldStatus: 1}, "0"},
		{"expired without a time", "UPDATE holds SET expires_at = NULL WHERE description = 'expired'", counts{verify.HoldStatus: 1}, "0"},

		{"more was reversed than there was", `UPDATE transfers SET reverses_transfer_id = (SELECT id FROM transfers WHERE description = 'atomic' LIMIT 1)
			WHERE description = 'reversal'`, counts{verify.OverReversed: 1}, "9"},
		{"together more was reversed than there was", `UPDATE transfers SET reverses_transfer_id = (SELECT id FROM transfers WHERE description = 'capture of open')
			WHERE description IN ('reversal', 'second reversal')`, counts{verify.OverReversed: 1}, "11"},
		{"a reversal of nothing", "UPDATE transfers SET reverses_transfer_id = gen_random_uuid() WHERE description = 'reversal'", counts{verify.WrongReversal: 1}, "10"},
		{"a reversal of a reversal", `UPDATE transfers SET reverses_transfer_id = (SELECT id FROM transfers WHERE description = 'reversal')
			WHERE description = 'second reversal'`, counts{verify.WrongReversal: 1}, "5"},
		{"a reversal in the same direction", `UPDATE transfers SET reverses_transfer_id = (SELECT id FROM transfers WHERE description = 'back')
			WHERE description = 'reversal'`, counts{verify.WrongReversal: 1}, "10"},
		{"a reversal of another kind", "UPDATE transfers SET kind = 'transfer' WHERE description = 'reversal of the debit'", counts{verify.WrongReversal: 1}, "20"},

		{"a member far from its batch", "UPDATE transfers SET batch_id = gen_random_uuid() WHERE description = 'back'", counts{verify.WrongMember: 1}, "0"},
		{"a member before its batch", setMember("01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-000000000002"), counts{verify.WrongMember: 1}, "0"},
		{"a member behind the last place", setMember("01890000-0000-7000-8000-0000000003e9", "01890000-0000-7000-8000-000000000000"), counts{verify.WrongMember: 1}, "0"},
		{"a member with an id that is out of range", setMember("01890000-0000-7000-7fff-ffffffffffff", "01890000-0000-7000-8000-000000000000"),
			counts{verify.WrongMember: 1}, "0"},
		{"a member with the batch's own id", "UPDATE transfers SET id = batch_id WHERE id = (SELECT id FROM transfers WHERE description = 'atomic' ORDER BY id LIMIT 1)",
			counts{verify.WrongMember: 1}, "0"},
		{"a member that was made apart", "UPDATE transfers SET tx_id = '3' WHERE id = (SELECT id FROM transfers WHERE description = 'atomic' ORDER BY id DESC LIMIT 1)",
			counts{verify.WrongMember: 1}, "0"},

		{"a reference twice", "DROP INDEX transfers_reference; UPDATE transfers SET reference = 'r' WHERE reference = 'r2'",
			counts{verify.DuplicateReference: 1, verify.ReferencesUnguarded: 1}, "0"},
		{"an index that is not valid", "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'transfers_reference'::regclass",
			counts{verify.ReferencesUnguarded: 1}, "0"},
		{"an index that is not unique", "DROP INDEX transfers_reference; CREATE INDEX transfers_reference ON transfers (reference)",
			counts{verify.ReferencesUnguarded: 1}, "0"},

		{"a key whose hold is gone", "DELETE FROM holds WHERE description = 'voided'", counts{verify.KeyWithoutTransfer: 1}, "0"},
		{"a hold that was refused", "UPDATE idempotency_keys SET refusal = '{}' WHERE key = 'voided'", counts{verify.RefusedTransfer: 1}, "0"},
		{"a hold that was not refused and not made", "UPDATE idempotency_keys SET refusal = NULL WHERE key = 'refused hold'", counts{verify.KeyWithoutTransfer: 1}, "0"},
		{"two keys name one hold", "UPDATE idempotency_keys SET resource_id = (SELECT id FROM holds WHERE description = 'open') WHERE key = 'voided'",
			counts{verify.KeyWithoutTransfer: 1}, "0"},
		{"a key whose batch is gone", "UPDATE transfers SET batch_id = NULL WHERE description = 'atomic'", counts{verify.KeyWithoutTransfer: 1}, "0"},
		{"a batch that was refused", "UPDATE idempotency_keys SET refusal = '{}' WHERE key = 'atomic'", counts{verify.RefusedTransfer: 1}, "0"},
		{"a batch that was not refused and not made", "UPDATE idempotency_keys SET refusal = NULL WHERE key = 'refused batch'", counts{verify.KeyWithoutTransfer: 1}, "0"},
		{"an independent batch that lost a member", `UPDATE transfers SET batch_id = NULL
			WHERE id = (SELECT id FROM transfers WHERE description = 'independent' LIMIT 1)`, counts{verify.KeyWithoutTransfer: 1}, "0"},
		{"an independent batch with a member that was refused", "UPDATE idempotency_keys SET answer = '[{}, {}, null]' WHERE key = 'independent'",
			counts{verify.KeyWithoutTransfer: 1}, "0"},
		{"an independent batch of which all was made and is gone", "UPDATE transfers SET batch_id = NULL WHERE description = 'all made'",
			counts{verify.KeyWithoutTransfer: 1}, "0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := fullLedger(t)
			damage(t, db, tt.sql)
			report := check(t, db)
			if diff := cmp.Diff(tt.want, report.Counts); diff != "" {
				t.Fatalf("findings (-want +got):\n%s%+v", diff, report.Findings)
			}
			if tt.amount == "" {
				return
			}
			if first, want := report.Findings[0], decimal.RequireFromString(tt.amount); !first.Amount.Equal(want) {
				t.Errorf("amount of %+v = %s, want %s", first, first.Amount, want)
			}
		})
	}
}

func setMember(id, batchID string) string {
	return fmt.Sprintf("UPDATE transfers SET id = '%s', batch_id = '%s' WHERE description = 'back'", id, batchID)
}

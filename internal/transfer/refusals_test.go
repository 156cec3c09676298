package transfer_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/transfer"
)

// A scene is one account, hold and transfer of each sort that is in the way of
// somebody.
type scene struct {
	cast
	noDebits, noCredits, capped, holder uuid.UUID
	open, captured, voided, expired     transfer.Hold
	fromNoDebits, toNoCredits, toCapped transfer.Hold
	named, namedCredit                  transfer.Transfer // with a reference
	spent, partly, wholly, reversal     transfer.Transfer // to be reversed, or not any more
	paidByNoCredits, paidToNoDebits     transfer.Transfer
}

func (l *ledger) scene(t *testing.T) scene {
	t.Helper()
	s := l.service(transfer.Pessimistic)
	c := scene{
		cast: l.cast(t), noDebits: l.open(t, "USD", "100", "0"), noCredits: l.open(t, "USD", "100", "0"),
		capped: l.open(t, "USD", "8", "0"), holder: l.open(t, "USD", "100", "0"),
	}
	c.open, c.captured, c.voided = openHold(t, s, c.holder, c.rich, "50"), openHold(t, s, c.holder, c.rich, "20"), openHold(t, s, c.holder, c.rich, "10")
	capturing(transfer.Capture{HoldID: c.open.ID, Amount: "10"}).done(t, s)
	capturing(transfer.Capture{HoldID: c.captured.ID, Amount: "5", Final: true}).done(t, s)
	voiding(c.voided.ID).done(t, s)
	c.expired = l.openExpired(t, c.holder, c.rich, "1")
	c.fromNoDebits, c.toNoCredits, c.toCapped = openHold(t, s, c.noDebits, c.rich, "9"), openHold(t, s, c.holder, c.noCredits, "9"), openHold(t, s, c.holder, c.capped, "9")

	c.named = create(t, s, named(between(c.holder, c.rich, "1", "USD"), "used"))
	c.namedCredit = create(t, s, named(transfer.NewCredit(c.holder, number("1"), "USD"), "credited"))
	c.partly, c.wholly = create(t, s, between(c.holder, c.rich, "5", "USD")), create(t, s, between(c.rich, c.holder, "5", "USD"))
	reversing(transfer.Reversal{TransferID: c.partly.ID, Amount: "3.50"}).done(t, s)
	c.reversal = reversing(transfer.Reversal{TransferID: c.wholly.ID}).done(t, s).made.(transfer.Transfer)
	c.paidByNoCredits, c.paidToNoDebits = create(t, s, between(c.noCredits, c.rich, "1", "USD")), create(t, s, between(c.rich, c.noDebits, "1", "USD"))
	c.spent = create(t, s, between(c.holder, c.poor, "1", "USD"))
	create(t, s, transfer.NewDebit(c.poor, number("1"), "USD"))

	l.exec(t, `UPDATE accounts SET debits_blocked = true WHERE id = $1`, c.noDebits)
	l.exec(t, `UPDATE accounts SET credits_blocked = true WHERE id = $1`, c.noCredits)
	l.exec(t, `UPDATE accounts SET max_balance = 10 WHERE id = $1`, c.capped)
	return c
}

func named(c transfer.Command, reference string) transfer.Command {
	c.Reference = reference
	return c
}

func ifVersion(c transfer.Command, version int64) transfer.Command {
	c.IfVersion = &version
	return c
}

func expiring(c transfer.HoldCommand, at time.Time) transfer.HoldCommand {
	c.ExpiresAt = at
	return c
}

type requestCase struct {
	name    string
	request request
	is      error
	want    transfer.Refusal
}

func accountRuleCases(c scene) []requestCase {
	noDebits := transfer.Refusal{Code: "debits-blocked", AccountID: c.noDebits}
	noCredits := transfer.Refusal{Code: "credits-blocked", AccountID: c.noCredits}
	tooMuch := func(required string) transfer.Refusal {
		return transfer.Refusal{Code: "max-balance-exceeded", AccountID: c.capped, Available: "2.00", Required: required, Currency: "USD"}
	}
	return []requestCase{
		{"transfer from no debits", creating(between(c.noDebits, c.rich, "1", "USD")), transfer.ErrDebitsBlocked, noDebits},
		{"debit of no debits", creating(transfer.NewDebit(c.noDebits, number("1"), "USD")), transfer.ErrDebitsBlocked, noDebits},
		{"hold on no debits", holding(holdOf(c.noDebits, c.rich, "1")), transfer.ErrDebitsBlocked, noDebits},
		{"capture from no debits", capturing(transfer.Capture{HoldID: c.fromNoDebits.ID}), transfer.ErrDebitsBlocked, noDebits},
		{"reversal from no debits", reversing(transfer.Reversal{TransferID: c.paidToNoDebits.ID}), transfer.ErrDebitsBlocked, noDebits},
		{"transfer to no credits", creating(between(c.rich, c.noCredits, "1", "USD")), transfer.ErrCreditsBlocked, noCredits},
		{"credit to no credits", creating(transfer.NewCredit(c.noCredits, number("1"), "USD")), transfer.ErrCreditsBlocked, noCredits},
		{"capture to no credits", capturing(transfer.Capture{HoldID: c.toNoCredits.ID}), transfer.ErrCreditsBlocked, noCredits},
		{"reversal to no credits", reversing(transfer.Reversal{TransferID: c.paidByNoCredits.ID}), transfer.ErrCreditsBlocked, noCredits},
		{"transfer above the maximum", creating(between(c.rich, c.capped, "2.01", "USD")), transfer.ErrMaxBalanceExceeded, tooMuch("2.01")},
		{"credit above the maximum", creating(transfer.NewCredit(c.capped, number("3"), "USD")), transfer.ErrMaxBalanceExceeded, tooMuch("3.00")},
		{"capture above the maximum", capturing(transfer.Capture{HoldID: c.toCapped.ID}), transfer.ErrMaxBalanceExceeded, tooMuch("9.00")},
		{"capture of a part above the maximum", capturing(transfer.Capture{HoldID: c.toCapped.ID, Amount: "2.01", Final: true}), transfer.ErrMaxBalanceExceeded, tooMuch("2.01")},
		{"another version", creating(ifVersion(between(c.rich, c.poor, "1", "USD"), 1)), transfer.ErrVersionMismatch,
			transfer.Refusal{Code: "version-mismatch", AccountID: c.rich, Version: "10"}},
		{"a used reference", creating(named(between(c.holder, c.poor, "1", "USD"), "used")), transfer.ErrReferenceUsed,
			transfer.Refusal{Code: "reference-used", AccountID: c.holder, OtherID: &c.named.ID}},
		{"a used reference of a credit", creating(named(transfer.NewDebit(c.holder, number("1"), "USD"), "credited")), transfer.ErrReferenceUsed,
			transfer.Refusal{Code: "reference-used", AccountID: c.holder, OtherID: &c.namedCredit.ID}},
		{"a used reference of a capture", capturing(transfer.Capture{HoldID: c.open.ID, Reference: "used"}), transfer.ErrReferenceUsed,
			transfer.Refusal{Code: "reference-used", AccountID: c.holder, OtherID: &c.named.ID}},
		{"a used reference of a reversal", reversing(transfer.Reversal{TransferID: c.paidToNoDebits.ID, Reference: "used"}), transfer.ErrDebitsBlocked, noDebits},
	}
}

func holdCases(c scene) []requestCase {
	status := func(h transfer.Hold, status string) transfer.Refusal {
		return transfer.Refusal{Code: "hold-status", AccountID: c.holder, OtherID: &h.ID, Status: status}
	}
	expired := transfer.Refusal{Code: "hold-status", AccountID: c.rich, Status: "expired"}
	return []requestCase{
		{"transfer of what is held", creating(between(c.holder, c.rich, "24.51", "USD")), transfer.ErrInsufficientFunds,
			transfer.Refusal{Code: "insufficient-funds", AccountID: c.holder, Available: "24.50", Required: "24.51", Currency: "USD"}},
		{"hold of what is held", holding(holdOf(c.holder, c.rich, "24.51")), transfer.ErrInsufficientFunds,
			transfer.Refusal{Code: "insufficient-funds", AccountID: c.holder, Available: "24.50", Required: "24.51", Currency: "USD"}},
		{"hold of more than the overdraft", holding(holdOf(c.overdrawn, c.rich, "60.01")), transfer.ErrInsufficientFunds,
			transfer.Refusal{Code: "insufficient-funds", AccountID: c.overdrawn, Available: "60.00", Required: "60.01", Currency: "USD"}},
		{"hold on nobody", holding(holdOf(c.nobody, c.rich, "1")), transfer.ErrAccountNotFound, transfer.Refusal{Code: "account-not-found", AccountID: c.nobody}},
		{"hold for nobody", holding(holdOf(c.rich, c.nobody, "1")), transfer.ErrAccountNotFound, transfer.Refusal{Code: "account-not-found", AccountID: c.nobody}},
		{"hold on another currency", holding(holdOf(c.euro, c.rich, "1")), transfer.ErrCurrencyMismatch, transfer.Refusal{Code: "currency-mismatch", AccountID: c.euro, Currency: "USD"}},
		{"hold for another currency", holding(holdOf(c.rich, c.euro, "1")), transfer.ErrCurrencyMismatch, transfer.Refusal{Code: "currency-mismatch", AccountID: c.euro, Currency: "USD"}},
		{"hold on frozen", holding(holdOf(c.frozen, c.rich, "1")), transfer.ErrAccountFrozen, transfer.Refusal{Code: "account-frozen", AccountID: c.frozen}},
		{"hold on closed", holding(holdOf(c.closed, c.rich, "1")), transfer.ErrAccountClosed, transfer.Refusal{Code: "account-closed", AccountID: c.closed}},
		{"hold that has expired", holding(expiring(holdOf(c.rich, c.poor, "1"), time.Now().Add(-time.Hour))), transfer.ErrHoldStatus, expired},
		{"capture of more than is left", capturing(transfer.Capture{HoldID: c.open.ID, Amount: "40.01"}), transfer.ErrCaptureExceedsHold,
			transfer.Refusal{Code: "capture-exceeds-hold", AccountID: c.holder, OtherID: &c.open.ID, Available: "40.00", Required: "40.01", Currency: "USD"}},
		{"final capture of more than is left", capturing(transfer.Capture{HoldID: c.open.ID, Amount: "50", Final: true}), transfer.ErrCaptureExceedsHold,
			transfer.Refusal{Code: "capture-exceeds-hold", AccountID: c.holder, OtherID: &c.open.ID, Available: "40.00", Required: "50.00", Currency: "USD"}},
		{"capture of a captured hold", capturing(transfer.Capture{HoldID: c.captured.ID, Amount: "1"}), transfer.ErrHoldStatus, status(c.captured, "captured")},
		{"capture of the rest of a captured hold", capturing(transfer.Capture{HoldID: c.captured.ID}), transfer.ErrHoldStatus, status(c.captured, "captured")},
		{"capture of a voided hold", capturing(transfer.Capture{HoldID: c.voided.ID}), transfer.ErrHoldStatus, status(c.voided, "voided")},
		{"capture of an expired hold", capturing(transfer.Capture{HoldID: c.expired.ID}), transfer.ErrHoldStatus, status(c.expired, "expired")},
		{"void of a captured hold", voiding(c.captured.ID), transfer.ErrHoldStatus, status(c.captured, "captured")},
		{"void of an expired hold", voiding(c.expired.ID), transfer.ErrHoldStatus, status(c.expired, "expired")},
	}
}

func reversalCases(c scene) []requestCase {
	return []requestCase{
		{"reversal of more than is left", reversing(transfer.Reversal{TransferID: c.partly.ID, Amount: "1.51"}), transfer.ErrReversalExceedsTransfer,
			transfer.Refusal{Code: "reversal-exceeds-transfer", AccountID: c.rich, OtherID: &c.partly.ID, Available: "1.50", Required: "1.51", Currency: "USD"}},
		{"reversal where nothing is left", reversing(transfer.Reversal{TransferID: c.wholly.ID, Amount: "0.01"}), transfer.ErrReversalExceedsTransfer,
			transfer.Refusal{Code: "reversal-exceeds-transfer", AccountID: c.holder, OtherID: &c.wholly.ID, Available: "0.00", Required: "0.01", Currency: "USD"}},
		{"reversal of the rest where nothing is left", reversing(transfer.Reversal{TransferID: c.wholly.ID}), transfer.ErrReversalExceedsTransfer,
			transfer.Refusal{Code: "reversal-exceeds-transfer", AccountID: c.holder, OtherID: &c.wholly.ID, Available: "0.00", Required: "5.00", Currency: "USD"}},
		{"reversal of what is spent", reversing(transfer.Reversal{TransferID: c.spent.ID}), transfer.ErrInsufficientFunds,
			transfer.Refusal{Code: "insufficient-funds", AccountID: c.poor, Available: "0.00", Required: "1.00", Currency: "USD"}},
	}
}

func batchCases(c scene) []requestCase {
	one, two := 1, 2
	return []requestCase{
		{"atomic batch with a poor member", batching(true, between(c.rich, c.poor, "1", "USD"), between(c.poor, c.rich, "1.01", "USD"), between(c.nobody, c.rich, "1", "USD")),
			transfer.ErrInsufficientFunds, transfer.Refusal{Code: "insufficient-funds", AccountID: c.poor, Available: "1.00", Required: "1.01", Currency: "USD", Index: &one}},
		{"atomic batch with a used reference", batching(true, between(c.rich, c.poor, "1", "USD"), named(between(c.holder, c.poor, "1", "USD"), "used")),
			transfer.ErrReferenceUsed, transfer.Refusal{Code: "reference-used", AccountID: c.holder, OtherID: &c.named.ID, Index: &one}},
		{"atomic batch above the maximum", batching(true, between(c.rich, c.capped, "1", "USD"), between(c.rich, c.capped, "1", "USD"), between(c.rich, c.capped, "0.01", "USD")),
			transfer.ErrMaxBalanceExceeded, transfer.Refusal{Code: "max-balance-exceeded", AccountID: c.capped, Available: "0.00", Required: "0.01", Currency: "USD", Index: &two}},
	}
}

func TestEveryRequestIsRefusedInTheSameWayAndFinallyUnderItsKey(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		s := mode.service(l.db, patient)
		c := l.scene(t)
		var cases []requestCase
		for _, some := range [][]requestCase{accountRuleCases(c), holdCases(c), reversalCases(c), batchCases(c)} {
			cases = append(cases, some...)
		}
		before := count(t, l, `SELECT (SELECT count(*) FROM transfers) + (SELECT count(*) FROM holds)`)
		first := map[string]result{}
		for _, tt := range cases {
			first[tt.name] = tt.refused(t, s, tt.name, false)
			tt.refused(t, s, "", false)
		}
		if n := count(t, l, `SELECT (SELECT count(*) FROM transfers) + (SELECT count(*) FROM holds)`); n != before {
			t.Errorf("%d transfers and holds, want %d as before: all were refused", n, before)
		}
		l.wantSound(t)

		// All that stood in the way goes away; the answers stay.
		for _, id := range []uuid.UUID{c.rich, c.poor, c.overdrawn, c.holder} {
			create(t, s, transfer.NewCredit(id, number("1000"), "USD"))
		}
		l.exec(t, `UPDATE accounts SET max_balance = NULL, debits_blocked = false, credits_blocked = false`)
		for _, tt := range cases {
			again := tt.refused(t, s, tt.name, tt.name != "void of a captured hold" && tt.name != "void of an expired hold")
			if diff := cmp.Diff(first[tt.name].err, again.err); diff != "" {
				t.Errorf("%s: refusal and its replay differ (-first +replay):\n%s", tt.name, diff)
			}
		}
		l.wantSound(t)
	})
}

// refused sends the request under key, and wants it refused as tt says.
func (tt requestCase) refused(t *testing.T, s *transfer.Service, key string, wantReplayed bool) result {
	t.Helper()
	got := tt.request.send(t, s, key)
	var refusal *transfer.Refusal
	if !errors.Is(got.err, tt.is) || !errors.As(got.err, &refusal) {
		t.Fatalf("%s: error = %v, want a refusal for %v", tt.name, got.err, tt.is)
	}
	ignored := []string{"TransferID"}
	if tt.want.Code == "hold-status" && tt.want.OtherID == nil { // it names the hold that would have been
		ignored = append(ignored, "OtherID")
	}
	if diff := cmp.Diff(tt.want, *refusal, cmpopts.IgnoreFields(transfer.Refusal{}, ignored...)); diff != "" {
		t.Errorf("%s: refusal (-want +got):\n%s", tt.name, diff)
	}
	if refusal.TransferID == uuid.Nil || got.replayed != wantReplayed {
		t.Errorf("%s: refusal of %s, replayed %v, want the id that it would have had, %v", tt.name, refusal.TransferID, got.replayed, wantReplayed)
	}
	return got
}

// What is named and not there, or never can be done, is no refusal: no key is
// used up for it.
func TestWhatIsNotThereIsFoundOutBefore(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode way) {
		l := newLedger(t)
		s := mode.service(l.db, patient)
		c := l.scene(t)
		before := l.contents(t)
		for _, tt := range []struct {
			name    string
			request request
			want    error
		}{
			{"capture", capturing(transfer.Capture{HoldID: c.nobody}), transfer.ErrHoldNotFound},
			{"void", voiding(c.nobody), transfer.ErrHoldNotFound},
			{"reversal", reversing(transfer.Reversal{TransferID: c.nobody}), transfer.ErrNotFound},
			{"reversal of a reversal", reversing(transfer.Reversal{TransferID: c.reversal.ID}), transfer.ErrReversalOfReversal},
			{"hold for oneself", holding(holdOf(c.rich, c.rich, "1")), transfer.ErrSameAccount},
		} {
			if got := tt.request.send(t, s, tt.name); !errors.Is(got.err, tt.want) {
				t.Errorf("%s: error = %v, want %v", tt.name, got.err, tt.want)
			}
		}
		if diff := cmp.Diff(before, l.contents(t)); diff != "" {
			t.Errorf("something is left (-before +after):\n%s", diff)
		}
	})
}

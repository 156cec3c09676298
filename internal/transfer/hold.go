package transfer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"
	"golang.org/x/sync/errgroup"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/money"
	"github.com/rowlock/ledger/internal/retry"
)

// Statuses of a hold. Only an open one changes.
const (
	HoldOpen     = "open"     // what is left of it is reserved
	HoldCaptured = "captured" // by a final capture, or nothing was left
	HoldVoided   = "voided"   // what was left is released
	HoldExpired  = "expired"  // the same, by its time
)

// CheckHoldStatus notes a fault unless status is one.
func CheckHoldStatus(c *invalid.Check, status string) {
	if all := []string{HoldOpen, HoldCaptured, HoldVoided, HoldExpired}; !slices.Contains(all, status) {
		c.Add("status", "must be one of %s", strings.Join(all, ", "))
	}
}

// A Hold reserves money of one account for another one. What is left of an open
// one is part of its account's held amount.
type Hold struct {
	ID              uuid.UUID
	Kind            string // of its captures: Between or Debit
	DebitAccountID  uuid.UUID
	CreditAccountID uuid.UUID
	Amount          decimal.Decimal
	Captured        decimal.Decimal // by transfers that name the hold
	Currency        string
	Status          string
	Description     string
	Metadata        map[string]string
	ExpiresAt       time.Time // zero: never
	EndedAt         time.Time // zero while it is open
	CreatedAt       time.Time

	capturedThen decimal.Decimal // as they were read
	statusThen   string
}

// Rest is what is left of h, to be captured or released.
func (h *Hold) Rest() decimal.Decimal {
	if h.Status != HoldOpen {
		return decimal.Zero
	}
	return h.Amount.Sub(h.Captured)
}

// expired reports whether the time of h is over, whoever has noticed it.
func (h *Hold) expired(at time.Time) bool { return !h.ExpiresAt.IsZero() && !h.ExpiresAt.After(at) }

// refuse says so unless h is open.
func (h *Hold) refuse(at time.Time) *Refusal {
	status := h.Status
	if status == HoldOpen && h.expired(at) {
		status = HoldExpired
	}
	if status == HoldOpen {
		return nil
	}
	return &Refusal{Code: "hold-status", AccountID: h.DebitAccountID, OtherID: &h.ID, Status: status}
}

// capture takes amount out of h; what is left is kept, unless it is the final one.
func (h *Hold) capture(amount decimal.Decimal, final bool, at time.Time) {
	h.Captured = h.Captured.Add(amount)
	if final || h.Rest().IsZero() {
		h.end(HoldCaptured, at)
	}
}

func (h *Hold) end(status string, at time.Time) { h.Status, h.EndedAt = status, at.UTC() }

func (h *Hold) changed() bool { return h.Status != h.statusThen || !h.Captured.Equal(h.capturedThen) }

// A HoldCommand asks for a hold.
type HoldCommand struct {
	Call
	Kind            string // Between, or Debit: then the credit account is external
	DebitAccountID  uuid.UUID
	CreditAccountID uuid.UUID
	Amount          decimal.Decimal
	Currency        string
	ExpiresAt       time.Time // zero: never
	Description     string
	Metadata        map[string]string
}

// Validate returns an [*invalid.Error] with all that is wrong with c, or
// [ErrSameAccount], or nil. It knows nothing of the accounts, nor what time it is.
func (c HoldCommand) Validate() error {
	var check invalid.Check
	checkMoney(&check, c.Amount, c.Currency)
	checkAccount(&check, "debit_account_id", c.DebitAccountID)
	switch c.Kind {
	case Between:
		checkAccount(&check, "credit_account_id", c.CreditAccountID)
	case Debit:
	default:
		check.Add("kind", "must be one of %s, %s", Between, Debit)
	}
	if year := c.ExpiresAt.UTC().Year(); !c.ExpiresAt.IsZero() && (year < minYear || year > maxYear) {
		check.Add("expires_at", "must be in the years %d to %d", minYear, maxYear)
	}
	checkText(&check, c.Call, "", c.Description, c.Metadata)
	if err := check.Err(); err != nil {
		return err
	}
	if c.DebitAccountID == c.CreditAccountID {
		return ErrSameAccount
	}
	return nil
}

// The years of a time that is no mistake.
const (
	minYear = 2000
	maxYear = 9999
)

// Hold reserves the money that c asks for, and returns the hold as it was then.
//
// The errors are those of [Service.Create], and [*Refusal] with [ErrHoldStatus]
// where the hold would have expired already.
func (s *Service) Hold(ctx context.Context, c HoldCommand) (h Hold, replayed bool, err error) {
	if err := c.Validate(); err != nil {
		return Hold{}, false, err
	}
	c.ExpiresAt = c.ExpiresAt.UTC().Truncate(time.Microsecond) // as it is stored
	opening := &holding{HoldCommand: c, id: uuid.Must(uuid.NewV7())}
	opening.Metadata = stored(c.Metadata)
	m := newMove(c.Call, opening.id, []step{opening}, "POST /v1/holds",
		c.Kind, c.DebitAccountID.String(), c.CreditAccountID.String(), money.Format(c.Amount, c.Currency), c.Currency,
		formatExpiry(c.ExpiresAt), c.Description, idempotency.SumMap(c.Metadata))
	if err := s.do(ctx, m); err != nil {
		return Hold{}, false, err
	}
	return opening.hold, m.replayed, m.refusal
}

func formatExpiry(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// A Capture asks for the transfer of what a hold reserves, or of a part of it.
type Capture struct {
	Call
	HoldID      uuid.UUID
	Amount      string // as [money.ParseAmount] reads it; "": what is left
	Final       bool   // releases what is left after it
	Reference   string
	Description string
	Metadata    map[string]string
}

// Validate returns an [*invalid.Error] with all that is wrong with c, or nil.
// Its amount is judged when the currency is known.
func (c Capture) Validate() error {
	var check invalid.Check
	checkText(&check, c.Call, c.Reference, c.Description, c.Metadata)
	return check.Err()
}

// Capture makes the transfer that c asks for. It names its hold, which ends with
// it where nothing is left or the capture is final.
//
// The errors are those of [Service.Create] and [ErrHoldNotFound], and [*Refusal]
// with [ErrHoldStatus] or [ErrCaptureExceedsHold].
func (s *Service) Capture(ctx context.Context, c Capture) (t Transfer, replayed bool, err error) {
	if err := c.Validate(); err != nil {
		return Transfer{}, false, err
	}
	h, err := s.GetHold(ctx, c.HoldID)
	if err != nil {
		return Transfer{}, false, err
	}
	amount, err := parsePart(c.Amount, h.Currency)
	if err != nil {
		return Transfer{}, false, err
	}
	command := Command{
		Call: c.Call, Kind: h.Kind, DebitAccountID: h.DebitAccountID, CreditAccountID: h.CreditAccountID,
		Amount: amount, Currency: h.Currency, Reference: c.Reference, Description: c.Description, Metadata: c.Metadata,
	}
	return s.make(ctx, &making{Command: command, hold: &capturing{id: h.ID, final: c.Final}}, "POST /v1/holds/"+h.ID.String()+"/capture",
		formatPart(amount, h.Currency), fmt.Sprint(c.Final), c.Reference, c.Description, idempotency.SumMap(c.Metadata))
}

// Void releases what is left of a hold. It does nothing to a voided one.
//
// The errors are those of [Service.Create] and [ErrHoldNotFound], and [*Refusal]
// with [ErrHoldStatus].
func (s *Service) Void(ctx context.Context, id uuid.UUID, call Call) (Hold, error) {
	h, err := s.GetHold(ctx, id)
	if err != nil {
		return Hold{}, err
	}
	ending := &ending{id: id, accountID: h.DebitAccountID, status: HoldVoided}
	m := newMove(Call{Left: call.Left, DryRun: call.DryRun}, id, []step{ending}, "")
	if err := s.do(ctx, m); err != nil {
		return Hold{}, err
	}
	return ending.hold, m.refusal
}

// ExpireHolds releases what is left of up to limit holds whose time is over,
// the oldest first, and returns how many it found. One that somebody else keeps
// locked is passed over, and does not hold up the others. It is housekeeping: a
// judgement never waits for it. The error is one of package retry's.
func (s *Service) ExpireHolds(ctx context.Context, limit int) (found int, err error) {
	holds, err := retry.Tx(ctx, s.db, readOnly, s.policy, func(ctx context.Context, tx pgx.Tx) ([]Hold, error) {
		return selectExpiredHolds(ctx, tx, limit)
	})
	if err != nil {
		return 0, err
	}
	var endings errgroup.Group
	endings.SetLimit(expiring)
	for _, h := range holds {
		endings.Go(func() error {
			return s.do(ctx, newMove(Call{}, h.ID, []step{&ending{id: h.ID, accountID: h.DebitAccountID, status: HoldExpired}}, ""))
		})
	}
	return len(holds), endings.Wait()
}

// expiring is how many holds are released at once: enough to share a group.
const expiring = 4

// A holding is the step that opens a hold.
type holding struct {
	HoldCommand
	id      uuid.UUID
	hold    Hold
	wasMade bool
}

func (s *holding) touched() [2]uuid.UUID { return [2]uuid.UUID{s.DebitAccountID, s.CreditAccountID} }
func (s *holding) need(*needs)           {}
func (s *holding) reset()                { s.hold, s.wasMade = Hold{}, false }
func (s *holding) found() bool           { return s.wasMade }

// queueFind takes over the hold as it was when it was opened.
func (s *holding) queueFind(b *pgx.Batch, id uuid.UUID) {
	queueFindHold(b, id, func(h Hold) {
		h.Status, h.Captured, h.EndedAt = HoldOpen, decimal.Zero, time.Time{}
		s.hold, s.wasMade = h, true
	})
}

func (s *holding) judge(b *books) *Refusal {
	if refusal := b.admit(s.DebitAccountID, true, s.DebitAccountID, s.Currency); refusal != nil {
		return refusal
	}
	// Whether the credit side takes the money is asked when there is some.
	credit := b.accounts[s.CreditAccountID]
	switch {
	case credit == nil && !accounts.IsExternal(s.CreditAccountID):
		return &Refusal{Code: "account-not-found", AccountID: s.CreditAccountID}
	case credit == nil, credit.currency != s.Currency:
		return &Refusal{Code: "currency-mismatch", AccountID: s.CreditAccountID, Currency: s.Currency}
	}
	h := Hold{
		ID: s.id, Kind: s.Kind, DebitAccountID: s.DebitAccountID, CreditAccountID: s.CreditAccountID, Amount: s.Amount, Currency: s.Currency,
		Status: HoldOpen, Description: s.Description, Metadata: s.Metadata, ExpiresAt: s.ExpiresAt, CreatedAt: b.at.UTC(),
	}
	if refusal := h.refuse(b.at); refusal != nil {
		return refusal
	}
	debit := b.accounts[s.DebitAccountID]
	if refusal := b.fund(debit, s.Amount); refusal != nil {
		return refusal
	}
	debit.reserve(s.Amount)
	s.hold = h
	b.opened = append(b.opened, &s.hold)
	return nil
}

// An ending is the step that releases what is left of a hold.
type ending struct {
	id        uuid.UUID
	accountID uuid.UUID
	status    string // that it ends with
	hold      Hold
}

func (s *ending) touched() [2]uuid.UUID           { return [2]uuid.UUID{s.accountID} }
func (s *ending) need(n *needs)                   { n.holds = append(n.holds, s.id) }
func (s *ending) reset()                          { s.hold = Hold{} }
func (s *ending) found() bool                     { return false }
func (s *ending) queueFind(*pgx.Batch, uuid.UUID) {}

// judge ends the hold. One that has ended in this way already stays as it is.
func (s *ending) judge(b *books) *Refusal {
	h := b.holds[s.id]
	expires := h.Status == HoldOpen && h.expired(b.at)
	switch {
	case h.Status == s.status:
	case s.status == HoldExpired && !expires: // somebody else ended it
	case s.status == HoldVoided && (expires || h.Status != HoldOpen):
		return h.refuse(b.at)
	default:
		b.release(h, s.status)
	}
	s.hold = *h
	return nil
}

// release ends an open hold, and what is left of it is available again.
func (b *books) release(h *Hold, status string) {
	b.accounts[h.DebitAccountID].reserve(h.Rest().Neg())
	h.end(status, b.at)
}

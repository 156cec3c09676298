package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/invalid"
)

// MaxBatch is how many transfers a batch may have.
const MaxBatch = 1000

// A BatchCommand asks for transfers that are sent together. Their own keys are
// not looked at: the batch has one.
type BatchCommand struct {
	Call
	Atomic    bool // all of them or none; otherwise each succeeds or fails by itself
	Transfers []Command
}

// Validate returns an [*invalid.Error] with all that is wrong with c, or nil.
func (c BatchCommand) Validate() error {
	var check invalid.Check
	if n := len(c.Transfers); n < 1 || n > MaxBatch {
		check.Add("transfers", "must be 1 to %d transfers", MaxBatch)
		return check.Err()
	}
	if c.Key != nil {
		c.Key.Check(&check)
	}
	for i, t := range c.Transfers {
		field := fmt.Sprintf("transfers/%d", i)
		var member invalid.Check
		if other := member.Join(t.Validate()); other != nil { // ErrSameAccount
			check.Add(field+"/credit_account_id", "must differ from the debit account")
		}
		check.Within(field, member)
	}
	return check.Err()
}

// A Batch is what became of a batch, with an outcome for each member, in the
// order of the members. The transfers of one batch have its id in common, and
// follow each other by their own.
type Batch struct {
	ID       uuid.UUID
	Outcomes []Outcome
}

// CreateBatch makes the transfers that c asks for, in one transaction and in
// their order: a member finds what the ones before it have left.
//
// Where c is atomic, the errors are those of [Service.Create]; a [*Refusal] says
// by its index which member was the first to be refused, and then none is made.
// Where it is not, a member's refusal is its outcome.
func (s *Service) CreateBatch(ctx context.Context, c BatchCommand) (b Batch, replayed bool, err error) {
	if err := c.Validate(); err != nil {
		return Batch{}, false, err
	}
	id := uuid.Must(uuid.NewV7())
	steps := make([]step, len(c.Transfers))
	fields := []string{fmt.Sprint(c.Atomic)}
	for i, t := range c.Transfers {
		t.Metadata = stored(t.Metadata)
		steps[i] = &making{Command: t, id: memberID(id, i), batchID: id}
		sum := idempotency.Sum(t.route(), t.fields()...)
		fields = append(fields, string(sum[:]))
	}
	m := newMove(c.Call, id, steps, "POST /v1/transfers/batch", fields...)
	m.batch = &batch{atomic: c.Atomic}
	if err := s.do(ctx, m); err != nil {
		return Batch{}, false, err
	}
	if m.refusal != nil {
		return Batch{}, m.replayed, m.refusal
	}
	return m.outcome(), m.replayed, nil
}

// outcome is what became of m, which was not refused as a whole.
func (m *move) outcome() Batch {
	b := Batch{Outcomes: make([]Outcome, len(m.steps))}
	for i, s := range m.steps {
		b.Outcomes[i].Transfer = s.(*making).transfer
		if refusal := m.batch.refusalOf(i); refusal != nil {
			b.Outcomes[i] = Outcome{Refusal: refusal}
		}
	}
	b.ID = m.batch.id
	return b
}

// A batch is what a move of several transfers has besides them.
type batch struct {
	atomic bool

	id       uuid.UUID  // as it was made: by this call, or by the first one under the key
	refusals []*Refusal // of the members, nil for those that are made; nil where none was judged or all are made
}

func (b *batch) refusalOf(i int) *Refusal {
	if b.refusals == nil {
		return nil
	}
	return b.refusals[i]
}

// refused reports whether a member was refused by itself.
func (b *batch) refused() bool {
	return slices.ContainsFunc(b.refusals, func(r *Refusal) bool { return r != nil })
}

// recall takes over what became of the members when the key was first used.
func (b *batch) recall(o idempotency.Outcome) error {
	b.id = o.ResourceID
	if o.Answer == nil {
		return nil
	}
	if err := json.Unmarshal(o.Answer, &b.refusals); err != nil {
		return fmt.Errorf("read the stored refusals: %w", err)
	}
	for i, r := range b.refusals {
		if r != nil {
			r.TransferID = memberID(o.ResourceID, i)
		}
	}
	return nil
}

// judgeBatch judges the members of m in their order. Independent ones that were
// made already stay made.
func (b *books) judgeBatch(m *move) error {
	m.batch.id = m.id
	if m.batch.atomic {
		return b.judgeAtomic(m)
	}
	again := m.batch.refusals != nil
	if !again {
		m.batch.refusals = make([]*Refusal, len(m.steps))
	}
	for i, s := range m.steps {
		if s.found() || again && m.batch.refusals[i] == nil {
			continue
		}
		refusal := s.judge(b)
		if refusal != nil {
			refusal.TransferID = memberID(m.id, i)
		}
		m.batch.refusals[i] = refusal
	}
	return nil
}

// judgeAtomic makes all members in memory, or none.
func (b *books) judgeAtomic(m *move) error {
	restore := b.save(m)
	for i, s := range m.steps {
		if refusal := s.judge(b); refusal != nil {
			restore()
			refusal.TransferID, refusal.Index = m.id, &i
			return refusal
		}
	}
	return nil
}

// save returns what undoes the steps of m, a batch of transfers that neither
// capture nor reverse.
func (b *books) save(m *move) (restore func()) {
	saved := make(map[uuid.UUID]balance, len(m.accounts))
	for _, id := range m.accounts {
		if a := b.accounts[id]; a != nil {
			saved[id] = *a
		}
	}
	made := len(b.transfers)
	return func() {
		for id, a := range saved {
			*b.accounts[id] = a
		}
		for _, t := range b.transfers[made:] {
			if t.Reference != "" {
				delete(b.references, reference{Command{Kind: t.Kind, DebitAccountID: t.DebitAccountID, CreditAccountID: t.CreditAccountID}.sides()[0], t.Reference})
			}
		}
		b.transfers = b.transfers[:made]
	}
}

// lacksFunds reports whether m, or a member of it, was refused because one of
// these accounts could not pay.
func (m *move) lacksFunds(poor []uuid.UUID) bool {
	lacks := func(r *Refusal) bool {
		return r != nil && r.Code == "insufficient-funds" && slices.Contains(poor, r.AccountID)
	}
	refusal, _ := m.refusal.(*Refusal)
	return lacks(refusal) || m.batch != nil && slices.ContainsFunc(m.batch.refusals, lacks)
}

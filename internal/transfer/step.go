package transfer

import (
	"encoding/binary"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/idempotency"
)

// A Call is what all commands have in common.
type Call struct {
	Key *idempotency.Key // nil: every call has an effect of its own

	// Left, where not nil, is closed when nobody waits for the answer any more.
	// A command that has not begun by then is dropped.
	Left <-chan struct{}

	// DryRun answers as if, and leaves nothing behind: no effect, and no key.
	DryRun bool
}

// A move is one command on its way through an attempt, and what the attempt
// found. Its id is chosen before the first attempt, so that every attempt has
// the same effect.
type move struct {
	Call
	id       uuid.UUID          // of the effect: a transfer, a hold or a batch
	claim    *idempotency.Claim // nil without a key
	accounts []uuid.UUID        // that it needs, each once, in the order of their locks
	steps    []step             // done in this order: all of them, or none
	batch    *batch             // nil: there is one step, and it has the id of the move

	refusal  error // a *Refusal, or idempotency.ErrKeyReused: an answer, not a failure
	replayed bool
}

// A step is one thing that a move does to the books: it makes a transfer, opens
// a hold or ends one. It carries its own result.
type step interface {
	// touched returns the accounts that the step needs; one may be uuid.Nil.
	touched() [2]uuid.UUID

	// need notes what must be read for the step besides its accounts.
	need(*needs)

	// judge does the step in memory, or returns the *Refusal that says why it
	// cannot be done.
	judge(*books) *Refusal

	// reset forgets what an attempt before this one found.
	reset()

	// queueFind queues the look whether the step was done before, with that id,
	// and takes over the result. It does nothing where a step leaves no trace of
	// its own.
	queueFind(b *pgx.Batch, id uuid.UUID)

	// found reports whether that look found something.
	found() bool
}

// newMove makes a move; route and fields are what its key stands for.
func newMove(call Call, id uuid.UUID, steps []step, route string, fields ...string) *move {
	m := &move{Call: call, id: id, steps: steps, accounts: accountsOf(steps)}
	if call.Key != nil {
		m.claim = &idempotency.Claim{Key: *call.Key, Fingerprint: idempotency.Sum(route, fields...), ResourceID: id}
	}
	return m
}

func accountsOf(steps []step) []uuid.UUID {
	ids := make([]uuid.UUID, 0, 2*len(steps))
	for _, s := range steps {
		for _, id := range s.touched() {
			if id != uuid.Nil {
				ids = append(ids, id)
			}
		}
	}
	return inOrder(ids)
}

func (m *move) reset() {
	m.refusal, m.replayed = nil, false
	if m.batch != nil {
		m.batch.refusals = nil
	}
	for _, s := range m.steps {
		s.reset()
	}
}

// mine reports whether m is this attempt's to make: it has no key, or its key
// was free.
func (m *move) mine() bool { return m.claim == nil || m.claim.Won }

// made reports whether an attempt before this one was found to have made all of m.
func (m *move) made() bool {
	for _, s := range m.steps {
		if !s.found() {
			return false
		}
	}
	return true
}

// queueFind queues the look whether m was made before, with that id.
func (m *move) queueFind(b *pgx.Batch, id uuid.UUID) {
	for i, s := range m.steps {
		if m.batch != nil {
			s.queueFind(b, memberID(id, i))
		} else {
			s.queueFind(b, id)
		}
	}
}

// memberID is the id of member i of a batch. Members follow the batch's own id,
// so that their order is that of the batch.
func memberID(batch uuid.UUID, i int) uuid.UUID {
	low := binary.BigEndian.Uint64(batch[8:])
	binary.BigEndian.PutUint64(batch[8:], low+uint64(i)+1)
	return batch
}

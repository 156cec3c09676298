package httpapi

import (
	"fmt"
	"net/http"

	"github.com/rowlock/ledger/internal/transfer"
)

// maxBatchBody is how large the body of a batch may be, in bytes.
const maxBatchBody = 1 << 20

// newBatch is the body of POST /v1/transfers/batch.
type newBatch struct {
	Atomic    flag          `json:"atomic"`
	Transfers []newTransfer `json:"transfers"`
}

func (s *server) createBatch(w http.ResponseWriter, r *http.Request) error {
	var body newBatch
	if err := decode(r, &body); err != nil {
		return err
	}
	var f form
	c := transfer.BatchCommand{Call: f.call(r), Atomic: body.Atomic.value}
	if !body.Atomic.given {
		f.Add("atomic", "is required")
	}
	if len(body.Transfers) <= transfer.MaxBatch { // otherwise that is the fault
		for i, t := range body.Transfers {
			var member form
			c.Transfers = append(c.Transfers, member.transfer(t))
			f.Within(fmt.Sprintf("transfers/%d", i), member.Check)
		}
	}
	if err := f.validate(c.Validate()); err != nil {
		return err
	}
	b, replayed, err := s.Transfers.CreateBatch(r.Context(), c)
	markReplay(w, replayed)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, batchBody(b, c.Atomic, callOf(r).id))
}

// batchJSON is what became of a batch, as it is sent.
type batchJSON struct {
	ID      string       `json:"id"`
	Atomic  bool         `json:"atomic"`
	Results []resultJSON `json:"results"`
}

// resultJSON is what became of a member: its transfer, or the problem that it
// would have been answered with alone.
type resultJSON struct {
	Index    int           `json:"index"`
	Status   string        `json:"status"`
	Transfer *transferJSON `json:"transfer,omitempty"`
	Problem  *problem      `json:"problem,omitempty"`
}

func batchBody(b transfer.Batch, atomic bool, requestID string) batchJSON {
	sent := batchJSON{ID: b.ID.String(), Atomic: atomic, Results: make([]resultJSON, len(b.Outcomes))}
	for i, o := range b.Outcomes {
		if o.Refusal != nil {
			sent.Results[i] = resultJSON{Index: i, Status: "refused", Problem: new(describe(o.Refusal, requestID))}
		} else {
			sent.Results[i] = resultJSON{Index: i, Status: "made", Transfer: new(transferBody(o.Transfer))}
		}
	}
	return sent
}

package httpapi

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/transfer"
)

// streamEntries answers with all entries that an account has when it begins.
func (s *server) streamEntries(w http.ResponseWriter, r *http.Request, id uuid.UUID, descending bool) error {
	account, err := s.Accounts.Get(r.Context(), id)
	if err != nil {
		return err
	}
	left := account.Version // of which there are as many
	p := accounts.Page{Descending: descending}
	if descending {
		p.After = account.Version + 1
	}
	return stream(s, w, r, "entries-"+id.String()+".csv", func(ctx context.Context) ([]entryJSON, bool, error) {
		p.Limit = int(min(left, streamPage))
		if p.Limit == 0 {
			return nil, false, nil
		}
		part, err := s.Accounts.Entries(ctx, id, p)
		if err != nil {
			return nil, false, err
		}
		p.After = part[len(part)-1].Version
		left -= int64(len(part))
		return bodies(part, entryBody), left > 0, nil
	})
}

// streamTransfers answers with all transfers that filter selects.
func (s *server) streamTransfers(w http.ResponseWriter, r *http.Request, filter transfer.Filter) error {
	filter.Limit = streamPage
	// Upwards, the list may grow as fast as it is read: it ends with what is last
	// now. Downwards, it ends by itself.
	until := uint64(0)
	if !filter.Descending {
		last, err := s.Transfers.List(r.Context(), transfer.Filter{AccountID: filter.AccountID, Descending: true, Limit: 1})
		if err != nil {
			return err
		}
		for _, t := range last.Transfers[:min(1, len(last.Transfers))] {
			until = rank(t, filter.AccountID)
		}
	}
	return stream(s, w, r, "transfers.csv", func(ctx context.Context) ([]transferJSON, bool, error) {
		found, err := s.Transfers.List(ctx, filter)
		if err != nil {
			return nil, false, err
		}
		part, more := found.Transfers, found.Next != nil && len(found.Transfers) == streamPage
		for i, t := range part {
			if !filter.Descending && rank(t, filter.AccountID) > until {
				part, more = part[:i], false
				break
			}
		}
		filter.After = found.Next
		return bodies(part, transferBody), more, nil
	})
}

// rank says how far up in its list a transfer is.
func rank(t transfer.Transfer, accountID uuid.UUID) uint64 {
	switch accountID {
	case uuid.Nil:
		return t.TxID
	case t.DebitAccountID:
		return uint64(t.DebitVersion)
	}
	return uint64(t.CreditVersion)
}

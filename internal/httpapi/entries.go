package httpapi

import (
	"net/http"
	"strconv"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/money"
)

func (s *server) listEntries(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	csv, err := acceptsCSV(w, r)
	if err != nil {
		return err
	}
	var f form
	q := r.URL.Query()
	p := accounts.Page{Descending: f.descending(q, "asc")}
	if csv {
		f.whole(q)
		if err := f.Err(); err != nil {
			return err
		}
		return s.streamEntries(w, r, id, p.Descending)
	}
	limit := f.limit(q)
	list := "entries?account_id=" + id.String() + "&descending=" + strconv.FormatBool(p.Descending)
	if place := f.cursor(q, list, versionSize); place != nil {
		p.After = placeVersion(place)
	}
	if err := f.Err(); err != nil {
		return err
	}
	p.Limit = limit + 1
	found, err := s.Accounts.Entries(r.Context(), id, p)
	if err != nil {
		return err
	}
	page, next := paged(found, limit, list, func(e accounts.Entry) []byte { return versionPlace(e.Version) })
	return writeJSON(w, http.StatusOK, listOf(page, entryBody, next))
}

// entryJSON is an entry as it is sent.
type entryJSON struct {
	AccountID      string `json:"account_id"`
	Version        string `json:"version"`
	Direction      string `json:"direction"`
	Amount         string `json:"amount"`
	BalanceAfter   string `json:"balance_after"`
	TransferID     string `json:"transfer_id"`
	OtherAccountID string `json:"other_account_id"`
	CreatedAt      string `json:"created_at"`
}

func entryBody(e accounts.Entry) entryJSON {
	return entryJSON{
		AccountID: e.AccountID.String(), Version: strconv.FormatInt(e.Version, 10), Direction: e.Direction,
		Amount: money.Format(e.Amount, e.Currency), BalanceAfter: money.Format(e.BalanceAfter, e.Currency),
		TransferID: e.TransferID.String(), OtherAccountID: e.OtherAccountID.String(), CreatedAt: formatTime(e.CreatedAt),
	}
}

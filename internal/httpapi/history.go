package httpapi

import (
	"context"
	"encoding/binary"
	"net/http"
	"net/url"
	"strconv"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/accounts"
	"github.com/rowlock/ledger/internal/money"
)

func (s *server) getBalance(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var f form
	q := r.URL.Query()
	m := accounts.Moment{At: f.optionalTime(q, "at")}
	if q.Has("version") {
		m.Version = f.version("version", text{value: q.Get("version"), given: true})
		if q.Has("at") {
			f.Add("version", "must not be given together with at")
		}
	}
	if err := f.Err(); err != nil {
		return err
	}
	balance, err := s.Accounts.BalanceAt(r.Context(), id, m)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, balanceBody(balance))
}

// balanceJSON is a balance as it is sent.
type balanceJSON struct {
	AccountID string  `json:"account_id"`
	Currency  string  `json:"currency"`
	Version   string  `json:"version"`
	Balance   string  `json:"balance"`
	At        *string `json:"at"`
}

func balanceBody(b accounts.Balance) balanceJSON {
	return balanceJSON{
		AccountID: b.AccountID.String(), Currency: b.Currency, Version: strconv.FormatInt(b.Version, 10),
		Balance: money.Format(b.Balance, b.Currency), At: timeOrNull(b.At),
	}
}

// statementJSON is a page of a statement as it is sent.
type statementJSON struct {
	AccountID      string  `json:"account_id"`
	Currency       string  `json:"currency"`
	From           *string `json:"from"`
	To             *string `json:"to"`
	OpeningVersion string  `json:"opening_version"`
	OpeningBalance string  `json:"opening_balance"`
	ClosingVersion string  `json:"closing_version"`
	ClosingBalance string  `json:"closing_balance"`
	listJSON[entryJSON]
}

func (s *server) getStatement(w http.ResponseWriter, r *http.Request) error {
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
	reading := accounts.Reading{Period: f.period(q)}
	if csv {
		f.whole(q)
		if err := f.Err(); err != nil {
			return err
		}
		return s.streamStatement(w, r, id, reading)
	}
	reading.Limit = f.limit(q)
	list := "statement?account_id=" + id.String() + "&" + url.Values{"from": q["from"], "to": q["to"]}.Encode()
	if place := f.cursor(q, list, statementSize); place != nil {
		reading.Bounds, reading.After = placeStatement(place)
	}
	if err := f.Err(); err != nil {
		return err
	}
	st, err := s.Accounts.Statement(r.Context(), id, reading)
	if err != nil {
		return err
	}
	var next *string
	if n := len(st.Entries); n > 0 && st.Entries[n-1].Version < st.Closing.Version {
		next = new(sealCursor(list, statementPlace(st.Bounds(), st.Entries[n-1].Version)))
	}
	opening, closing := balanceBody(st.Opening), balanceBody(st.Closing)
	return writeJSON(w, http.StatusOK, statementJSON{
		AccountID: opening.AccountID, Currency: opening.Currency, From: timeOrNull(reading.From), To: timeOrNull(reading.To),
		OpeningVersion: opening.Version, OpeningBalance: opening.Balance,
		ClosingVersion: closing.Version, ClosingBalance: closing.Balance,
		listJSON: listOf(st.Entries, entryBody, next),
	})
}

// period reads the bounds of a period, either of which may be left out.
func (f *form) period(q url.Values) accounts.Period {
	p := accounts.Period{From: f.optionalTime(q, "from"), To: f.optionalTime(q, "to")}
	if !p.From.IsZero() && !p.To.IsZero() && p.To.Before(p.From) {
		f.Add("to", "must not be before from")
	}
	return p
}

// A place in a statement has its bounds with it: every page is of the same
// statement, whatever has been made in between.
const statementSize = 3 * versionSize

func statementPlace(b accounts.Bounds, after int64) []byte {
	place := binary.BigEndian.AppendUint64(versionPlace(b.Opening), uint64(b.Closing))
	return binary.BigEndian.AppendUint64(place, uint64(after))
}

func placeStatement(place []byte) (*accounts.Bounds, int64) {
	b := accounts.Bounds{Opening: placeVersion(place), Closing: placeVersion(place[versionSize:])}
	return &b, placeVersion(place[2*versionSize:])
}

// Directions of the lines that only a statement in CSV has.
const (
	openingLine = "opening"
	closingLine = "closing"
)

// streamStatement answers with a whole statement: its entries, between a line
// for what there was before and one for what there was after.
func (s *server) streamStatement(w http.ResponseWriter, r *http.Request, id uuid.UUID, reading accounts.Reading) error {
	reading.Limit = streamPage
	return stream(s, w, r, "statement-"+id.String()+".csv", func(ctx context.Context) (part []entryJSON, more bool, err error) {
		st, err := s.Accounts.Statement(ctx, id, reading)
		if err != nil {
			return nil, false, err
		}
		if reading.Bounds == nil {
			reading.Bounds, reading.After = new(st.Bounds()), st.Opening.Version
			part = append(part, balanceLine(openingLine, st.Opening))
		}
		part = append(part, bodies(st.Entries, entryBody)...)
		reading.After += int64(len(st.Entries))
		if more = reading.After < st.Closing.Version; !more {
			part = append(part, balanceLine(closingLine, st.Closing))
		}
		return part, more, nil
	})
}

// balanceLine is a balance among entries. Its time is that of the entry that
// made it.
func balanceLine(direction string, b accounts.Balance) entryJSON {
	line := entryJSON{
		AccountID: b.AccountID.String(), Version: strconv.FormatInt(b.Version, 10), Direction: direction,
		BalanceAfter: money.Format(b.Balance, b.Currency),
	}
	if !b.At.IsZero() {
		line.CreatedAt = formatTime(b.At)
	}
	return line
}

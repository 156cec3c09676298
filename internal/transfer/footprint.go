package transfer

import (
	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/idempotency"
)

// A footprint is what some members lock: accounts and keys. Lanes compare
// footprints, so that their transactions never wait for each other.
type footprint struct {
	accounts map[uuid.UUID]bool
	keys     map[idempotency.Key]bool
}

func newFootprint() footprint {
	return footprint{accounts: map[uuid.UUID]bool{}, keys: map[idempotency.Key]bool{}}
}

func (f footprint) add(w *member) {
	f.addAccounts(w)
	f.addKey(w)
}

func (f footprint) addAccounts(w *member) {
	f.accounts[w.DebitAccountID], f.accounts[w.CreditAccountID] = true, true
}

func (f footprint) addKey(w *member) {
	if w.Key != nil {
		f.keys[*w.Key] = true
	}
}

func (f footprint) remove(w *member) {
	delete(f.accounts, w.DebitAccountID)
	delete(f.accounts, w.CreditAccountID)
	if w.Key != nil {
		delete(f.keys, *w.Key)
	}
}

// meets reports whether w locks something of f.
func (f footprint) meets(w *member) bool {
	return f.meetsAccount(w) || f.meetsKey(w)
}

func (f footprint) meetsAccount(w *member) bool {
	return len(f.accounts) > 0 && (f.accounts[w.DebitAccountID] || f.accounts[w.CreditAccountID])
}

func (f footprint) meetsKey(w *member) bool {
	return w.Key != nil && f.keys[*w.Key]
}

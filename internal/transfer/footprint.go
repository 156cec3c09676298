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
	for _, id := range w.accounts {
		f.accounts[id] = true
	}
}

func (f footprint) addKey(w *member) {
	if w.Key != nil {
		f.keys[*w.Key] = true
	}
}

func (f footprint) remove(w *member) {
	for _, id := range w.accounts {
		delete(f.accounts, id)
	}
	if w.Key != nil {
		delete(f.keys, *w.Key)
	}
}

// meets reports whether w locks something of f.
func (f footprint) meets(w *member) bool {
	return f.meetsAccount(w) || f.meetsKey(w)
}

func (f footprint) meetsAccount(w *member) bool {
	if len(f.accounts) == 0 {
		return false
	}
	for _, id := range w.accounts {
		if f.accounts[id] {
			return true
		}
	}
	return false
}

func (f footprint) meetsKey(w *member) bool {
	return w.Key != nil && f.keys[*w.Key]
}

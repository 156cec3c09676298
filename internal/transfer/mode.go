package transfer

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Mode is one way to change balances while others do the same.
type Mode struct {
	Name       string
	Doc        string // one line, for --help and the documentation
	TxOptions  pgx.TxOptions
	LosesMoney bool // by design: only to show what goes wrong

	// move makes the transfers of ms, or sets why not. It first sends b, which
	// holds what the caller wants to be sent ahead: the claims of the keys. A
	// move whose key is not its own is none of its business. It returns what is
	// still to be sent, for the caller to add to. A refusal is set on its move;
	// an error rolls all of them back.
	move func(ctx context.Context, tx pgx.Tx, b *pgx.Batch, l Locking, ms []*move) (*pgx.Batch, error)
}

// modes is the table of contents. To add a mode: write its file, add its line.
// Flags, tests, metrics and benchmarks all range over this table.
var modes = []*Mode{Pessimistic, Atomic, Optimistic, Serializable, None}

// Modes returns every mode, the default one first.
func Modes() []*Mode { return modes }

// ModeByName returns the mode of that name.
func ModeByName(name string) (*Mode, error) {
	var names []string
	for _, m := range modes {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return nil, fmt.Errorf("unknown mode %q: it is one of %s", name, strings.Join(names, ", "))
}

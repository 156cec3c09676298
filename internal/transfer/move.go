package transfer

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

// An Order asks for a transfer that has an id already. Its command has no key:
// who orders knows by the id whether it was carried out.
type Order struct {
	ID uuid.UUID
	Command
}

// An Outcome is what became of an order: its transfer, or a [*Refusal].
type Outcome struct {
	Transfer Transfer
	Refusal  error // nil: it was made
}

// Move makes the transfers of orders in tx, in their order, as a group: each is
// made or refused by itself, and the outcomes are in the order of the orders.
// It locks all accounts before it reads them, whatever the mode of the service
// is: tx must be READ COMMITTED, since it may have come by its orders with SKIP
// LOCKED, which a higher level answers with 40001. An error leaves tx to be
// rolled back; it is one that [retry.Tx] understands.
//
// The commands must have passed [Command.Validate].
func Move(ctx context.Context, tx pgx.Tx, orders []Order) ([]Outcome, error) {
	ms := make([]*move, len(orders))
	for i, o := range orders {
		o.Command.Metadata = stored(o.Command.Metadata)
		ms[i] = newMove(Call{}, o.ID, []step{&making{Command: o.Command, id: o.ID}}, "")
	}
	b, err := Pessimistic.move(ctx, tx, &pgx.Batch{}, Locking{}, ms)
	if err != nil {
		return nil, err
	}
	if err := send(ctx, tx, b, "write"); err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, len(ms))
	for i, m := range ms {
		outcomes[i] = Outcome{Transfer: m.steps[0].(*making).transfer, Refusal: m.refusal}
	}
	return outcomes, nil
}

// FindBusy returns the accounts of orders that somebody else holds, and waits for
// none of them. It is for finding out who is in the way, not whether an account
// exists. The transaction that looks leaves nothing behind, no lock either.
func FindBusy(ctx context.Context, db retry.Beginner, policy retry.Policy, orders []Order) (map[uuid.UUID]bool, error) {
	ms := make([]*move, len(orders))
	for i, o := range orders {
		ms[i] = newMove(Call{}, o.ID, []step{&making{Command: o.Command}}, "")
	}
	return New(db, Pessimistic, Locking{}, policy).findBusy(ctx, ms)
}

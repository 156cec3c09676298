package transfer

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/invalid"
	"github.com/rowlock/ledger/internal/money"
)

// A Reversal asks for a transfer that takes another one back, or a part of it.
type Reversal struct {
	Call
	TransferID  uuid.UUID // the one that is taken back
	Amount      string    // as [money.ParseAmount] reads it; "": what is left of it
	Reference   string
	Description string
	Metadata    map[string]string
}

// Validate returns an [*invalid.Error] with all that is wrong with r, or nil.
// Its amount is judged when the currency is known.
func (r Reversal) Validate() error {
	var check invalid.Check
	checkText(&check, r.Call, r.Reference, r.Description, r.Metadata)
	return check.Err()
}

// Reverse makes the transfer that r asks for: from the account that was paid to
// the one that paid. All reversals of one transfer together are never more than
// it.
//
// The errors are those of [Service.Create] and [ErrNotFound],
// [ErrReversalOfReversal], and [*Refusal] with [ErrReversalExceedsTransfer].
func (s *Service) Reverse(ctx context.Context, r Reversal) (t Transfer, replayed bool, err error) {
	if err := r.Validate(); err != nil {
		return Transfer{}, false, err
	}
	original, err := s.Get(ctx, r.TransferID)
	if err != nil {
		return Transfer{}, false, err
	}
	if original.ReversesTransferID != uuid.Nil {
		return Transfer{}, false, ErrReversalOfReversal
	}
	amount, err := parsePart(r.Amount, original.Currency)
	if err != nil {
		return Transfer{}, false, err
	}
	c := Command{
		Call: r.Call, Kind: opposite[original.Kind], DebitAccountID: original.CreditAccountID, CreditAccountID: original.DebitAccountID,
		Amount: amount, Currency: original.Currency, Reference: r.Reference, Description: r.Description, Metadata: r.Metadata,
	}
	return s.make(ctx, &making{Command: c, reverses: &original}, "POST /v1/transfers/"+original.ID.String()+"/reverse",
		formatPart(amount, original.Currency), r.Reference, r.Description, idempotency.SumMap(r.Metadata))
}

// opposite is the kind of a reversal, by the kind of what it reverses.
var opposite = map[string]string{Between: Between, Debit: Credit, Credit: Debit}

// parsePart reads an amount of which "" means all that is left, which is zero.
func parsePart(text, currency string) (decimal.Decimal, error) {
	if text == "" {
		return decimal.Zero, nil
	}
	amount, err := money.ParseAmount(text, currency)
	if err != nil {
		return decimal.Zero, &invalid.Error{Faults: []invalid.Fault{{Field: "amount", Detail: err.Error()}}}
	}
	return amount, nil
}

// formatPart is the canonical form of such an amount.
func formatPart(amount decimal.Decimal, currency string) string {
	if amount.IsZero() {
		return ""
	}
	return money.Format(amount, currency)
}

// The sums are read behind the locks of both accounts, where all reversals of a
// transfer meet. The second condition is the index's own.
const sumReversalsSQL = `
	SELECT reverses_transfer_id, sum(amount)
	  FROM transfers
	 WHERE reverses_transfer_id = ANY($1)
	   AND reverses_transfer_id IS NOT NULL
	 GROUP BY reverses_transfer_id`

func (b *books) queueReversed(batch *pgx.Batch, ids []uuid.UUID) {
	batch.Queue(sumReversalsSQL, uuidArray(ids)).Query(func(rows pgx.Rows) (err error) {
		b.reversed, err = collectReversed(rows)
		return err
	})
}

func collectReversed(rows pgx.Rows) (map[uuid.UUID]decimal.Decimal, error) {
	sums := map[uuid.UUID]decimal.Decimal{}
	var id uuid.UUID
	var sum decimal.Decimal
	_, err := pgx.ForEachRow(rows, []any{&id, &sum}, func() error {
		sums[id] = sum
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sum reversals: %w", err)
	}
	return sums, nil
}

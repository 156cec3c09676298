package paymenthook

import (
	"time"

	"github.com/go-json-experiment/json"

	"github.com/rowlock/ledger/internal/money"
	"github.com/rowlock/ledger/internal/payment"
)

// question is what is sent: an event as Standard Webhooks has them.
type question struct {
	Type      string      `json:"type"`
	Timestamp string      `json:"timestamp"`
	Data      paymentJSON `json:"data"`
}

type paymentJSON struct {
	ID              string            `json:"id"`
	DebitAccountID  string            `json:"debit_account_id"`
	CreditAccountID string            `json:"credit_account_id"`
	Amount          string            `json:"amount"`
	Currency        string            `json:"currency"`
	Description     string            `json:"description"`
	Metadata        map[string]string `json:"metadata"`
	Priority        int               `json:"priority"`
	Attempts        int               `json:"attempts"`
	MaxAttempts     int               `json:"max_attempts"`
	RunAt           string            `json:"run_at"`
	CreatedAt       string            `json:"created_at"`
}

func marshalQuestion(p payment.Payment, now time.Time) ([]byte, error) {
	return json.Marshal(question{
		Type:      "payment.due",
		Timestamp: formatTime(now),
		Data: paymentJSON{
			ID:             p.ID.String(),
			DebitAccountID: p.DebitAccountID.String(), CreditAccountID: p.CreditAccountID.String(),
			Amount: money.Format(p.Amount, p.Currency), Currency: p.Currency,
			Description: p.Description, Metadata: p.Metadata,
			Priority: p.Priority, Attempts: p.Attempts, MaxAttempts: p.MaxAttempts,
			RunAt: formatTime(p.RunAt), CreatedAt: formatTime(p.CreatedAt),
		},
	}, json.Deterministic(true))
}

// formatTime writes a time as the ledger's HTTP interface does.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/rowlock/ledger/client"
)

// A transfer, with a key: if no answer comes, send the same again. It takes
// effect once.
func Example() {
	ctx := context.Background()
	ledger, err := client.NewClientWithResponses("http://127.0.0.1:8080", client.WithRequestEditorFn(withToken("rowlock_…")))
	if err != nil {
		log.Fatal(err)
	}
	alice, err := open(ctx, ledger, "Alice")
	if err != nil {
		log.Fatal(err)
	}
	bob, err := open(ctx, ledger, "Bob")
	if err != nil {
		log.Fatal(err)
	}
	_, err = ledger.CreateCreditWithResponse(ctx, &client.CreateCreditParams{IdempotencyKey: new("salary-2026-05")},
		client.NewCredit{AccountID: alice.ID, Amount: "500.00", Currency: "USD"})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := ledger.CreateTransferWithResponse(ctx, &client.CreateTransferParams{IdempotencyKey: new("rent-2026-05")},
		client.NewTransfer{DebitAccountID: alice.ID, CreditAccountID: bob.ID, Amount: "200.00", Currency: "USD"})
	switch {
	case err != nil:
		log.Fatal(err) // the outcome is unknown: send the same again
	case answer.JSON201 != nil:
		fmt.Println("moved", answer.JSON201.Amount)
	case answer.ApplicationProblemJSON422 != nil:
		fmt.Println("refused:", answer.ApplicationProblemJSON422.Code)
	default:
		fmt.Println("not now:", answer.Status())
	}
}

func open(ctx context.Context, ledger *client.ClientWithResponses, name string) (*client.Account, error) {
	answer, err := ledger.OpenAccountWithResponse(ctx, nil, client.NewAccount{Currency: "USD", Name: name})
	if err != nil {
		return nil, err
	}
	if answer.JSON201 == nil {
		return nil, fmt.Errorf("open %s: %s", name, answer.Status())
	}
	return answer.JSON201, nil
}

func withToken(token string) client.RequestEditorFn {
	return func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
}

package operations_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/tests/harness"
)

// Somebody keeps an account locked, and a crowd wants it. Nobody else notices.
func testALockedAccountHoldsUpNobodyElse(t *testing.T) {
	database := testdb.URL(t)
	p := harness.Serve(t, database)
	client := &http.Client{Timeout: time.Minute}
	open := func() string {
		a := harness.Post(client, p.URL+"/v1/accounts", uuid.NewString(), map[string]string{"currency": "USD", "min_balance": "-1000.00"})
		if a.Status != http.StatusCreated {
			t.Fatalf("opening an account: %v", a)
		}
		return a.Body.ID
	}
	held, other, third := open(), open(), open()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `BEGIN; SELECT FROM accounts WHERE id = '`+held+`' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var crowd sync.WaitGroup
	for range 64 {
		crowd.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					harness.Post(client, p.URL+"/v1/credits", uuid.NewString(), map[string]string{"account_id": held, "amount": "1.00", "currency": "USD"})
				}
			}
		})
	}
	for i := range 50 {
		a := harness.Post(client, p.URL+"/v1/transfers", uuid.NewString(), map[string]string{"debit_account_id": other, "credit_account_id": third, "amount": "1.00", "currency": "USD"})
		if a.Status != http.StatusCreated {
			t.Errorf("transfer %d among other accounts: %v, want 201", i, a)
		}
		for _, path := range []string{"/v1/accounts/" + other, "/readyz", "/livez"} {
			if got := p.Get(path); got != http.StatusOK {
				t.Errorf("GET %s: %d, want 200", path, got)
			}
		}
	}
	close(stop)
	if _, err := conn.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	crowd.Wait()
}

package main

import (
	"fmt"
	"io"
	"os"
)

// printHints says what to try next. The calls work as they are pasted, one
// after the other; where callers are asked who they are, $TOKEN is theirs.
func printHints(w io.Writer, address string, d *database, authenticated bool) {
	call := "curl -sS http://" + address
	headers := "-H 'Content-Type: application/json'"
	if authenticated {
		headers += ` -H "Authorization: Bearer $TOKEN"`
	}
	fmt.Fprintf(w, `
Rowlock is serving on http://%[1]s (try it in a browser: http://%[1]s/docs)

Open two accounts, put money into one, and move some of it:

  alice=$(%[2]s/v1/accounts %[3]s -d '{"currency":"USD","name":"alice"}' | sed 's/.*"id":"\([^"]*\)".*/\1/')
  bob=$(%[2]s/v1/accounts %[3]s -d '{"currency":"USD","name":"bob"}' | sed 's/.*"id":"\([^"]*\)".*/\1/')
  %[2]s/v1/credits %[3]s -d '{"account_id":"'$alice'","amount":"500.00","currency":"USD"}'
  %[2]s/v1/transfers %[3]s -H "Idempotency-Key: $(date +%%s)" \
    -d '{"debit_account_id":"'$alice'","credit_account_id":"'$bob'","amount":"200.00","currency":"USD"}'

Queue a payment, which a worker makes a moment later, and see what became of it:

  payment=$(%[2]s/v1/payments %[3]s -d '{"debit_account_id":"'$alice'","credit_account_id":"'$bob'","amount":"50.00","currency":"USD"}' | sed 's/.*"id":"\([^"]*\)".*/\1/')
  %[2]s/v1/payments/$payment %[3]s

Look into the database, and check that every cent is accounted for:

  %[4]s
  %[5]s verify --database-url %[6]s

Ctrl-C stops it; the data stays.

`, address, call, headers, d.psql(), os.Args[0], d.argument())
}

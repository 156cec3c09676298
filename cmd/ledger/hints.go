package main

import (
	"fmt"
	"io"
	"os"
)

// printHints says what to try next. The calls work as they are pasted, one
// after the other.
func printHints(w io.Writer, address string, d *database) {
	fmt.Fprintf(w, `
Rowlock is serving on http://%[1]s (try it in a browser: http://%[1]s/docs)

Open two accounts, put money into one, and move some of it:

  alice=$(curl -sS http://%[1]s/v1/accounts -H 'Content-Type: application/json' -d '{"currency":"USD","name":"alice"}' | sed 's/.*"id":"\([^"]*\)".*/\1/')
  bob=$(curl -sS http://%[1]s/v1/accounts -H 'Content-Type: application/json' -d '{"currency":"USD","name":"bob"}' | sed 's/.*"id":"\([^"]*\)".*/\1/')
  curl -sS http://%[1]s/v1/credits -H 'Content-Type: application/json' -d '{"account_id":"'$alice'","amount":"500.00","currency":"USD"}'
  curl -sS http://%[1]s/v1/transfers -H 'Content-Type: application/json' -H "Idempotency-Key: $(date +%%s)" \
    -d '{"debit_account_id":"'$alice'","credit_account_id":"'$bob'","amount":"200.00","currency":"USD"}'

Look into the database, and check that every cent is accounted for:

  %[2]s
  %[4]s verify --database-url '%[3]s'

Ctrl-C stops it; the data stays.

`, address, d.psql(), redact(d.url), os.Args[0])
}

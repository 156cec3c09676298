package main

import (
	"fmt"

	"github.com/rowlock/ledger/internal/httpapi"
)

type tokenCmd struct {
	Name string `arg:"" help:"The caller's name: idempotency keys are its own."`
}

// Run makes a token. The file keeps only its hash, so it is shown just once.
func (c *tokenCmd) Run(con *console) error {
	token, line, err := httpapi.NewToken(c.Name)
	if err != nil {
		return err
	}
	fmt.Fprintf(con.stderr, "The caller sends \"Authorization: Bearer %s\"; it is not shown again.\nThe token file's line:\n", token)
	fmt.Fprintln(con.stdout, line)
	return nil
}

package archtest

import (
	"fmt"
	"go/ast"
	"regexp"
	"testing/fstest"
)

// What is in statements as data is no transaction of the program's.
var statementsAreData = []string{"internal/bench", "internal/racelab"}

var (
	transactionText = regexp.MustCompile(`\b(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|START TRANSACTION)\b|(?i)^\s*(begin|commit|rollback)\s*;?\s*$`)
	savepointText   = regexp.MustCompile(`\b(ROLLBACK TO |RELEASE )?SAVEPOINT \w+`)
)

var transactionsInRetry = rule{
	name: "transactions begin and end in retry alone",
	check: func(t *tree) (faults []string) {
		for _, f := range t.program(append(statementsAreData, "internal/retry")...) {
			calls(f, func(call *ast.CallExpr, name string) {
				faults = append(faults, fmt.Sprintf("%s: a call of %s: use retry.Tx", t.at(call), name))
			}, "Begin", "BeginTx", "BeginWith", "BeginFunc", "BeginTxFunc", "Commit", "Rollback")
			texts(f, func(node ast.Node, text string) {
				if f.in("internal/transfer") { // part of a transaction may be taken back where its claim must stay
					text = savepointText.ReplaceAllString(text, "")
				}
				if found := transactionText.FindString(text); found != "" {
					faults = append(faults, fmt.Sprintf("%s: the text %q: use retry.Tx", t.at(node), found))
				}
			})
		}
		return faults
	},
	breaks: []fstest.MapFS{
		one("internal/transfer/a.go", `package transfer; func f(tx Tx) { tx.Commit(nil) }`),
		one("internal/accounts/a.go", `package accounts; func f(db DB) { db.BeginTx(nil, nil) }`),
		one("cmd/ledger/a.go", `package main; func f(c Conn) { c.Exec("BEGIN; SELECT 1") }`),
		one("internal/verify/a.go", "package verify; const endSQL = `\n\tCOMMIT`"),
		one("internal/verify/a.go", `package verify; const endSQL = "rollback"`),
		one("internal/accounts/a.go", `package accounts; const s = "SAVEPOINT claimed"`),
		one("internal/transfer/a.go", `package transfer; const s = "ROLLBACK"`),
	},
	keeps: []fstest.MapFS{
		one("internal/retry/a.go", `package retry; func f(tx Tx) { tx.Commit(nil); tx.Exec("BEGIN") }`),
		one("internal/racelab/a.go", `package racelab; const s = "BEGIN"`),
		one("internal/transfer/a.go", `package transfer; const s, r = "SAVEPOINT claimed", "ROLLBACK TO SAVEPOINT claimed"`),
		one("internal/transfer/a_test.go", `package transfer; func f(tx Tx) { tx.Rollback(nil) }`),
		one("internal/accounts/a.go", `package accounts; const s = "a commit that went unanswered"`),
	},
}

var (
	setClause     = regexp.MustCompile(`(?is)\bUPDATE\s+(?:ONLY\s+)?accounts\b.*?\bSET\b(.*?)(?:\bWHERE\b|\bRETURNING\b|;|$)`)
	insertColumns = regexp.MustCompile(`(?is)\bINSERT\s+INTO\s+accounts\b[^(]*\(([^)]*)\)`)
	balanceColumn = regexp.MustCompile(`(?i)\bbalance\b`)
)

var balancesInTransfer = rule{
	name: "balances are written in transfer alone",
	check: func(t *tree) (faults []string) {
		for _, f := range t.program("internal/transfer", "internal/bench", "internal/racelab/locklab") {
			texts(f, func(node ast.Node, text string) {
				for _, clause := range append(setClause.FindAllStringSubmatch(text, -1), insertColumns.FindAllStringSubmatch(text, -1)...) {
					if balanceColumn.MatchString(clause[1]) {
						faults = append(faults, fmt.Sprintf("%s: a statement that writes a balance", t.at(node)))
					}
				}
			})
		}
		return faults
	},
	breaks: []fstest.MapFS{
		one("internal/accounts/a.go", "package accounts; const s = `\n\tUPDATE accounts\n\t   SET status = $1,\n\t       balance = 0\n\t WHERE id = $2`"),
		one("internal/accounts/a.go", "package accounts; const s = `UPDATE accounts a SET (balance, version) = ($1, $2)`"),
		one("cmd/ledger/a.go", `package main; const s = "INSERT INTO accounts (id, balance) VALUES ($1, $2)"`),
	},
	keeps: []fstest.MapFS{
		one("internal/transfer/a.go", `package transfer; const s = "UPDATE accounts SET balance = 0"`),
		one("internal/accounts/a.go", `package accounts; const s = "UPDATE accounts SET status = $1 WHERE balance = 0"`),
		one("internal/accounts/a.go", `package accounts; const s = "INSERT INTO accounts (id, min_balance) VALUES ($1, $2) RETURNING balance"`),
	},
}

var statusInHTTP = rule{
	name: "answers begin in httpapi alone",
	check: func(t *tree) (faults []string) {
		for _, f := range t.program("internal/httpapi", "internal/racelab") { // which has a false service, to be found out
			calls(f, func(call *ast.CallExpr, name string) {
				faults = append(faults, fmt.Sprintf("%s: a call of %s", t.at(call), name))
			}, "WriteHeader")
		}
		return faults
	},
	breaks: []fstest.MapFS{
		one("internal/telemetry/a.go", `package telemetry; func f(w W) { w.WriteHeader(500) }`),
	},
	keeps: []fstest.MapFS{
		one("internal/httpapi/a.go", `package httpapi; func f(w W) { w.WriteHeader(500) }`),
		one("internal/telemetry/a_test.go", `package telemetry; func f(w W) { w.WriteHeader(500) }`),
	},
}

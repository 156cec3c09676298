package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"
)

var (
	sqlText = regexp.MustCompile(`^\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|TRUNCATE|LOCK|CREATE|ALTER|DROP)\s`)
	sqlName = regexp.MustCompile(`^[a-z]+[A-Z]\w*SQL$`)
)

var sqlIsNamed = rule{
	name: "a statement is a const named <verb><Noun>SQL",
	check: func(t *tree) (faults []string) {
		for _, f := range t.program(statementsAreData...) {
			ast.Inspect(f.ast, func(node ast.Node) bool {
				spec, ok := node.(*ast.ValueSpec)
				if !ok {
					return true
				}
				for i, value := range spec.Values {
					if name := spec.Names[min(i, len(spec.Names)-1)].Name; sqlText.MatchString(leading(value)) && !sqlName.MatchString(name) {
						faults = append(faults, fmt.Sprintf("%s: a statement named %s", t.at(value), name))
					}
				}
				return true
			})
		}
		return faults
	},
	breaks: []fstest.MapFS{
		one("internal/accounts/a.go", "package accounts; const query = `\n\tSELECT id\n\t  FROM accounts`"),
		one("internal/accounts/a.go", `package accounts; func f() { const accountsSQL = "DELETE FROM x" }`),
		one("internal/accounts/a.go", `package accounts; var insert = "INSERT INTO x " + "VALUES ($1)"`),
	},
	keeps: []fstest.MapFS{
		one("internal/accounts/a.go", "package accounts; const selectAccountSQL = `\n\tSELECT id\n\t  FROM accounts`"),
		one("internal/accounts/a.go", `package accounts; const help = "Select an account"`),
		one("internal/racelab/a.go", `package racelab; const step = "UPDATE accounts SET x = 1"`),
	},
}

// leading is the text that a constant expression begins with.
func leading(value ast.Expr) string {
	for {
		sum, ok := value.(*ast.BinaryExpr)
		if !ok {
			break
		}
		value = sum.X
	}
	if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		text, _ := strconv.Unquote(lit.Value)
		return text
	}
	return ""
}

var everyColumn = regexp.MustCompile(`(?i)\b(SELECT|RETURNING)\s+(DISTINCT\s+)?(\w+\.)?\*`)

// A column that a migration adds must not appear in an answer by itself, nor
// break a statement that is prepared.
var columnsAreNamed = rule{
	name: "columns are named",
	check: func(t *tree) (faults []string) {
		for _, f := range t.program() {
			texts(f, func(node ast.Node, text string) {
				if found := everyColumn.FindString(text); found != "" {
					faults = append(faults, fmt.Sprintf("%s: %q", t.at(node), found))
				}
			})
		}
		for name, text := range t.migrations {
			for line := range strings.Lines(text) {
				if statement, _, _ := strings.Cut(line, "--"); everyColumn.MatchString(statement) {
					faults = append(faults, fmt.Sprintf("%s: %q", name, strings.TrimSpace(line)))
				}
			}
		}
		return faults
	},
	breaks: []fstest.MapFS{
		one("internal/accounts/a.go", `package accounts; const selectAllSQL = "SELECT * FROM accounts"`),
		one("internal/accounts/a.go", `package accounts; const insertSQL = "INSERT INTO x VALUES (1) RETURNING *"`),
		one("internal/accounts/a.go", `package accounts; const selectAllSQL = "SELECT a.* FROM accounts a"`),
		one("migrations/00001_create_all.sql", "CREATE VIEW v AS\n  SELECT * FROM accounts;"),
	},
	keeps: []fstest.MapFS{
		one("internal/accounts/a.go", `package accounts; const countAllSQL = "SELECT count(*), 2 * 2 FROM accounts"`),
		one("migrations/00001_create_all.sql", "-- No SELECT * here.\nCREATE VIEW v AS SELECT id FROM accounts;"),
	},
}

// The text of an error is the server's, in the server's language: decisions go
// by SQLSTATE and sentinel.
var errorsByCode = rule{
	name: "no decision by the text of an error",
	check: func(t *tree) (faults []string) {
		for _, f := range t.program() {
			if slices.Contains(untypedErrors, f.path) {
				continue
			}
			fault := func(node ast.Node) {
				faults = append(faults, fmt.Sprintf("%s: a decision by an error's text", t.at(node)))
			}
			calls(f, func(call *ast.CallExpr, _ string) {
				if slices.ContainsFunc(call.Args, isErrorText) {
					fault(call)
				}
			}, "Contains", "ContainsAny", "HasPrefix", "HasSuffix", "EqualFold", "Index", "MatchString", "FindString")
			ast.Inspect(f.ast, func(node ast.Node) bool {
				switch node := node.(type) {
				case *ast.BinaryExpr:
					if (node.Op == token.EQL || node.Op == token.NEQ) && (isErrorText(node.X) || isErrorText(node.Y)) {
						fault(node)
					}
				case *ast.SwitchStmt:
					if node.Tag != nil && isErrorText(node.Tag) {
						fault(node)
					}
				}
				return true
			})
		}
		return faults
	},
	breaks: []fstest.MapFS{
		one("internal/retry/a.go", `package retry; func f(err error) bool { return strings.Contains(err.Error(), "deadlock detected") }`),
		one("internal/postgres/a.go", `package postgres; func f(e *pgconn.PgError) bool { return e.Message == "too many connections" }`),
		one("cmd/ledger/a.go", `package main; func f(err error) { switch err.Error() { case "x": } }`),
		one("internal/transfer/a.go", `package transfer; func f(err error) bool { return known.MatchString(err.Error()) }`),
	},
	keeps: []fstest.MapFS{
		one("internal/retry/a.go", `package retry; func f(e *pgconn.PgError) bool { return e.Code == "40001" && strings.HasPrefix(e.Code, "40") }`),
		one("internal/retry/a.go", `package retry; func f(err error) string { return "why: " + err.Error() }`),
		one("internal/retry/a_test.go", `package retry; func f(err error) bool { return strings.Contains(err.Error(), "gave up") }`),
	},
}

// untypedErrors are the files that read errors of libraries which give nothing
// but text: a downloader and a JSON parser. No database's error comes by there.
var untypedErrors = []string{"internal/localpg/download.go", "internal/httpapi/json.go"}

// isErrorText reports whether e is what an error says: err.Error(), or the
// Message of a PgError.
func isErrorText(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		selector, ok := call.Fun.(*ast.SelectorExpr)
		return ok && selector.Sel.Name == "Error" && len(call.Args) == 0
	}
	selector, ok := e.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == "Message"
}

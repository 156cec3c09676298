package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing/fstest"
)

// The domain knows no HTTP, no process and no logger: what it has to say goes
// to hooks, what it needs to know comes as arguments. What it imports of ours
// counts as its own.
var domainIsPure = rule{
	name: "the domain imports no HTTP, process, logger or configuration",
	check: func(t *tree) (faults []string) {
		for _, name := range []string{"accounts", "transfer", "payment", "idempotency", "retry", "money", "invalid"} {
			dir := "internal/" + name
			for _, reached := range slices.Sorted(maps.Keys(t.reach(dir))) {
				faults = append(faults, t.imported(reached, "package "+name+" must not depend on it", []string{reached}, nil,
					"net/http", "github.com/go-chi/chi/...", "os/...", "log/...", "flag",
					"github.com/alecthomas/kong/...", module+"cmd/...")...)
			}
		}
		return faults
	},
	breaks: []fstest.MapFS{
		one("internal/accounts/a.go", `package accounts; import "net/http"; var _ http.Handler`),
		one("internal/money/a.go", `package money; import "log/slog"; var _ slog.Level`),
		one("internal/invalid/a.go", `package invalid; import _ "github.com/go-chi/chi/v5"`),
		one("internal/payment/a.go", `package payment; import _ "os/exec"`),
		{
			"internal/transfer/a.go": {Data: []byte(`package transfer; import _ "github.com/rowlock/ledger/internal/helper"`)},
			"internal/helper/a.go":   {Data: []byte(`package helper; import _ "os"`)},
		},
	},
	keeps: []fstest.MapFS{
		one("internal/transfer/a.go", `package transfer; import _ "github.com/jackc/pgx/v5"`),
		one("internal/transfer/a_test.go", `package transfer; import _ "os"`),
		one("internal/telemetry/a.go", `package telemetry; import _ "log/slog"`),
	},
}

var httpKnowsNoDatabase = rule{
	name: "httpapi imports no database",
	check: func(t *tree) []string {
		return t.imported("internal/httpapi", "handlers know services", []string{"internal/httpapi"}, nil,
			"github.com/jackc/pgx/...", "database/sql/...", module+"internal/postgres/...")
	},
	breaks: []fstest.MapFS{
		one("internal/httpapi/a.go", `package httpapi; import _ "github.com/jackc/pgx/v5/pgconn"`),
		one("internal/httpapi/a.go", `package httpapi; import _ "github.com/rowlock/ledger/internal/postgres"`),
	},
	keeps: []fstest.MapFS{
		one("internal/httpapi/a.go", `package httpapi; import _ "github.com/rowlock/ledger/internal/retry"`),
		one("internal/httpapi/a_test.go", `package httpapi_test; import _ "github.com/rowlock/ledger/internal/postgres"`),
	},
}

var retryStandsAlone = rule{
	name: "retry imports no package of ours",
	check: func(t *tree) []string {
		return t.imported("internal/retry", "it is for any transaction", []string{"internal/retry"}, nil, module+"...")
	},
	breaks: []fstest.MapFS{
		one("internal/retry/a.go", `package retry; import _ "github.com/rowlock/ledger/internal/money"`),
	},
	keeps: []fstest.MapFS{
		one("internal/retry/a.go", `package retry; import _ "github.com/jackc/pgx/v5"`),
	},
}

var testingIsForTests = rule{
	name: "only tests import what is for tests",
	check: func(t *tree) []string {
		return t.imported("the program", "it is for tests", nil, []string{"internal/testdb", "tests/harness", "tests/openapi"},
			"testing/...", module+"internal/testdb/...", module+"tests/harness/...", module+"tests/openapi/...", "github.com/testcontainers/...", "github.com/peterldowns/pgtestdb/...")
	},
	breaks: []fstest.MapFS{
		one("internal/racelab/a.go", `package racelab; import "testing"; func F(t *testing.T) {}`),
		one("cmd/ledger/a.go", `package main; import _ "github.com/rowlock/ledger/internal/testdb"`),
		one("cmd/ledger/a.go", `package main; import _ "github.com/rowlock/ledger/tests/harness"`),
		one("internal/localpg/a.go", `package localpg; import _ "github.com/testcontainers/testcontainers-go"`),
	},
	keeps: []fstest.MapFS{
		one("internal/racelab/a_test.go", `package racelab; import _ "testing"`),
		one("internal/testdb/a.go", `package testdb; import ("testing"; _ "github.com/testcontainers/testcontainers-go"); var _ testing.TB`),
	},
}

// reach returns the directories of ours that the program in dir imports,
// directly or not, and dir itself.
func (t *tree) reach(dir string) map[string]bool {
	reached := map[string]bool{}
	var visit func(dir string)
	visit = func(dir string) {
		if reached[dir] {
			return
		}
		reached[dir] = true
		for _, f := range t.program() {
			if f.dir != dir {
				continue
			}
			for _, p := range f.imports() {
				if ours, ok := strings.CutPrefix(p, module); ok {
					visit(ours)
				}
			}
		}
	}
	visit(dir)
	return reached
}

// imported returns a fault for each import that matches a pattern, in the
// program's files in the directories, or everywhere where there are none, but
// not in those that are excepted. "x/..." matches x and what is below it.
func (t *tree) imported(who, why string, dirs, except []string, patterns ...string) (faults []string) {
	for _, f := range t.program(except...) {
		if len(dirs) > 0 && !slices.Contains(dirs, f.dir) {
			continue
		}
		for _, p := range f.imports() {
			if slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, p) }) {
				faults = append(faults, fmt.Sprintf("%s: %s imports %s: %s", f.path, who, p, why))
			}
		}
	}
	return faults
}

func matches(pattern, importPath string) bool {
	prefix, below := strings.CutSuffix(pattern, "...")
	return importPath == strings.TrimSuffix(prefix, "/") || below && strings.HasPrefix(importPath, prefix)
}

// Package migrations holds the schema of a ledger, one idea a file, applied in
// the order of their numbers. A file is never edited after its release.
package migrations

import "embed"

// FS holds the goose migrations: NNNNN_verb_noun.sql.
//
//go:embed *.sql
var FS embed.FS

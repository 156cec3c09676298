package postgres_test

import (
	"testing"

	"github.com/rowlock/ledger/internal/testdb"
)

// Many lockers of one parent row turn into multixacts, whose members are few
// for a whole cluster; a foreign key makes every insert such a locker.
func TestNoTableHasAForeignKey(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	var tables, keys int
	err := db.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace),
		       (SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND connamespace = current_schema()::regnamespace)`).Scan(&tables, &keys)
	if err != nil {
		t.Fatal(err)
	}
	if tables < 3 || keys != 0 {
		t.Errorf("%d tables have %d foreign keys, want all tables and no key", tables, keys)
	}
}

// A transfer's updates stay on their page: no index has a column that it
// changes.
func TestNoIndexHasAColumnThatATransferChanges(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	var indexed int
	err := db.QueryRow(t.Context(), `
		SELECT count(*)
		  FROM pg_index i
		  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
		 WHERE i.indrelid = 'accounts'::regclass
		   AND a.attname IN ('balance', 'version', 'last_entry_at')`).Scan(&indexed)
	if err != nil {
		t.Fatal(err)
	}
	if indexed != 0 {
		t.Errorf("%d indexed columns are changed by transfers, want none", indexed)
	}
}

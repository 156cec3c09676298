package retry_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

// What COMMIT itself does, on a real server.
func TestCommitIsToldApart(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, `
		CREATE FUNCTION object() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		  IF new.n = 666 THEN RAISE WARNING 'a warning of COMMIT'; END IF;
		  IF new.n = 667 THEN RAISE EXCEPTION 'an error of COMMIT' USING ERRCODE = 'check_violation'; END IF;
		  IF new.n = 668 THEN RAISE NOTICE 'a notice of COMMIT'; END IF;
		  RETURN new;
		END $$;
		CREATE CONSTRAINT TRIGGER object AFTER INSERT ON rows DEFERRABLE INITIALLY DEFERRED
		  FOR EACH ROW EXECUTE FUNCTION object()`)
	for _, tt := range []struct {
		name      string
		statement string
		unknown   bool
		sqlState  string // of an error
		row       int
		stored    int
	}{
		{"a warning leaves the outcome unknown", `INSERT INTO rows VALUES (10, 666)`, true, "", 10, 1},
		{"the next COMMIT on that connection is without it", `INSERT INTO rows VALUES (11, 0)`, false, "", 11, 1},
		{"a warning of a statement is none of COMMIT", `DO $$ BEGIN RAISE WARNING 'of a statement'; INSERT INTO rows VALUES (12, 0); END $$`, false, "", 12, 1},
		{"a notice is no warning", `INSERT INTO rows VALUES (13, 668)`, false, "", 13, 1},
		{"an error is a certain rollback, and final", `INSERT INTO rows VALUES (14, 667)`, false, "23514", 14, 0},
	} {
		t.Run(tt.name, func(t *testing.T) { // one after the other
			p, conflicts := watched(quick)
			err := do(t.Context(), db, p, tt.statement)
			if (err == nil) != (tt.stored == 1 && !tt.unknown) || errors.Is(err, retry.ErrCommitUnknown) != tt.unknown || retry.SQLState(err) != tt.sqlState {
				t.Errorf("error = %v, want an unknown outcome: %v, SQLSTATE %q", err, tt.unknown, tt.sqlState)
			}
			if len(*conflicts) != 0 {
				t.Errorf("conflicts = %v, want none", *conflicts)
			}
			var stored int
			if err := db.QueryRow(t.Context(), `SELECT count(*) FROM rows WHERE id = $1`, tt.row).Scan(&stored); err != nil || stored != tt.stored {
				t.Errorf("%d rows are stored (error %v), want %d", stored, err, tt.stored)
			}
		})
	}
}

func TestASwallowedErrorIsNoSuccess(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	_, err := retry.Tx(t.Context(), db, pgx.TxOptions{}, quick, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if err := runAll(ctx, tx, `INSERT INTO rows VALUES (3, 0)`); err != nil {
			return struct{}{}, err
		}
		if err := runAll(ctx, tx, `INSERT INTO rows VALUES (3, 0)`); retry.SQLState(err) != "23505" {
			t.Errorf("error = %v, want a unique violation", err)
		}
		return struct{}{}, nil // as if it were handled
	})
	if !errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, retry.ErrCommitUnknown) {
		t.Errorf("error = %v, want %v, which is a known outcome", err, pgx.ErrTxCommitRollback)
	}
	wantNumber(t, db, `SELECT count(*) FROM rows WHERE id = 3`, 0)
}

// What fails before BEGIN leaves nothing to commit.
func TestASwallowedErrorOfTheBeginningIsNoSuccess(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	_, err := retry.Tx(t.Context(), db, pgx.TxOptions{}, quick, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO nowhere VALUES (1)`)
		if err := tx.SendBatch(ctx, b).Close(); retry.SQLState(err) != "42P01" {
			t.Errorf("error = %v, want an undefined table", err)
		}
		return struct{}{}, nil // as if it were handled
	})
	if err == nil || errors.Is(err, retry.ErrCommitUnknown) {
		t.Errorf("error = %v, want one, of a known outcome", err)
	}
}

func TestAStatementInAnAbortedTransactionIsNotRepeated(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	p, conflicts := watched(quick)
	_, err := retry.Tx(t.Context(), db, pgx.TxOptions{}, p, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if err := runAll(ctx, tx, `SELECT 1/0`); err == nil {
			t.Error("error = nil, want a division by zero")
		}
		return struct{}{}, runAll(ctx, tx, `UPDATE rows SET n = 0`)
	})
	if retry.SQLState(err) != "25P02" || len(*conflicts) != 0 {
		t.Errorf("error = %v after conflicts %v, want 25P02 after none", err, *conflicts)
	}
}

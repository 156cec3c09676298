package retry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// quick repeats without long pauses; its limits no test reaches.
var quick = retry.Policy{
	Attempts: 5, MinPause: time.Millisecond, MaxPause: 10 * time.Millisecond,
	StatementTimeout: time.Minute, LockTimeout: time.Minute,
}

// newDB has a table with two rows, 1 and 2, of 10 each.
func newDB(t *testing.T) *testdb.DB {
	t.Helper()
	db := testdb.New(t)
	db.AcquireTimeout = time.Minute
	exec(t, db, `CREATE TABLE rows (id int PRIMARY KEY, n int NOT NULL)`)
	exec(t, db, `INSERT INTO rows VALUES (1, 10), (2, 10)`)
	return db
}

func exec(t *testing.T, db *testdb.DB, sql string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func wantNumber(t *testing.T, db *testdb.DB, sql string, want int) {
	t.Helper()
	var got int
	if err := db.QueryRow(t.Context(), sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if got != want {
		t.Errorf("%s: %d, want %d", sql, got, want)
	}
}

// do runs statements in a transaction.
func do(ctx context.Context, db retry.Beginner, p retry.Policy, statements ...string) error {
	_, err := retry.Tx(ctx, db, pgx.TxOptions{}, p, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		return struct{}{}, runAll(ctx, tx, statements...)
	})
	return err
}

func runAll(ctx context.Context, tx pgx.Tx, statements ...string) error {
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// sqlStates are those of conflicts, in their order.
func sqlStates(conflicts []retry.Conflict) []string {
	var all []string
	for _, c := range conflicts {
		all = append(all, c.SQLState)
	}
	return all
}

func TestADeadlockIsRepeatedAndBothAreDone(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	var mu sync.Mutex
	var conflicts []retry.Conflict
	p := quick
	p.OnConflict = func(c retry.Conflict) {
		mu.Lock()
		defer mu.Unlock()
		conflicts = append(conflicts, c)
	}
	var bothHoldOne, done sync.WaitGroup
	bothHoldOne.Add(2)
	for _, order := range [][2]int{{1, 2}, {2, 1}} {
		done.Go(func() {
			first := true
			_, err := retry.Tx(t.Context(), db, pgx.TxOptions{}, p, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
				if err := runAll(ctx, tx, `SET LOCAL deadlock_timeout = '10ms'`, fmt.Sprintf(`UPDATE rows SET n = n + 1 WHERE id = %d`, order[0])); err != nil {
					return struct{}{}, err
				}
				if first {
					first = false
					bothHoldOne.Done()
					bothHoldOne.Wait()
				}
				return struct{}{}, runAll(ctx, tx, fmt.Sprintf(`UPDATE rows SET n = n + 1 WHERE id = %d`, order[1]))
			})
			if err != nil {
				t.Errorf("error = %v, want none", err)
			}
		})
	}
	done.Wait()
	// The repetition may take its row before the other one has woken up.
	if states := slices.Compact(sqlStates(conflicts)); !slices.Equal(states, []string{"40P01"}) {
		t.Errorf("conflicts of %v, want 40P01 and no other", states)
	}
	wantNumber(t, db, `SELECT sum(n) FROM rows`, 24)
}

// Both read all rows and write one each: no statement of either fails.
func TestASerializationFailureOfCommitIsRepeated(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	serializable := pgx.TxOptions{IsoLevel: pgx.Serializable}
	setToSum := func(ctx context.Context, tx pgx.Tx, id int) error {
		var sum int
		if err := tx.QueryRow(ctx, `SELECT sum(n) FROM rows`).Scan(&sum); err != nil {
			return err
		}
		return runAll(ctx, tx, fmt.Sprintf(`UPDATE rows SET n = %d WHERE id = %d`, sum, id))
	}
	attempt := 0
	p, conflicts := watched(quick)
	_, err := retry.Tx(t.Context(), db, serializable, p, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if err := setToSum(ctx, tx, 1); err != nil {
			return struct{}{}, err
		}
		if attempt++; attempt > 1 {
			return struct{}{}, nil
		}
		return retry.Tx(ctx, db, serializable, quick, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
			return struct{}{}, setToSum(ctx, tx, 2)
		})
	})
	if err != nil {
		t.Errorf("error = %v, want none", err)
	}
	if diff := cmp.Diff([]string{"40001"}, sqlStates(*conflicts)); diff != "" {
		t.Fatalf("conflicts (-want +got):\n%s", diff)
	}
	if text := (*conflicts)[0].Err.Error(); !strings.HasPrefix(text, "commit: ") {
		t.Errorf("conflict = %s, want one of COMMIT", text)
	}
	wantNumber(t, db, `SELECT n FROM rows WHERE id = 1`, 30) // 10, and the other's 20
}

func TestATerminatedSessionIsReplacedAndTheWorkDoneOnce(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	attempt := 0
	p, conflicts := watched(quick)
	_, err := retry.Tx(t.Context(), db, pgx.TxOptions{}, p, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if err := runAll(ctx, tx, `INSERT INTO rows VALUES (3, 0)`); err != nil {
			return struct{}{}, err
		}
		if attempt++; attempt == 1 {
			if _, err := db.Exec(ctx, `SELECT pg_terminate_backend($1, 60000)`, int(tx.Conn().PgConn().PID())); err != nil {
				return struct{}{}, fmt.Errorf("terminate: %w", err)
			}
		}
		return struct{}{}, runAll(ctx, tx, `UPDATE rows SET n = n + 1 WHERE id = 3`)
	})
	if err != nil {
		t.Errorf("error = %v, want none", err)
	}
	if len(*conflicts) != 1 {
		t.Errorf("conflicts = %v, want one", *conflicts)
	}
	wantNumber(t, db, `SELECT n FROM rows WHERE id = 3`, 1)
}

// Idle for too long in the first attempt, which the server ends by FATAL 25P03.
func TestAnIdleTransactionIsEndedByTheServerAndRepeated(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	p, conflicts := watched(quick)
	p.IdleTimeout = 10 * time.Millisecond
	p.Attempts = 1000 // a slow machine may be too late more than once
	attempt := 0
	_, err := retry.Tx(t.Context(), db, pgx.TxOptions{}, p, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if attempt++; attempt == 1 {
			if err := runAll(ctx, tx, `SELECT 1`); err != nil {
				return struct{}{}, err
			}
			waitForEnd(t, db, tx)
		}
		return struct{}{}, runAll(ctx, tx, `SET LOCAL idle_in_transaction_session_timeout = 0`, `UPDATE rows SET n = n + 1 WHERE id = 1`)
	})
	if err != nil {
		t.Errorf("error = %v, want none", err)
	}
	if len(*conflicts) == 0 {
		t.Error("no conflicts, want at least the one that the test made")
	}
	wantNumber(t, db, `SELECT n FROM rows WHERE id = 1`, 11)
}

// waitForEnd returns when the session of tx is gone.
func waitForEnd(t *testing.T, db *testdb.DB, tx pgx.Tx) {
	t.Helper()
	for range 6000 {
		var n int
		if err := db.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, int(tx.Conn().PgConn().PID())).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the session does not end")
}

// As after a failover: the address is the same, the server cannot write.
func TestAReadOnlySessionIsReplaced(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	var name string
	if err := db.QueryRow(t.Context(), `SELECT quote_ident(current_database())`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	exec(t, db, `ALTER DATABASE `+name+` SET default_transaction_read_only = on`)
	other := open(t, postgres.Config{URL: db.URL})
	const write = `UPDATE rows SET n = n + 1 WHERE id = 1`

	if err := do(t.Context(), other, quick, write); !errors.Is(err, retry.ErrUnavailable) || retry.SQLState(err) != "25006" {
		t.Errorf("error = %v, want %v of 25006", err, retry.ErrUnavailable)
	}
	p, conflicts := watched(quick)
	p.OnConflict = func(c retry.Conflict) {
		*conflicts = append(*conflicts, c)
		exec(t, db, `SET default_transaction_read_only = off; ALTER DATABASE `+name+` RESET default_transaction_read_only`)
	}
	if err := do(t.Context(), other, p, write); err != nil {
		t.Errorf("error = %v, want none: the server can write again", err)
	}
	if diff := cmp.Diff([]string{"25006"}, sqlStates(*conflicts)); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
	wantNumber(t, db, `SELECT n FROM rows WHERE id = 1`, 11)
}

func open(t *testing.T, c postgres.Config) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), c)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(db.Close)
	return db
}

func TestLimitsOfTheServerEndAWaitWithAnAnswer(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	const update = `UPDATE rows SET n = n + 1 WHERE id = 1`
	// The row is held meanwhile, so that only a limit can end the wait.
	_, err := retry.Tx(t.Context(), db, pgx.TxOptions{}, quick, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if err := runAll(ctx, tx, update); err != nil {
			return struct{}{}, err
		}
		for _, tt := range []struct {
			name   string
			policy retry.Policy
			want   error
			state  string
		}{
			{"lock timeout", retry.Policy{Attempts: 5, StatementTimeout: time.Minute, LockTimeout: time.Millisecond}, retry.ErrLockUnavailable, "55P03"},
			{"statement timeout", retry.Policy{Attempts: 5, StatementTimeout: time.Millisecond, LockTimeout: time.Minute}, retry.ErrUnavailable, "57014"},
		} {
			if err := do(ctx, db, tt.policy, update); !errors.Is(err, tt.want) || retry.SQLState(err) != tt.state {
				t.Errorf("%s: error = %v, want %v of %s", tt.name, err, tt.want, tt.state)
			}
		}
		return struct{}{}, nil
	})
	if err == nil {
		err = do(t.Context(), db, quick, update)
	}
	if err != nil {
		t.Errorf("error = %v, want none when the row is free", err)
	}
	wantNumber(t, db, `SELECT n FROM rows WHERE id = 1`, 12)
}

package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/localpg"
	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/testdb"
	"github.com/rowlock/ledger/internal/transfer"
)

// A column that is added under load, as a migration does, changes the tables
// under statements that are prepared. Columns are always named, so nobody
// notices.
func TestAddColumnUnderLoad(t *testing.T) {
	t.Parallel()
	for _, pooler := range poolers {
		t.Run(string(pooler), func(t *testing.T) {
			t.Parallel()
			url := testdb.URL(t)
			db := open(t, postgres.Config{URL: url, PoolSize: 8, AcquireTimeout: 20 * time.Second, Pooler: pooler})
			b, modes := newBank(t, db), safeModes()
			ctx := testContext(t)
			var stop atomic.Bool
			var moved atomic.Int64
			var movers sync.WaitGroup
			for i := range 2 * len(modes) {
				s := service(db, modes[i%len(modes)])
				movers.Go(func() {
					for !stop.Load() {
						if err := b.move(ctx, s); err != nil {
							t.Errorf("%s: %v", modes[i%len(modes)].Name, err)
							return
						}
						moved.Add(1)
					}
				})
			}
			for i := range 3 {
				before := moved.Load()
				for moved.Load() < before+20 && !t.Failed() {
					time.Sleep(time.Millisecond)
				}
				for _, table := range []string{"accounts", "transfers", "idempotency_keys"} {
					execSQL(t, url, fmt.Sprintf("SET lock_timeout = '10s'; ALTER TABLE %s ADD COLUMN extra%d text", table, i))
				}
			}
			stop.Store(true)
			movers.Wait()
			checkLedger(t, db)
		})
	}
}

// After a restart or a failover the pool is full of connections that are dead
// and do not know it.
func TestTerminatedConnections(t *testing.T) {
	t.Parallel()
	url := testdb.URL(t)
	const size = 8
	db := open(t, postgres.Config{URL: url, PoolSize: size, AcquireTimeout: 5 * time.Second, ApplicationName: "doomed"})
	b := newBank(t, db)
	ctx := testContext(t)
	const terminateSQL = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
	                       WHERE datname = current_database() AND application_name = 'doomed'`
	for _, idle := range []time.Duration{0, 1200 * time.Millisecond} { // the pool trusts those that were used a moment ago
		fillPool(t, db, size)
		if n := ask[int](t, url, terminateSQL); n != size {
			t.Fatalf("%d connections were there to terminate, want %d", n, size)
		}
		time.Sleep(idle)
		for _, mode := range safeModes() {
			together(t, 2*size, func(int) error { return b.move(ctx, service(db, mode)) })
		}
	}
	checkLedger(t, db)
}

// fillPool makes the pool hold n connections.
func fillPool(t *testing.T, db *postgres.DB, n int) {
	t.Helper()
	var all sync.WaitGroup
	all.Add(n)
	together(t, n, func(int) error {
		_, err := in(t, db, func(context.Context, pgx.Tx) (int, error) {
			all.Done()
			all.Wait()
			return 0, nil
		})
		return err
	})
}

// Terminated in the middle of its transactions, the service does them again.
func TestTerminatedUnderLoad(t *testing.T) {
	t.Parallel()
	url := testdb.URL(t)
	db := open(t, postgres.Config{URL: url, PoolSize: 8, AcquireTimeout: 5 * time.Second, ApplicationName: "doomed"})
	b := newBank(t, db)
	conn := connect(t, url)
	end := time.Now().Add(2 * time.Second)
	modes := safeModes()
	stubborn := policy
	stubborn.Attempts = 10_000 // the modes without locks lose to the others again and again
	together(t, 2*len(modes)+1, func(i int) error {
		for time.Now().Before(end) {
			var err error
			if i < 2*len(modes) {
				err = b.move(t.Context(), transfer.New(db, modes[i%len(modes)], transfer.Locking{}, stubborn))
			} else {
				time.Sleep(50 * time.Millisecond)
				_, err = conn.Exec(t.Context(), `
					SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					 WHERE datname = current_database() AND application_name = 'doomed' AND state <> 'idle'
					 ORDER BY random() -- or one slot's transactions may lose every attempt
					 LIMIT 1`)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	checkLedger(t, db)
}

func TestSeveralHosts(t *testing.T) {
	t.Parallel()
	servers := [2]*localpg.Server{startServer(t), startServer(t)}
	writable := func(i int, is bool) {
		t.Helper()
		admin := connect(t, withParameter(t, servers[i].DSN(), "options", "-c default_transaction_read_only=off"))
		setting := map[bool]string{true: "off", false: "on"}[is]
		for _, sql := range []string{"ALTER SYSTEM SET default_transaction_read_only = " + setting, "SELECT pg_reload_conf()"} {
			if _, err := admin.Exec(t.Context(), sql); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
		waitFor(t, servers[i].DSN(), fmt.Sprintf("SELECT current_setting('default_transaction_read_only') = '%s'", setting))
	}
	for i := range servers {
		execSQL(t, servers[i].DSN(), fmt.Sprintf("CREATE TABLE place (n int, writes int); INSERT INTO place VALUES (%d, 0)", i))
	}

	db := open(t, postgres.Config{URL: severalHosts(t, servers), PoolSize: 4, AcquireTimeout: 5 * time.Second})
	write := func() int {
		t.Helper()
		n, err := in(t, db, func(ctx context.Context, tx pgx.Tx) (n int, err error) {
			err = tx.QueryRow(ctx, "UPDATE place SET writes = writes + 1 RETURNING n").Scan(&n)
			return n, err
		})
		if err != nil {
			t.Errorf("write: %v", err)
		}
		return n
	}
	// Back and forth: the pool's connections lead to the wrong server each time.
	for _, primary := range []int{1, 0, 1} {
		writable(1-primary, false)
		writable(primary, true)
		for range 3 {
			if got := write(); got != primary {
				t.Errorf("wrote to server %d, want %d, the one that can be written", got, primary)
			}
		}
	}
	if err := postgres.Migrate(testContext(t), severalHosts(t, servers), quiet); err != nil {
		t.Errorf("Migrate: %v", err)
	}
	if there := ask[bool](t, servers[1].DSN(), "SELECT to_regclass('accounts') IS NOT NULL"); !there {
		t.Error("Migrate did not migrate the server that can be written")
	}
}

func startServer(t *testing.T) *localpg.Server {
	t.Helper()
	if _, err := localpg.FindBinaries(localpg.Options{Ephemeral: true, NoDownload: true}); err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: this test needs a local PostgreSQL: %v", err)
	}
	s, err := localpg.Start(testContext(t), localpg.Options{Ephemeral: true, NoDownload: true})
	if err != nil {
		t.Fatalf("start a server: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop the server: %v", err)
		}
	})
	return s
}

// severalHosts is the DSN of all servers, of which the writable one is meant.
func severalHosts(t *testing.T, servers [2]*localpg.Server) string {
	t.Helper()
	var hosts [2]string
	for i, s := range servers {
		u, err := url.Parse(s.DSN())
		if err != nil {
			t.Fatal(err)
		}
		hosts[i] = u.Query().Get("host")
	}
	config, err := pgx.ParseConfig(servers[0].DSN())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("host=%s,%s port=%d,%d user=%s dbname=%s target_session_attrs=read-write",
		hosts[0], hosts[1], config.Port, config.Port, config.User, config.Database)
}

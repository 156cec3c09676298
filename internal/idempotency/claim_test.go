package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/idempotency"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

var policy = retry.Policy{
	Attempts: 1000, MinPause: time.Millisecond, MaxPause: 10 * time.Millisecond,
	StatementTimeout: time.Minute, LockTimeout: time.Minute,
}

func newDB(t *testing.T) *testdb.DB {
	t.Helper()
	db := testdb.New(t)
	db.AcquireTimeout = time.Minute
	return db
}

func exec(t *testing.T, db *testdb.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// A use is what one request makes of its key.
type use struct {
	Won     bool
	Outcome idempotency.Outcome
}

// claim uses a key as a request does: its effect is a row in effects.
func claim(ctx context.Context, db retry.Beginner, level pgx.TxIsoLevel, c idempotency.Claim) (use, error) {
	return retry.Tx(ctx, db, pgx.TxOptions{IsoLevel: level}, policy, func(ctx context.Context, tx pgx.Tx) (use, error) {
		c := c // every attempt has its own
		b := &pgx.Batch{}
		idempotency.QueueClaims(b, []*idempotency.Claim{&c})
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return use{}, err
		}
		if c.Won {
			_, err := tx.Exec(ctx, `INSERT INTO effects VALUES ($1)`, c.ResourceID)
			return use{Won: true}, err
		}
		outcome, err := idempotency.Recall(ctx, tx, &c)
		return use{Outcome: outcome}, err
	})
}

func aClaim(key string) idempotency.Claim {
	return idempotency.Claim{
		Key:         idempotency.Key{Principal: "p", Value: key},
		Fingerprint: idempotency.Sum("POST /v1/things", "one"),
		ResourceID:  uuid.Must(uuid.NewV7()),
	}
}

func TestOneOfAHundredConcurrentClaimsIsWon(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			exec(t, db, `CREATE TABLE effects (id uuid)`)
			var won atomic.Int32
			var recalled sync.Map
			var done sync.WaitGroup
			for range 100 {
				done.Go(func() {
					c := aClaim("one")
					u, err := claim(t.Context(), db, level, c)
					switch {
					case err != nil:
						t.Errorf("error = %v, want none", err)
					case u.Won:
						won.Add(1)
						recalled.Store(c.ResourceID, true)
					default:
						recalled.Store(u.Outcome.ResourceID, true)
					}
				})
			}
			done.Wait()
			if won.Load() != 1 {
				t.Errorf("%d claims were won, want 1", won.Load())
			}
			n := 0
			recalled.Range(func(any, any) bool { n++; return true })
			if n != 1 {
				t.Errorf("%d resources were named, want the same by all", n)
			}
			wantCount(t, db, `SELECT count(*) FROM effects`, 1)
		})
	}
}

func wantCount(t *testing.T, db *testdb.DB, sql string, want int) {
	t.Helper()
	var got int
	if err := db.QueryRow(t.Context(), sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if got != want {
		t.Errorf("%s: %d, want %d", sql, got, want)
	}
}

// Row 32 of the lessons: a key that is there when it is claimed may be gone
// when it is recalled. Each time a claim is won there is an effect, and nobody
// hears of "no rows".
func TestClaimsRaceWithASweeperAndNoneIsLost(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			exec(t, db, `CREATE TABLE effects (id uuid)`)
			ctx, stop := context.WithCancel(t.Context())
			var sweeping, claiming sync.WaitGroup
			sweeping.Go(func() {
				for ctx.Err() == nil {
					if _, err := idempotency.Sweep(ctx, db, policy, 0, 100); err != nil && ctx.Err() == nil {
						t.Errorf("sweep: %v", err)
					}
				}
			})
			var won atomic.Int32
			for range 8 {
				claiming.Go(func() {
					for range 25 {
						u, err := claim(t.Context(), db, level, aClaim("one"))
						if err != nil {
							t.Errorf("error = %v, want none", err)
						}
						if u.Won {
							won.Add(1)
						} else if u.Outcome.ResourceID == uuid.Nil {
							t.Error("a claim was neither won nor recalled")
						}
					}
				})
			}
			claiming.Wait()
			stop()
			sweeping.Wait()
			wantCount(t, db, `SELECT count(*) FROM effects`, int(won.Load()))
			wantCount(t, db, `SELECT count(*) FROM idempotency_keys WHERE resource_id NOT IN (SELECT id FROM effects)`, 0)
		})
	}
}

// A key whose row goes away between claim and recall is a conflict, which
// another attempt resolves, and no error of the caller's.
func TestAKeyThatExpiresInBetweenIsAConflict(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	_, err := retry.Tx(t.Context(), db, pgx.TxOptions{}, retry.Policy{Attempts: 1}, func(ctx context.Context, tx pgx.Tx) (idempotency.Outcome, error) {
		c := aClaim("gone")
		return idempotency.Recall(ctx, tx, &c)
	})
	if !errors.Is(err, retry.ErrConflict) {
		t.Errorf("error = %v, want %v", err, retry.ErrConflict)
	}
}

func TestAKeyRemembersItsMeaningAndItsAnswer(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, `CREATE TABLE effects (id uuid)`)
	c := aClaim("one")
	first := c.ResourceID
	if u, err := claim(t.Context(), db, pgx.ReadCommitted, c); err != nil || !u.Won {
		t.Fatalf("claim = %+v, %v, want it won", u, err)
	}
	c.ResourceID = uuid.New()
	u, err := claim(t.Context(), db, pgx.ReadCommitted, c)
	if diff := cmp.Diff(use{Outcome: idempotency.Outcome{ResourceID: first}}, u); diff != "" || err != nil {
		t.Errorf("replay: error %v (-want +got):\n%s", err, diff)
	}

	other := c
	other.Fingerprint = idempotency.Sum("POST /v1/things", "two")
	if _, err := claim(t.Context(), db, pgx.ReadCommitted, other); !errors.Is(err, idempotency.ErrKeyReused) {
		t.Errorf("another meaning: error = %v, want %v", err, idempotency.ErrKeyReused)
	}

	stranger := other
	stranger.Key.Principal = "q"
	if u, err := claim(t.Context(), db, pgx.ReadCommitted, stranger); err != nil || !u.Won {
		t.Errorf("another principal's claim of the same key = %+v, %v, want it won", u, err)
	}

	store(t, db, func(b *pgx.Batch) { idempotency.QueueRefusal(b, c.Key, []byte(`{"code": "no"}`)) })
	store(t, db, func(b *pgx.Batch) { idempotency.QueueAnswer(b, stranger.Key, []byte(`{"name": "yes"}`)) })
	if u, err := claim(t.Context(), db, pgx.ReadCommitted, c); err != nil || string(u.Outcome.Refusal) != `{"code": "no"}` || u.Outcome.Answer != nil {
		t.Errorf("replay of a refusal = %+v, %v", u, err)
	}
	if u, err := claim(t.Context(), db, pgx.ReadCommitted, stranger); err != nil || string(u.Outcome.Answer) != `{"name": "yes"}` || u.Outcome.Refusal != nil {
		t.Errorf("replay of an answer = %+v, %v", u, err)
	}
}

func store(t *testing.T, db *testdb.DB, queue func(b *pgx.Batch)) {
	t.Helper()
	b := &pgx.Batch{}
	queue(b)
	if err := db.SendBatch(t.Context(), b).Close(); err != nil {
		t.Fatal(err)
	}
}

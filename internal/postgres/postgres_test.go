package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/testdb"
)

// in runs f in a transaction on db.
func in[T any](t *testing.T, db *postgres.DB, f func(ctx context.Context, tx pgx.Tx) (T, error)) (T, error) {
	t.Helper()
	return retry.Tx(testContext(t), db, pgx.TxOptions{}, policy, f)
}

var poolers = []postgres.Pooler{postgres.NoPooler, postgres.TransactionPooler}

func TestDecimals(t *testing.T) {
	t.Parallel()
	url := testdb.URL(t)
	for _, pooler := range poolers {
		db := open(t, postgres.Config{URL: url, Pooler: pooler})
		for _, text := range []string{
			"0", "1", "-1", "100.00", "0.1", "10000", "0.0001", "-0.000000000000000001",
			"999999999999999999.999999999999999999",               // the largest amount
			"-9999999999999999999999999999.999999999999999999",    // the lowest balance
			"123456789012345678901234567890.12345678901234567890", // beyond both
		} {
			want := decimal.RequireFromString(text)
			type answer struct {
				Value decimal.Decimal
				Text  string
			}
			got, err := in(t, db, func(ctx context.Context, tx pgx.Tx) (a answer, err error) {
				err = tx.QueryRow(ctx, "SELECT $1::numeric, ($1::numeric)::text", want).Scan(&a.Value, &a.Text)
				return a, err
			})
			if err != nil || !got.Value.Equal(want) || got.Text != text {
				t.Errorf("pooler %s: %s came back as %s, and is %s to the server (error %v)", pooler, text, got.Value, got.Text, err)
			}
		}
	}
}

func TestDecimalsThatAreNone(t *testing.T) {
	t.Parallel()
	url := testdb.URL(t)
	for _, pooler := range poolers {
		db := open(t, postgres.Config{URL: url, Pooler: pooler})
		for _, text := range []string{"NaN", "Infinity", "-Infinity"} {
			got, err := in(t, db, func(ctx context.Context, tx pgx.Tx) (d decimal.Decimal, err error) {
				err = tx.QueryRow(ctx, "SELECT $1::text::numeric", text).Scan(&d)
				return d, err
			})
			if err == nil {
				t.Errorf("pooler %s: %s was read as %s, want an error", pooler, text, got)
			}
		}
		null, err := in(t, db, func(ctx context.Context, tx pgx.Tx) (d *decimal.Decimal, err error) {
			err = tx.QueryRow(ctx, "SELECT $1::numeric", (*decimal.Decimal)(nil)).Scan(&d)
			return d, err
		})
		if err != nil || null != nil {
			t.Errorf("pooler %s: NULL came back as %v, error %v", pooler, null, err)
		}
	}
}

func TestUUIDs(t *testing.T) {
	t.Parallel()
	url := testdb.URL(t)
	ids := []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.Nil, uuid.Max, uuid.New()}
	for _, pooler := range poolers {
		db := open(t, postgres.Config{URL: url, Pooler: pooler})
		type answer struct {
			One  uuid.UUID
			All  []uuid.UUID
			Text string
			None *uuid.UUID
		}
		got, err := in(t, db, func(ctx context.Context, tx pgx.Tx) (a answer, err error) {
			err = tx.QueryRow(ctx, "SELECT $1::uuid, $2::uuid[], $1::uuid::text, NULL::uuid WHERE $1 = ANY($2)", ids[0], ids).
				Scan(&a.One, &a.All, &a.Text, &a.None)
			return a, err
		})
		if err != nil {
			t.Fatalf("pooler %s: %v", pooler, err)
		}
		if got.One != ids[0] || got.Text != ids[0].String() || got.None != nil || len(got.All) != len(ids) {
			t.Errorf("pooler %s: got %+v, want %v", pooler, got, ids)
		}
		for i, id := range got.All {
			if id != ids[i] {
				t.Errorf("pooler %s: id %d = %s, want %s", pooler, i, id, ids[i])
			}
		}
	}
}

// An error about a URL reaches logs and terminals, a password must not.
func TestBadURLKeepsThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://u:s3cret%zz@h/db",
		"postgres://u:s3cret@h:port/db",
		"postgres://u:s3 cret@h/db",
		"postgres://u:x/s3cret@h:1/db",
		"postgres://u:s3cret@h/db?sslmode=bogus",
		"postgres://u:s3cret@h/db?connect_timeout=x",
		"postgres://u:s3cret@h/db?sslmode=verify-full&sslrootcert=/missing/root.crt",
		"postgresql:/u:s3cret@h",
		"u:s3cret@h/db",
		"host=x password=s3cret port=abc",
		"host=x password = s3cret port=abc",
		"host=x password='it''s s3cret' port=abc",
	} {
		_, opening := postgres.Open(t.Context(), postgres.Config{URL: url})
		_, listing := postgres.Migrations(t.Context(), url)
		for _, err := range []error{opening, listing, postgres.Migrate(t.Context(), url, quiet)} {
			if err == nil {
				t.Errorf("%s: no error", url)
				continue
			}
			if text := err.Error(); strings.Contains(text, "s3cret") || strings.Contains(text, "cret") {
				t.Errorf("%s: the error shows the password: %s", url, text)
			}
			wantInError(t, err, "database URL")
		}
	}
	_, err := postgres.Open(t.Context(), postgres.Config{URL: "postgres://u@h/db?sslmode=verify-full&sslrootcert=/missing/root.crt"})
	wantInError(t, err, "/missing/root.crt")
}

func TestUnreachableServerKeepsThePassword(t *testing.T) {
	t.Parallel()
	const url = "postgres://u:s3cret@127.0.0.1:1/db?sslmode=disable"
	db := open(t, postgres.Config{URL: url})
	_, err := in(t, db, func(context.Context, pgx.Tx) (int, error) { return 0, nil })
	if !errors.Is(err, retry.ErrUnavailable) {
		t.Errorf("error = %v, want ErrUnavailable", err)
	}
	for _, err := range []error{err, postgres.Migrate(t.Context(), url, quiet)} {
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("error = %v, want one without the password", err)
		}
	}
}

func TestPoolSize(t *testing.T) {
	t.Parallel()
	const size = 3
	url := testdb.URL(t)
	db := open(t, postgres.Config{URL: url, PoolSize: size, AcquireTimeout: 20 * time.Second, ApplicationName: "sized"})
	var most atomic.Int64
	together(t, 24, func(int) error {
		_, err := in(t, db, func(ctx context.Context, tx pgx.Tx) (int, error) {
			var now int64
			err := tx.QueryRow(ctx, `SELECT count(1) FROM pg_stat_activity, pg_sleep(0.02)
			                          WHERE datname = current_database() AND application_name = 'sized'`).Scan(&now)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			return 0, err
		})
		return err
	})
	if got := most.Load(); got != size {
		t.Errorf("the server saw %d connections at once, want %d", got, size)
	}
}

func TestFullPool(t *testing.T) {
	t.Parallel()
	db := open(t, postgres.Config{URL: testdb.URL(t), PoolSize: 1, AcquireTimeout: time.Minute})
	_, err := in(t, db, func(ctx context.Context, _ pgx.Tx) (int, error) {
		db.AcquireTimeout = 100 * time.Millisecond // the connection is there: a slow machine may need longer for it
		begun := time.Now()
		_, err := in(t, db, func(context.Context, pgx.Tx) (int, error) { return 0, nil })
		if !errors.Is(err, retry.ErrUnavailable) {
			t.Errorf("with a full pool: %v, want ErrUnavailable", err)
		}
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("that took %v, want about 100 ms", took)
		}
		return 0, nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestApplicationName(t *testing.T) {
	t.Parallel()
	url := testdb.URL(t)
	for _, test := range []struct{ url, name, want string }{
		{url, "", "ledger"},
		{url, "worker", "worker"},
		{withParameter(t, url, "application_name", "mine"), "worker", "mine"},
	} {
		db := open(t, postgres.Config{URL: test.url, ApplicationName: test.name})
		got, err := in(t, db, func(ctx context.Context, tx pgx.Tx) (name string, err error) {
			err = tx.QueryRow(ctx, "SELECT current_setting('application_name')").Scan(&name)
			return name, err
		})
		if err != nil || got != test.want {
			t.Errorf("application_name = %q, %v, want %q", got, err, test.want)
		}
	}
}

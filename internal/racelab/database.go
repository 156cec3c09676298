package racelab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// WithSchema makes a schema of its own in the database at url, for one race.
// schemaURL is the same database with that schema as the whole search path.
// drop removes the schema and what is in it, and touches nothing else; call it
// with a context that outlives an interrupt, when no service is using it.
func WithSchema(ctx context.Context, url string) (schemaURL string, drop func(context.Context) error, err error) {
	name := newName("ledger_race_")
	if err := execOnce(ctx, url, "CREATE SCHEMA "+name); err != nil {
		return "", nil, fmt.Errorf("make a schema for the race: %w", err)
	}
	drop = func(ctx context.Context) error {
		if err := execOnce(ctx, url, "DROP SCHEMA IF EXISTS "+name+" CASCADE"); err != nil {
			return fmt.Errorf("drop schema %s: %w", name, err)
		}
		return nil
	}
	return withParameter(url, "search_path", name), drop, nil
}

func execOnce(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}

// newName returns a name that nothing else has.
func newName(prefix string) string {
	random := make([]byte, 8)
	rand.Read(random) // never fails
	return prefix + hex.EncodeToString(random)
}

// withParameter sets a connection parameter, whose value needs no quoting, in
// a URL or in a DSN of key=value pairs, where the last one wins. The rest of
// the text stays as its owner wrote it.
func withParameter(url, key, value string) string {
	if !strings.HasPrefix(url, "postgres://") && !strings.HasPrefix(url, "postgresql://") {
		return url + " " + key + "=" + value
	}
	base, query, _ := strings.Cut(url, "?")
	parameters := []string{key + "=" + value}
	for p := range strings.SplitSeq(query, "&") {
		if p != "" && !strings.HasPrefix(p, key+"=") {
			parameters = append(parameters, p)
		}
	}
	return base + "?" + strings.Join(parameters, "&")
}

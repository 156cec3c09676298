package locklab

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// A pgSession is a connection to an engine that speaks PostgreSQL's protocol.
type pgSession struct{ *pgconn.PgConn }

func dialPostgres(ctx context.Context, url string) (conn, error) {
	c, err := pgconn.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	if _, err := c.Exec(ctx, setDefaultsSQL).ReadAll(); err != nil {
		return nil, errors.Join(fmt.Errorf("set the session's defaults: %w", err), c.Close(ctx))
	}
	return pgSession{c}, nil
}

// What a role or a database may have set otherwise, and a scenario would take
// for the engine's own.
const setDefaultsSQL = `
	SET default_transaction_isolation = 'read committed';
	SET lock_timeout = 0;
	SET statement_timeout = 0;
	SET idle_in_transaction_session_timeout = 0`

// exec sends sql as text: several statements are possible, and every engine
// returns its values in the same form.
func (s pgSession) exec(ctx context.Context, sql string) (o outcome) {
	results := s.Exec(ctx, sql)
	for results.NextResult() {
		o.text = resultText(results.ResultReader())
	}
	err := results.Close()
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg):
		return outcome{state: pg.Code}
	case err != nil:
		return outcome{err: err}
	}
	return o
}

// resultText is what a statement returned: its rows where it has columns, or
// is a SELECT without any, and its command tag otherwise.
func resultText(r *pgconn.ResultReader) string {
	hasRows := len(r.FieldDescriptions()) > 0
	var rows []string
	for r.NextRow() {
		var columns []string
		for _, value := range r.Values() {
			columns = append(columns, string(value))
		}
		rows = append(rows, strings.Join(columns, " "))
	}
	tag, _ := r.Close() // its error comes with that of all
	if !hasRows {
		return tag.String()
	}
	return rowsText(rows)
}

// rowsText is rows as scenarios write them.
func rowsText(rows []string) string {
	if len(rows) == 0 {
		return "no row"
	}
	return strings.Join(rows, ", ")
}

func (s pgSession) id() uint64 { return uint64(s.PID()) }

// waits asks for the row of the session, which an engine may lack that only
// imitates the view.
func (s pgSession) waits(ctx context.Context, id uint64) (bool, error) {
	o := s.exec(ctx, fmt.Sprintf("SELECT coalesce(wait_event_type, '') = 'Lock' FROM pg_stat_activity WHERE pid = %d", id))
	if o.text != "t" && o.text != "f" {
		return false, fmt.Errorf("the engine does not show what its sessions wait for: %s", o)
	}
	return o.text == "t", nil
}

func (s pgSession) exists(ctx context.Context, id uint64) (bool, error) {
	o := s.exec(ctx, fmt.Sprintf("SELECT 1 FROM pg_stat_activity WHERE pid = %d", id))
	return o.text == "1", o.err
}

func (s pgSession) cancel(ctx context.Context) { s.CancelRequest(ctx) }

func (s pgSession) close(ctx context.Context) { s.Close(ctx) }

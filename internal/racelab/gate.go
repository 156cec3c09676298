package racelab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A gate is a session that holds rows. Whoever wants to write them, or to lock
// them, waits; whoever only reads has read by then.
type gate struct{ conn *pgx.Conn }

const lockGateSQL = `
	SELECT id
	  FROM accounts
	 WHERE id = $1
	   FOR UPDATE`

// closeGate takes the rows' locks on a connection of its own, one by one: not
// every engine takes several at once. Nobody is at the gate yet.
func closeGate(ctx context.Context, url string, ids []uuid.UUID) (*gate, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	g := &gate{conn: conn}
	if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
		g.leave(ctx)
		return nil, err
	}
	for _, id := range ids {
		tag, err := conn.Exec(ctx, lockGateSQL, id)
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("account %s is not there", id)
		}
		if err != nil {
			g.leave(ctx)
			return nil, err
		}
	}
	return g, nil
}

// open lets everybody through.
func (g *gate) open(ctx context.Context) error {
	_, err := g.conn.Exec(ctx, "COMMIT")
	return err
}

// leave closes the connection, which opens the gate where it is still closed.
func (g *gate) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	g.conn.Close(ctx)
}

// gateTimeout bounds the wait for the workers. It is shorter than the services'
// lock timeout, of [patientFlags].
const gateTimeout = 15 * time.Second

// errWentAround says that answers were given without the contended rows.
var errWentAround = errors.New("every request was answered while the rows that they contend for were held")

// awaitWaiters returns when all workers wait for locks. The error is
// [errWentAround] if the race has finished by then, which it leaves in finished
// for others to see.
func (r *race) awaitWaiters(ctx context.Context, finished chan error) error {
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	for {
		waiting, err := r.countWaiters(ctx)
		if waiting >= r.scenario.Workers {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("look for the workers at the gate: %w", err)
		}
		select {
		case err := <-finished:
			finished <- err
			return errWentAround
		case <-ctx.Done():
			return fmt.Errorf("%d of %d workers came to the gate: %w", waiting, r.scenario.Workers, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

const countWaitersSQL = `
	SELECT count(*)
	  FROM pg_stat_activity
	 WHERE datname = current_database()
	   AND application_name = $1
	   AND wait_event_type = 'Lock'`

// countWaiters counts the workers at the gate. Without groups each of them has
// a session that waits. With groups a service has one session wait for all who
// want a row, and says how many they are.
func (r *race) countWaiters(ctx context.Context) (n int, err error) {
	if err := r.db.QueryRow(ctx, countWaitersSQL, r.name).Scan(&n); err != nil {
		return 0, err
	}
	parked := 0
	for _, s := range r.services {
		here, err := readParked(ctx, s.URL)
		if err != nil {
			return 0, err
		}
		parked += here
	}
	return max(n, parked), nil
}

package payment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/retry"
)

// A Bell wakes workers that are idle: those of this process at once, and those
// of others by NOTIFY. It only shortens a wait: whoever misses it looks into the
// queue at the next poll.
type Bell struct {
	here, elsewhere chan struct{} // with room for one call, which is for all
}

// NewBell makes a bell for one process.
func NewBell() *Bell {
	return &Bell{here: make(chan struct{}, 1), elsewhere: make(chan struct{}, 1)}
}

// Ring says that there may be something in the queue. It waits for nothing.
func (b *Bell) Ring() {
	b.wake()
	ring(b.elsewhere)
}

// wake wakes one worker of this process.
func (b *Bell) wake() { ring(b.here) }

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// channel is where workers listen. A payload would say nothing: they look.
const channel = "ledger_payments"

// A NOTIFY makes its transaction take a lock of the whole database server when
// it commits, one after the other. So it is never in the transaction of a
// payment or a transfer, and one is for all calls of some time.
const notifyWorkersSQL = `SELECT pg_notify('` + channel + `', '')`

const notifyInterval = 100 * time.Millisecond

// Notify passes calls on to other processes, until ctx ends.
func (b *Bell) Notify(ctx context.Context, db retry.Beginner, policy retry.Policy, onError func(error)) {
	policy.Attempts = 1
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.elsewhere:
		}
		_, err := retry.Tx(ctx, db, readWrite, policy, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
			_, err := tx.Exec(ctx, notifyWorkersSQL)
			return struct{}{}, err
		})
		if err != nil && ctx.Err() == nil {
			onError(fmt.Errorf("notify other workers: %w", err))
		}
		sleep(ctx, notifyInterval)
	}
}

const listenSQL = `LISTEN ` + channel

// Listen wakes this process's workers when another one calls, until ctx ends. A
// connection that is lost is made again: connect makes one, of its own. It must
// lead to the server itself, or to a pooler that keeps sessions.
func (b *Bell) Listen(ctx context.Context, connect func(context.Context) (*pgx.Conn, error), onError func(error)) {
	for ctx.Err() == nil {
		if err := b.listen(ctx, connect); err != nil && ctx.Err() == nil {
			onError(fmt.Errorf("listen for payments, which polling finds meanwhile: %w", err))
		}
		sleep(ctx, jitter(listenPause))
	}
}

const listenPause = 2 * time.Second

func (b *Bell) listen(ctx context.Context, connect func(context.Context) (*pgx.Conn, error)) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, listenSQL); err != nil {
		return err
	}
	for {
		b.wake() // also after a new connection: calls may have been missed
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

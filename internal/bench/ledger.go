package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/racelab"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/verify"
)

// A ledger is what a cell runs on.
type ledger struct {
	url   string // "": unknown
	ids   []uuid.UUID
	owned bool // nobody else writes to it

	// How many transfers there are, and how many more there may be.
	made, unknown int64

	updates, hot int64 // of the accounts' rows, before the run

	drop func(context.Context) error
	keep bool // after the cell, for the next
}

func (l *ledger) release(ctx context.Context) error {
	if l.keep {
		return nil
	}
	return l.drop(ctx)
}

// ledgerFor makes the ledger of a cell, with all accounts and their funds.
func (b *Bench) ledgerFor(ctx context.Context, cell Cell, w Workload) (*ledger, error) {
	if b.Accounts < 2 {
		return nil, errors.New("a transfer needs two accounts")
	}
	if b.URL != "" {
		return b.remoteLedger(ctx, w)
	}
	if w.Declines && cell.Preload > 0 {
		return nil, fmt.Errorf("workload %s cannot run on preloaded transfers, which give everybody funds", w.Name)
	}
	if cell.Preload == 0 || mayLose(cell.Mode) {
		return b.newLedger(ctx, cell.Preload, w)
	}
	if l := b.preloaded[cell.Preload]; l != nil {
		return l, nil
	}
	l, err := b.newLedger(ctx, cell.Preload, w)
	if err != nil {
		return nil, err
	}
	l.keep = true
	if b.preloaded == nil {
		b.preloaded = map[int64]*ledger{}
	}
	b.preloaded[cell.Preload] = l
	return l, nil
}

func (b *Bench) newLedger(ctx context.Context, preload int64, w Workload) (_ *ledger, err error) {
	url, drop, err := racelab.WithSchema(ctx, b.DatabaseURL)
	if err != nil {
		return nil, err
	}
	l := &ledger{url: url, owned: true, drop: func(ctx context.Context) error {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
		defer cancel()
		return drop(bounded)
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.drop(ctx))
		}
	}()
	if err := postgres.Migrate(ctx, url, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if l.made, err = seed(ctx, conn, b.Accounts, w.Declines); err != nil {
		return nil, fmt.Errorf("open the accounts: %w", err)
	}
	if err := b.settle(ctx, conn); err != nil {
		return nil, err
	}
	if err := b.preload(ctx, conn, preload); err != nil {
		return nil, fmt.Errorf("load transfers: %w", err)
	}
	l.made += preload
	for i := range b.Accounts {
		l.ids = append(l.ids, accountID(i))
	}
	return l, nil
}

// dropTimeout also covers an interrupt, after which the schema must still go.
const dropTimeout = time.Minute

// settle leaves the database as if it had been at rest for a while.
func (b *Bench) settle(ctx context.Context, conn *pgx.Conn) error {
	statements := []string{"VACUUM (ANALYZE) accounts", "VACUUM (ANALYZE) transfers"}
	if b.Private {
		statements = append(statements, "CHECKPOINT")
	}
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

const selectHotUpdatesSQL = `
	SELECT coalesce(n_tup_upd, 0), coalesce(n_tup_hot_upd, 0)
	  FROM pg_stat_user_tables
	 WHERE relid = 'accounts'::regclass`

// noteUpdates remembers what the accounts' statistics stand at.
func (l *ledger) noteUpdates(ctx context.Context) error {
	if l.url == "" {
		return nil
	}
	conn, err := pgx.Connect(ctx, l.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return conn.QueryRow(ctx, selectHotUpdatesSQL).Scan(&l.updates, &l.hot)
}

// verify checks every invariant, and that what was acknowledged is there.
func (b *Bench) verify(ctx context.Context, l *ledger, r *Result) error {
	if l.url == "" {
		return nil
	}
	updates, hot := l.updates, l.hot
	if err := l.noteUpdates(ctx); err != nil {
		return fmt.Errorf("read the table's statistics: %w", err)
	}
	r.HotRatio = ratio(float64(l.hot-hot), float64(l.updates-updates))
	db, err := postgres.Open(ctx, postgres.Config{URL: l.url, PoolSize: 1, ApplicationName: "ledger-bench"})
	if err != nil {
		return err
	}
	defer db.Close()
	report, err := verify.Ledger(ctx, db, retry.Policy{Attempts: 3, MinPause: 100 * time.Millisecond, MaxPause: time.Second})
	if err != nil {
		return fmt.Errorf("verify the ledger: %w", err)
	}
	r.Verdict = Verdict{Verified: true, Findings: findings(report)}
	if least, most := l.made, l.made+l.unknown; l.owned && (report.Transfers < least || report.Transfers > most) {
		r.Verdict.Findings = append(r.Verdict.Findings,
			fmt.Sprintf("there are %d transfers where %d to %d were acknowledged", report.Transfers, least, most))
	}
	l.made, l.unknown = report.Transfers, 0
	if mayLose(r.Mode) || len(r.Verdict.Findings) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s, %s, %d clients: %s", ErrMoneyLost, r.Name(), r.Workload, r.Clients, r.Verdict.Findings[0])
}

func findings(report verify.Report) (texts []string) {
	for _, kind := range verify.Kinds() {
		if n := report.Counts[kind]; n > 0 {
			texts = append(texts, fmt.Sprintf("%s: %d", kind, n))
		}
	}
	return texts
}

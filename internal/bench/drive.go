package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
)

// drive puts the callers to work, closes them and fills r in. They are closed
// no sooner: an ending backend's time would be missed where it is read.
func (b *Bench) drive(ctx context.Context, l *ledger, w Workload, callers []caller, serviceURL string, r *Result) error {
	defer closeAll(callers)
	defer debug.SetGCPercent(debug.SetGCPercent(generatorGC))
	p, err := newProbe(ctx, l.url, serviceURL)
	if err != nil {
		return fmt.Errorf("look at what is measured: %w", err)
	}
	defer p.close()
	if w.Locks {
		unlock, err := lockAccount(ctx, l)
		if err != nil {
			return fmt.Errorf("lock an account: %w", err)
		}
		defer unlock() // when everybody has given up on it
	}
	var before, after reading
	memory := &samples{}
	answered := int64(0)
	work := &load{
		callers: callers, workload: w, accounts: len(l.ids), rate: r.Rate / float64(max(1, r.Batch)), batch: max(1, r.Batch), warmup: b.Warmup, duration: b.Duration,
		begin: func() (err error) {
			b.tell(r.Cell, "measure")
			before, err = p.read(ctx)
			return err
		},
		end: func() (err error) {
			after, err = p.read(ctx)
			memory.add(after.service.rss)
			return err
		},
		tick: func(elapsed time.Duration, all int64) {
			if b.Progress != nil {
				b.Progress(Progress{Cell: r.Cell, Phase: "measure", Elapsed: elapsed, PerSecond: float64(all - answered)})
				answered = all
			}
			if serviceURL == "" {
				return
			}
			if m, err := readMetrics(ctx, serviceURL); err == nil { // one sample less is no loss
				memory.add(m.rss)
			}
		},
	}
	b.tell(r.Cell, "warm up")
	tally, err := work.run(ctx)
	l.made += tally.allMade
	l.unknown += tally.allUnknown
	if err != nil {
		return err
	}
	r.since(before, after)
	r.Cost.ServiceRSS = memory.kept
	if serviceURL == "" {
		r.Cost.ServiceRSS = nil
		if tally.example != nil { // base does nothing that may fail
			return fmt.Errorf("%s: %w", r.Kind, tally.example)
		}
	}
	if err := r.fill(tally, b.Duration); err != nil {
		return err
	}
	if r.Answered() == 0 {
		return errors.Join(fmt.Errorf("no transfer was answered: %v", r.Codes), tally.example)
	}
	return nil
}

const lockAccountSQL = `SELECT id FROM accounts WHERE id = $1 FOR UPDATE`

// lockAccount keeps one account locked until unlock is called.
func lockAccount(ctx context.Context, l *ledger) (unlock func(), err error) {
	if l.url == "" {
		return nil, errors.New("no database was named")
	}
	conn, err := pgx.Connect(ctx, l.url)
	if err != nil {
		return nil, err
	}
	unlock = func() { conn.Close(context.WithoutCancel(ctx)) } // which rolls back
	for _, s := range []struct {
		sql  string
		args []any
	}{{baseBeginSQL, nil}, {lockAccountSQL, []any{l.ids[hotAccount(len(l.ids))]}}} {
		if _, err := conn.Exec(ctx, s.sql, s.args...); err != nil {
			unlock()
			return nil, err
		}
	}
	return unlock, nil
}

// generatorGC lets the load generator's small heap grow a little, so that it
// collects garbage less often, at the cost of those whom it measures.
const generatorGC = 800

// samples keeps a bounded number of values from the whole of a run: where there
// is no more room, every other one goes, and from then on half as many come.
type samples struct {
	kept  []int64
	every int
	seen  int
}

const maxSamples = 120

func (s *samples) add(v int64) {
	s.every = max(1, s.every)
	if s.seen++; s.seen%s.every != 0 {
		return
	}
	if len(s.kept) == maxSamples {
		half := s.kept[:0]
		for i := 1; i < maxSamples; i += 2 {
			half = append(half, s.kept[i])
		}
		s.kept, s.every = half, 2*s.every
	}
	s.kept = append(s.kept, v)
}

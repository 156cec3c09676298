package bench

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A caller makes one call at a time, for one transfer or for a batch of them: all
// or none. code is "" where the money has moved, and else why not. After an error
// nobody knows, and the next call begins on a new connection.
type caller interface {
	call(pairs []pair) (code string, err error)
	close()
}

// A pair is who pays whom: accounts, by their places.
type pair struct{ debit, credit int }

func closeAll(callers []caller) {
	for _, c := range callers {
		c.close()
	}
}

// A load is a number of callers at work. With a rate they send on a schedule,
// whatever the answers do; without one, each sends when it has its answer.
type load struct {
	callers  []caller
	workload Workload
	accounts int
	rate     float64 // calls a second by all callers; 0 is a closed loop
	batch    int     // transfers in a call

	warmup, duration time.Duration

	begin, end func() error                                // called at the ends of what is measured
	tick       func(elapsed time.Duration, answered int64) // called every second of it

	answered atomic.Int64
}

// Codes of what is no failure of the service's, and of what is no answer.
const (
	refusedCode  = "insufficient-funds" // what the workload declines asks for
	noAnswerCode = "no-answer"
	notSentCode  = "not-sent" // an open loop asked for more than could be answered
)

// overdueGrace is how long after its end an open loop still sends what it was
// meant to have sent.
const overdueGrace = 5 * time.Second

// failurePause follows a failure, lest a service that is down or full gets
// nothing but more of the same.
const failurePause = 10 * time.Millisecond

// run drives all callers through warm-up and measurement, and returns what
// they saw. What was meant to start while measured is measured, however long
// its answer takes.
func (l *load) run(ctx context.Context) (*tally, error) {
	start := time.Now()
	begin := start.Add(l.warmup)
	end := begin.Add(l.duration)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	total := newTally()
	tallies := make([]*tally, len(l.callers))
	var wg sync.WaitGroup
	for i, c := range l.callers {
		tallies[i] = newTally()
		w := &worker{load: l, caller: c, tally: tallies[i], begin: begin, end: end, finish: ctx.Done(), pairs: make([]pair, l.batch)}
		w.pick = l.workload.picker(rand.New(rand.NewPCG(uint64(start.UnixNano()), uint64(i))), l.accounts)
		if l.rate > 0 {
			w.interval = time.Duration(float64(len(l.callers)) / l.rate * float64(time.Second))
			w.next = start.Add(time.Duration(float64(i) / l.rate * float64(time.Second)))
		}
		wg.Go(w.run)
	}
	err := l.watch(ctx, begin, end)
	if err != nil {
		stop()
	}
	wg.Wait()
	for _, t := range tallies {
		total.add(t)
	}
	return total, err
}

// watch marks the ends of what is measured, and the seconds of it.
func (l *load) watch(ctx context.Context, begin, end time.Time) error {
	if !pause(ctx.Done(), time.Until(begin)) {
		return ctx.Err()
	}
	if err := l.begin(); err != nil {
		return err
	}
	before := l.answered.Load()
	for second := begin.Add(time.Second); second.Before(end); second = second.Add(time.Second) {
		if !pause(ctx.Done(), time.Until(second)) {
			return ctx.Err()
		}
		l.tick(second.Sub(begin), l.answered.Load()-before)
	}
	if !pause(ctx.Done(), time.Until(end)) {
		return ctx.Err()
	}
	return l.end()
}

// pause waits, and reports false where finish came first.
func pause(finish <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-finish:
		return false
	}
}

// A worker drives one caller.
type worker struct {
	load       *load
	caller     caller
	tally      *tally
	pick       func() (debit, credit int)
	pairs      []pair    // of one call
	begin, end time.Time // of what is measured
	finish     <-chan struct{}

	interval time.Duration // of an open loop
	next     time.Time     // when the next transfer is meant to start
}

func (w *worker) run() {
	for {
		select {
		case <-w.finish:
			return
		default:
		}
		start, ok := w.start()
		if !ok || !start.Before(w.end) {
			return
		}
		if w.interval > 0 && time.Since(w.end) > overdueGrace {
			if !start.Before(w.begin) {
				w.tally.codes[notSentCode]++
			}
			continue
		}
		for i := range w.pairs {
			w.pairs[i].debit, w.pairs[i].credit = w.pick()
		}
		code, err := w.caller.call(w.pairs)
		w.tally.count(code, err, len(w.pairs), time.Since(start), !start.Before(w.begin))
		w.load.answered.Add(int64(len(w.pairs)))
		if err != nil || code != "" && code != refusedCode {
			pause(w.finish, failurePause)
		}
	}
}

// start waits until the next transfer is due and returns the time from which
// its latency counts: in an open loop the intended one where the answer before
// came too late to keep it, so that a stall counts against whoever stalled. A
// timer that wakes us late is our own doing and does not count.
func (w *worker) start() (time.Time, bool) {
	if w.interval == 0 {
		return time.Now(), true
	}
	intended := w.next
	w.next = w.next.Add(w.interval)
	if time.Since(intended) >= 0 {
		return intended, true
	}
	if !pause(w.finish, time.Until(intended)) {
		return time.Time{}, false
	}
	return time.Now(), true
}

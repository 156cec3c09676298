package bench

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A fakeCaller answers as it is told, in no time but the time it is told.
type fakeCaller struct {
	calls  int
	answer func(call int) (took time.Duration, code string, err error)
}

func (c *fakeCaller) call([]pair) (string, error) {
	c.calls++
	took, code, err := c.answer(c.calls)
	time.Sleep(took)
	return code, err
}

func (c *fakeCaller) close() {}

func runLoad(t *testing.T, rate float64, callers ...caller) *tally {
	t.Helper()
	l := &load{
		callers: callers, workload: workloads[0], accounts: 10, rate: rate, batch: 1, warmup: time.Second, duration: 2 * time.Second,
		begin: func() error { return nil }, end: func() error { return nil }, tick: func(time.Duration, int64) {},
	}
	tally, err := l.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

func steady(took time.Duration) *fakeCaller {
	return &fakeCaller{answer: func(int) (time.Duration, string, error) { return took, "", nil }}
}

func TestClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := runLoad(t, 0, steady(10*time.Millisecond), steady(10*time.Millisecond))
		if got.made != 400 || got.allMade != 600 || len(got.latencies) != 400 {
			t.Errorf("made %d measured, %d in all, %d latencies; want 400, 600 and 400", got.made, got.allMade, len(got.latencies))
		}
	})
}

// Every answer that an open loop was meant to have counts from when it was
// meant to begin, so one stall is in the latency of all that waited behind it.
func TestAStallCountsInAnOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := runLoad(t, 10, &fakeCaller{answer: func(call int) (time.Duration, string, error) {
			if call == 11 { // the first that is measured
				return time.Second, "", nil
			}
			return 0, "", nil
		}})
		latency, err := got.latency()
		if err != nil {
			t.Fatal(err)
		}
		if got.made != 20 {
			t.Errorf("made %d, want 20", got.made)
		}
		// 1 s, 900 ms, 800 ms … of 20.
		if latency.Max != time.Second || latency.P50 > time.Millisecond || latency.P90.Round(10*time.Millisecond) != 800*time.Millisecond {
			t.Errorf("latency %+v, want 0 at p50, 800 ms at p90 and 1 s at most", latency)
		}
	})
}

func TestAnOpenLoopThatAsksForTooMuchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		got := runLoad(t, 50, steady(100*time.Millisecond)) // five times what it can
		if took, most := time.Since(start), 3*time.Second+overdueGrace+time.Second; took > most {
			t.Errorf("it took %v, want at most %v", took, most)
		}
		if sent := got.made + got.codes[notSentCode]; sent != 100 || got.made == 0 || got.codes[notSentCode] == 0 {
			t.Errorf("%d made and %d not sent, want some of each and 100 together", got.made, got.codes[notSentCode])
		}
	})
}

func TestWhatIsNotMadeIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := runLoad(t, 0, &fakeCaller{answer: func(call int) (time.Duration, string, error) {
			switch call % 4 {
			case 0:
				return 10 * time.Millisecond, refusedCode, nil
			case 1:
				return 0, "overloaded", nil // and the pause after it
			case 2:
				return 0, "", errors.New("connection reset")
			}
			return 10 * time.Millisecond, "", nil
		}})
		want := map[string]int64{refusedCode: 50, "overloaded": 50, noAnswerCode: 50}
		for code, n := range want {
			if got.codes[code] != n {
				t.Errorf("%s: %d, want %d", code, got.codes[code], n)
			}
		}
		if got.made != 50 || len(got.latencies) != 100 || got.example == nil {
			t.Errorf("made %d, %d latencies, example %v; want 50, 100 and one", got.made, len(got.latencies), got.example)
		}
		if got.allMade != 75 || got.allUnknown != 150 {
			t.Errorf("in all %d made and %d unknown, want 75 and 150", got.allMade, got.allUnknown)
		}
	})
}

func TestALoadThatCannotBeginEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("no counters")
		l := &load{
			callers: []caller{steady(time.Millisecond)}, workload: workloads[0], accounts: 2, duration: time.Hour,
			begin: func() error { return failure },
		}
		if _, err := l.run(t.Context()); !errors.Is(err, failure) {
			t.Errorf("error = %v, want %v", err, failure)
		}
	})
}

func TestPercentiles(t *testing.T) {
	tally := newTally()
	for us := range 1000 {
		tally.count("", nil, 1, time.Duration(us+1)*time.Millisecond, true)
	}
	got, err := tally.latency()
	if err != nil {
		t.Fatal(err)
	}
	_, values := got.Percentiles()
	for i, want := range []time.Duration{500, 900, 990, 999, 1000} {
		want *= time.Millisecond
		if off := values[i] - want; off < -want/1000 || off > want/1000 {
			t.Errorf("percentile %d = %v, want %v within a thousandth", i, values[i], want)
		}
	}
}

func TestNoLatencies(t *testing.T) {
	if got, err := newTally().latency(); err != nil || got != (Latency{}) {
		t.Errorf("latency = %+v, %v; want none", got, err)
	}
}

func TestSamplesCoverTheWholeTime(t *testing.T) {
	s := &samples{}
	for i := range 1000 {
		s.add(int64(i))
	}
	if n := len(s.kept); n > maxSamples || n < maxSamples/2 {
		t.Errorf("kept %d samples, want %d to %d", n, maxSamples/2, maxSamples)
	}
	if first, last := s.kept[0], s.kept[len(s.kept)-1]; first > 20 || last < 980 {
		t.Errorf("from %d to %d, want all of 0 to 999", first, last)
	}
}

package bench

import (
	"time"
)

// A Result is one run of one cell.
type Result struct {
	Cell
	Conditions
	Round int       `json:"round"`
	At    time.Time `json:"at"`

	Made      int64            `json:"made"`
	PerSecond float64          `json:"per_second"` // transfers that were made or refused
	Latency   Latency          `json:"latency"`
	Codes     map[string]int64 `json:"codes,omitempty"`   // what was not made
	Example   string           `json:"example,omitempty"` // why there was no answer

	Conflicts map[string]int64 `json:"conflicts,omitempty"` // by SQLSTATE or the service's word
	Groups    Groups           `json:"groups,omitzero"`
	Cost      Cost             `json:"cost"`

	Verdict  Verdict `json:"verdict"`
	HotRatio float64 `json:"hot_ratio"` // of the updates of accounts, those that touched no index
}

// Groups are the transactions that the service made for many callers.
type Groups struct {
	Count   int64   `json:"count"`
	Mean    float64 `json:"mean"`    // transfers a group
	Largest float64 `json:"largest"` // at most; the bound of a histogram's bucket
}

// Cost is what the measured time took. Zero is what could not be read: a
// process on another machine, or a server that does not tell.
type Cost struct {
	ServiceCPU   time.Duration `json:"service_cpu_ns"`
	DatabaseCPU  time.Duration `json:"database_cpu_ns"`
	GeneratorCPU time.Duration `json:"generator_cpu_ns"`
	OthersCPU    time.Duration `json:"others_cpu_ns"`         // whoever else was busy on the machine
	ServiceRSS   []int64       `json:"service_rss,omitempty"` // bytes, every second, or as often as there is room for
	DatabaseRSS  int64         `json:"database_rss"`          // bytes, shared memory once
	WAL          int64         `json:"wal"`                   // bytes
}

// A Verdict says whether the ledger was as it must be.
type Verdict struct {
	Verified bool     `json:"verified"`           // false: there was no database to look into
	Findings []string `json:"findings,omitempty"` // what was wrong
}

// Answered is how many transfers were made or refused.
func (r Result) Answered() int64 { return r.Made + r.Codes[refusedCode] }

// Failed is how many requests had another answer, or none.
func (r Result) Failed() int64 {
	failed := int64(0)
	for code, n := range r.Codes {
		if code != refusedCode {
			failed += n
		}
	}
	return failed
}

// Retries is how many attempts lost a conflict.
func (r Result) Retries() int64 {
	retries := int64(0)
	for _, n := range r.Conflicts {
		retries += n
	}
	return retries
}

const deadlockDetected = "40P01"

// Deadlocks is how many of them the server ended to break a deadlock.
func (r Result) Deadlocks() int64 { return r.Conflicts[deadlockDetected] }

// PerTransfer divides by the number of transfers that were answered.
func (r Result) PerTransfer(total float64) float64 { return ratio(total, float64(r.Answered())) }

// PeakRSS is the most memory that the service was seen with, in bytes.
func (c Cost) PeakRSS() int64 {
	peak := int64(0)
	for _, rss := range c.ServiceRSS {
		peak = max(peak, rss)
	}
	return peak
}

// RSSGrowth is the service's memory in the last quarter of the time over that
// in the second: about 1 where it is flat. Zero: there are too few samples.
func (c Cost) RSSGrowth() float64 {
	quarter := len(c.ServiceRSS) / 4
	if quarter == 0 {
		return 0
	}
	return ratio(mean(c.ServiceRSS[3*quarter:]), mean(c.ServiceRSS[quarter:2*quarter]))
}

func mean(values []int64) float64 {
	sum := int64(0)
	for _, v := range values {
		sum += v
	}
	return ratio(float64(sum), float64(len(values)))
}

// ratio is a over b, and zero where there is nothing to divide by.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (r *Result) fill(t *tally, measured time.Duration) (err error) {
	r.Made, r.Codes = t.made, t.codes
	r.PerSecond = ratio(float64(r.Answered()), measured.Seconds())
	if t.example != nil {
		r.Example = t.example.Error()
	}
	r.Latency, err = t.latency()
	return err
}

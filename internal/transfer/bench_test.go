package transfer_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rowlock/ledger/internal/transfer"
)

// BenchmarkCreate makes transfers in every mode: among many accounts, and all
// of them out of one.
func BenchmarkCreate(b *testing.B) {
	for _, mode := range ways() {
		for _, workload := range []struct {
			name string
			pick func(i, n int) (from, to int)
		}{
			{"uniform", func(i, n int) (int, int) { return i % n, (i*7 + 1) % n }},
			{"hot", func(i, n int) (int, int) { return 0, 1 + i%(n-1) }},
		} {
			b.Run(mode.String()+"/"+workload.name, func(b *testing.B) {
				l := newLedger(b)
				s := mode.service(l.db, patient)
				ids := make([]uuid.UUID, 100)
				for i := range ids {
					ids[i] = l.open(b, "USD", "1000000", "0")
				}
				benchmarkCreate(b, s, func(i int) transfer.Command {
					from, to := workload.pick(i, len(ids))
					if from == to {
						to = (to + 1) % len(ids)
					}
					return between(ids[from], ids[to], "0.01", "USD")
				})
			})
		}
	}
}

func benchmarkCreate(b *testing.B, s *transfer.Service, command func(i int) transfer.Command) {
	var next atomic.Int64
	b.SetParallelism(4)
	b.ResetTimer()
	start := time.Now()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, _, err := s.Create(b.Context(), command(int(next.Add(1)))); err != nil {
				b.Errorf("error = %v, want none", err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "transfers/s")
}

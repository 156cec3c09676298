package telemetry

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowlock/ledger/internal/payment"
)

// WatchPayments returns hooks that count what the workers of queued payments do,
// and tell onError what goes wrong.
func (m *Metrics) WatchPayments(onError func(error)) payment.Hooks {
	depth := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ledger_payments",
		Help: "Payments that are not finished, by status; counted up to a limit.",
	}, []string{"status"})
	oldest := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ledger_payments_oldest_due_seconds",
		Help: "Time that the oldest payment in the queue has waited for a worker.",
	})
	snapshot := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ledger_database_oldest_snapshot_seconds",
		Help: "Age of the oldest transaction of the server that holds vacuum back, as far as our role may see.",
	})
	claims := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "ledger_payment_claim_duration_seconds",
		Help:    "Time to claim payments from the queue.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15), // 0.5 ms to 8 s
	})
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ledger_payment_attempts_total",
		Help: "Attempts to make a payment that ended, by problem code; \"done\" with the transfer.",
	}, []string{"code"})
	losses := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ledger_payment_lease_losses_total",
		Help: "Leases that had ended when their work was finished.",
	})
	m.registry.MustRegister(depth, oldest, snapshot, claims, attempts, losses)
	return payment.Hooks{
		OnClaim:     func(took time.Duration) { claims.Observe(took.Seconds()) },
		OnAttempt:   func(code string) { attempts.WithLabelValues(cmp.Or(code, payment.Done)).Inc() },
		OnLeaseLost: losses.Inc,
		OnOldest:    func(waited time.Duration) { oldest.Set(waited.Seconds()) },
		OnState: func(s payment.State) {
			snapshot.Set(s.OldestSnapshot.Seconds())
			for status, n := range map[string]int64{
				payment.Scheduled: s.Scheduled, payment.AwaitingApproval: s.AwaitingApproval, payment.Queued: s.Queued, payment.Processing: s.Processing,
			} {
				depth.WithLabelValues(status).Set(float64(n))
			}
		},
		OnError: onError,
	}
}

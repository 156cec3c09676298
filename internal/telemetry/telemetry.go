// Package telemetry is what the service tells its operators: one struct of
// metrics, and the logger. The domain knows neither; hooks feed both. Start
// reading at [Metrics].
package telemetry

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rowlock/ledger/internal/retry"
)

// Metrics are all that the service counts. Every label has few values: the
// outcome of a request is its status and its problem's code.
type Metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	conflicts *prometheus.CounterVec
	groups    prometheus.Histogram
	swept     prometheus.Counter
}

// NewMetrics makes the metrics of one process.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ledger_http_requests_total",
			Help: "Requests answered, by route, status and problem code.",
		}, []string{"method", "route", "status", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ledger_http_request_duration_seconds",
			Help:    "Time to answer a request.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15), // 0.5 ms to 8 s
		}, []string{"method", "route"}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ledger_transaction_conflicts_total",
			Help: "Attempts of a transaction that failed for a reason that another attempt may resolve.",
		}, []string{"mode", "sqlstate"}),
		groups: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ledger_group_size",
			Help:    "Transfers that shared one transaction.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 9), // 1 to 256
		}),
		swept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ledger_idempotency_keys_swept_total",
			Help: "Expired idempotency keys that were removed.",
		}),
	}
	m.registry.MustRegister(m.requests, m.durations, m.conflicts, m.groups, m.swept,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Request counts one answered request. code is "" where it was no problem.
func (m *Metrics) Request(method, route string, status int, code string, took time.Duration) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status), code).Inc()
	m.durations.WithLabelValues(method, route).Observe(took.Seconds())
}

// Conflict returns a hook for [retry.Policy.OnConflict] that counts under mode.
func (m *Metrics) Conflict(mode string) func(retry.Conflict) {
	return func(c retry.Conflict) {
		m.conflicts.WithLabelValues(mode, reason(c)).Inc()
	}
}

func reason(c retry.Conflict) string {
	switch {
	case c.SQLState != "":
		return c.SQLState
	case errors.Is(c.Err, retry.ErrConflict):
		return "stale"
	}
	return "lost"
}

// Group counts a group of that size.
func (m *Metrics) Group(size int) { m.groups.Observe(float64(size)) }

// Swept counts idempotency keys that were removed.
func (m *Metrics) Swept(keys int64) { m.swept.Add(float64(keys)) }

// WatchPool shows the state of the connection pool.
func (m *Metrics) WatchPool(db *retry.Pool) {
	m.gauge("ledger_pool_connections_max", "Connections that the pool may open.",
		func() float64 { return float64(db.Stat().MaxConns()) })
	m.gauge("ledger_pool_connections_open", "Connections that the pool has.",
		func() float64 { return float64(db.Stat().TotalConns()) })
	m.gauge("ledger_pool_connections_acquired", "Connections that are at work.",
		func() float64 { return float64(db.Stat().AcquiredConns()) })
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "ledger_pool_acquire_wait_seconds_total",
		Help: "Time that callers waited for a connection.",
	}, func() float64 { return db.Stat().EmptyAcquireWaitTime().Seconds() }))
}

// WatchTransfers shows how many transfers wait, as waiting tells.
func (m *Metrics) WatchTransfers(waiting func() (queued, parked int)) {
	m.gauge("ledger_transfers_queued", "Transfers that wait for their group.",
		func() float64 { queued, _ := waiting(); return float64(queued) })
	m.gauge("ledger_transfers_parked", "Transfers that wait for a row or a key that somebody else keeps locked, while the groups go on without them.",
		func() float64 { _, parked := waiting(); return float64(parked) })
}

// WatchFeed returns a function that is to be told how far the feed of all
// transfers lags behind.
func (m *Metrics) WatchFeed() func(delay time.Duration) {
	delay := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ledger_feed_delay_seconds",
		Help: "Age of the first transfer that the feed of all transfers holds back, for a transaction of the server that began to write before it and is still open; 0 for none.",
	})
	m.registry.MustRegister(delay)
	return func(d time.Duration) { delay.Set(d.Seconds()) }
}

func (m *Metrics) gauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// NewLogger logs JSON lines to w.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

package bench

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
)

// A probe reads what a run costs, at its beginning and at its end.
type probe struct {
	conn       *pgx.Conn // nil: no database to look into
	postmaster int       // 0: on another machine
	serviceURL string    // "": there is no service
}

// A reading is what counters stood at. What cannot be read is zero.
type reading struct {
	service      metrics
	database     time.Duration // CPU
	databaseRSS  int64
	generatorCPU time.Duration
	machineCPU   time.Duration // of all processes
	wal          int64
}

const selectBackendSQL = `SELECT pg_backend_pid()`

func newProbe(ctx context.Context, databaseURL, serviceURL string) (*probe, error) {
	p := &probe{serviceURL: serviceURL}
	if databaseURL == "" {
		return p, nil
	}
	var err error
	if p.conn, err = pgx.Connect(ctx, databaseURL); err != nil {
		return nil, err
	}
	var pid int
	if err := p.conn.QueryRow(ctx, selectBackendSQL).Scan(&pid); err != nil {
		return nil, fmt.Errorf("ask for the backend's process: %w", err)
	}
	// The server may be on another machine, where the number means nothing.
	if proc, err := procfs.NewProc(pid); err == nil {
		if stat, err := proc.Stat(); err == nil && stat.Comm == "postgres" {
			p.postmaster = stat.PPID
		}
	}
	return p, nil
}

func (p *probe) close() {
	if p.conn != nil {
		p.conn.Close(context.Background())
	}
}

const selectWALSQL = `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`

func (p *probe) read(ctx context.Context) (r reading, err error) {
	if p.serviceURL != "" {
		if r.service, err = readMetrics(ctx, p.serviceURL); err != nil {
			return r, err
		}
	}
	if p.conn != nil {
		// An engine that speaks PostgreSQL but has no such log leaves it at zero.
		_ = p.conn.QueryRow(ctx, selectWALSQL).Scan(&r.wal)
	}
	if p.postmaster != 0 {
		r.database, r.databaseRSS = serverUsage(p.postmaster)
		r.machineCPU = machineUsage()
	}
	if self, err := procfs.NewProc(os.Getpid()); err == nil {
		if stat, err := self.Stat(); err == nil {
			r.generatorCPU = seconds(stat.CPUTime())
		}
	}
	return r, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// serverUsage adds up a PostgreSQL server's processes: CPU, children that have
// ended included, and memory, of which they share the largest part.
func serverUsage(postmaster int) (cpu time.Duration, rss int64) {
	const ticks = 100 // a second: what the kernel shows to programs, whatever its own clock is
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, 0
	}
	var shared uint64
	for _, proc := range all {
		stat, err := proc.Stat()
		if err != nil || proc.PID != postmaster && stat.PPID != postmaster {
			continue
		}
		cpu += seconds(stat.CPUTime())
		if proc.PID == postmaster {
			cpu += time.Duration(stat.CUTime+stat.CSTime) * time.Second / ticks
		}
		if status, err := proc.NewStatus(); err == nil {
			rss += int64(status.RssAnon)
			shared = max(shared, status.RssShmem)
		}
	}
	return cpu, rss + int64(shared)
}

// machineUsage is what all processes have used, and what the hypervisor took.
func machineUsage() time.Duration {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	stat, err := fs.Stat()
	if err != nil {
		return 0
	}
	c := stat.CPUTotal
	return seconds(c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal)
}

// metrics is what a service tells of itself.
type metrics struct {
	cpu       time.Duration
	rss       int64
	conflicts map[string]int64
	groups    map[float64]uint64 // counts up to a size, as Prometheus has them
	grouped   float64            // transfers in all groups
}

func readMetrics(ctx context.Context, serviceURL string) (metrics, error) {
	response, err := get(ctx, serviceURL+"/metrics")
	if err != nil {
		return metrics{}, fmt.Errorf("read the metrics: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return metrics{}, fmt.Errorf("read the metrics: %s", response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return metrics{}, fmt.Errorf("read the metrics: %w", err)
	}
	return newMetrics(families), nil
}

func newMetrics(families map[string]*dto.MetricFamily) metrics {
	m := metrics{conflicts: map[string]int64{}, groups: map[float64]uint64{}}
	for _, metric := range families["process_cpu_seconds_total"].GetMetric() {
		m.cpu += seconds(metric.GetCounter().GetValue())
	}
	for _, metric := range families["process_resident_memory_bytes"].GetMetric() {
		m.rss += int64(metric.GetGauge().GetValue())
	}
	for _, metric := range families["ledger_transaction_conflicts_total"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "sqlstate" {
				m.conflicts[label.GetValue()] += int64(metric.GetCounter().GetValue())
			}
		}
	}
	for _, metric := range families["ledger_group_size"].GetMetric() {
		m.grouped += metric.GetHistogram().GetSampleSum()
		for _, bucket := range metric.GetHistogram().GetBucket() {
			m.groups[bucket.GetUpperBound()] += bucket.GetCumulativeCount()
		}
	}
	return m
}

// since fills in what came between two readings.
func (r *Result) since(before, after reading) {
	r.Cost.ServiceCPU = after.service.cpu - before.service.cpu
	r.Cost.DatabaseCPU = after.database - before.database
	r.Cost.GeneratorCPU = after.generatorCPU - before.generatorCPU
	if others := after.machineCPU - before.machineCPU - r.Cost.ServiceCPU - r.Cost.DatabaseCPU - r.Cost.GeneratorCPU; others > 0 {
		r.Cost.OthersCPU = others
	}
	r.Cost.DatabaseRSS = after.databaseRSS
	r.Cost.WAL = after.wal - before.wal
	r.Conflicts = map[string]int64{}
	for state, n := range after.service.conflicts {
		if n -= before.service.conflicts[state]; n > 0 {
			r.Conflicts[state] = n
		}
	}
	r.Groups = groupsSince(before.service, after.service)
}

func groupsSince(before, after metrics) Groups {
	bounds := []float64{}
	for bound := range after.groups {
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	g := Groups{}
	for _, bound := range bounds {
		if n := int64(after.groups[bound] - before.groups[bound]); n > g.Count {
			g.Count = n
			if !math.IsInf(bound, 1) { // JSON has no infinity
				g.Largest = bound
			}
		}
	}
	g.Mean = ratio(after.grouped-before.grouped, float64(g.Count))
	return g
}

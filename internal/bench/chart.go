package bench

import (
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-analyze/charts"
)

// A chart is a picture of some figures.
type chart struct {
	title, unit string
	labels      []string // along the axis
	names       []string // of the series
	values      [][]float64
	render      func([][]float64, ...charts.OptionFunc) (*charts.Painter, error)
}

const (
	chartWidth  = 860
	chartHeight = 420
)

// svg draws the chart. Its fonts are those of the reader's system.
func (c chart) svg() (string, error) {
	painter, err := c.render(c.values,
		charts.SVGOutputOptionFunc(), charts.DimensionsOptionFunc(chartWidth, chartHeight),
		charts.XAxisLabelsOptionFunc(c.labels),
		func(o *charts.ChartOption) {
			o.Title = charts.TitleOption{Text: c.title + ", " + c.unit, Offset: charts.OffsetLeft}
			o.Legend = charts.LegendOption{SeriesNames: c.names, Offset: charts.OffsetStr{Left: charts.PositionLeft, Top: charts.PositionBottom}}
			o.XAxis.LabelCount = len(c.labels)
			o.YAxis = []charts.YAxisOption{{Min: charts.Ptr(0.0)}}
			o.Symbol.Shape = charts.SymbolCircle
			o.ValueFormatter = func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
		})
	if err != nil {
		return "", fmt.Errorf("draw %s: %w", c.title, err)
	}
	text, err := painter.Bytes()
	if err != nil {
		return "", fmt.Errorf("draw %s: %w", c.title, err)
	}
	return string(text), nil
}

// chartsOf returns what can be drawn of a summary: whatever has no figures is
// left out.
func chartsOf(s Summary) []chart {
	var all []chart
	for _, w := range workloads {
		all = append(all, throughput(s, w.Name))
	}
	all = append(all, hotAgainstUniform(s))
	for _, w := range workloads {
		for _, clients := range clientsOf(s, w.Name) {
			all = append(all, latencies(s, w.Name, clients))
		}
	}
	return slices.DeleteFunc(all, func(c chart) bool { return len(c.values) == 0 || len(c.labels) == 0 })
}

// throughput is a line for each mode, by clients. *base* runs with one number
// of them, and is a level line to compare with.
func throughput(s Summary, workload string) chart {
	counts := clientsOf(s, workload)
	c := chart{title: "Throughput by clients: " + workload, unit: "transfers a second", render: charts.LineRender}
	for _, n := range counts {
		c.labels = append(c.labels, strconv.Itoa(n))
	}
	for _, name := range namesOf(s, workload) {
		var line []float64
		for _, n := range counts {
			line = append(line, rate(s, func(r Row) bool { return r.Name() == name && r.Workload == workload && r.Clients == n }))
		}
		c.names, c.values = append(c.names, name), append(c.values, line)
	}
	for _, kind := range []Kind{Base, Pipelined} {
		level := rate(s, func(r Row) bool { return r.Kind == kind && r.Workload == workload && r.Clients == BaseConnections })
		if level != charts.GetNullValue() && len(counts) > 0 {
			c.names = append(c.names, fmt.Sprintf("%s (%d)", kind, BaseConnections))
			c.values = append(c.values, slices.Repeat([]float64{level}, len(counts)))
		}
	}
	return c
}

// hotAgainstUniform is a pair of bars for each mode, at its greatest number of
// clients.
func hotAgainstUniform(s Summary) chart {
	c := chart{title: "Hot against uniform", render: charts.BarRender}
	counts := clientsOf(s, "hot")
	if len(counts) == 0 || len(clientsOf(s, "uniform")) == 0 {
		return c
	}
	most := counts[len(counts)-1]
	c.unit = fmt.Sprintf("transfers a second, %d clients (base: %d)", most, BaseConnections)
	c.names = []string{"uniform", "hot"}
	c.values = [][]float64{nil, nil}
	labels := append([]string{string(Base)}, namesOf(s, "hot")...)
	for _, name := range labels {
		clients := most
		if name == string(Base) {
			clients = BaseConnections
		}
		for i, workload := range c.names {
			c.values[i] = append(c.values[i], rate(s, func(r Row) bool { return r.Name() == name && r.Workload == workload && r.Clients == clients }))
		}
	}
	c.labels = labels
	return c
}

// latencies is a line for each mode, by percentile.
func latencies(s Summary, workload string, clients int) chart {
	c := chart{title: fmt.Sprintf("Latency: %s, %d clients", workload, clients), unit: "milliseconds", render: charts.LineRender}
	for _, r := range s.Rows {
		if r.Kind != Service || r.Workload != workload || r.Clients != clients {
			continue
		}
		names, values := r.Latency.Percentiles()
		var line []float64
		for _, v := range values[:len(values)-1] { // the maximum would flatten all others
			line = append(line, float64(v)/float64(time.Millisecond))
		}
		c.labels = names[:len(line)]
		c.names, c.values = append(c.names, r.Name()), append(c.values, line)
	}
	return c
}

// rate is the rate of the row that matches.
func rate(s Summary, matches func(Row) bool) float64 {
	for _, r := range s.Rows {
		if matches(r) {
			return r.PerSecond.Median
		}
	}
	return charts.GetNullValue()
}

func clientsOf(s Summary, workload string) []int {
	var counts []int
	for _, r := range s.Rows {
		if r.closed() && r.Workload == workload {
			counts = append(counts, r.Clients)
		}
	}
	slices.Sort(counts)
	return slices.Compact(counts)
}

// closed reports whether the row is of a service as fast as it can be.
func (r Row) closed() bool { return r.Kind == Service && r.Rate == 0 }

// namesOf returns the names of what served a workload, in the order of modes.
func namesOf(s Summary, workload string) []string {
	var names []string
	for _, r := range s.Rows {
		if r.closed() && r.Workload == workload && !slices.Contains(names, r.Name()) {
			names = append(names, r.Name())
		}
	}
	return names
}

// fileName is the chart's name among pictures.
func (c chart) fileName() string {
	words := strings.FieldsFunc(strings.ToLower(c.title), func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789", r) })
	return strings.Join(words, "-") + ".svg"
}

// WriteCharts writes each chart as a picture of its own into a directory.
func WriteCharts(dir string, s Summary) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the charts: %w", err)
	}
	for _, c := range chartsOf(s) {
		svg, err := c.svg()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, c.fileName()), []byte(svg), 0o644); err != nil {
			return fmt.Errorf("write the charts: %w", err)
		}
	}
	return nil
}

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>ledger bench compare</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .2em .6em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left; }
figure { margin: 2em 0; } svg { max-width: 100%; height: auto; } .table { overflow-x: auto; }
</style>
<h1>ledger bench compare</h1>
<p>{{.At}}</p>
<ul>{{range .Remarks}}<li>{{.}}</li>{{end}}</ul>
{{range .Charts}}<figure>{{.}}</figure>
{{end}}<div class="table"><table>
<thead><tr>{{range .Head}}<th>{{.}}</th>{{end}}</tr></thead>
<tbody>{{range .Body}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tbody>
</table></div>
</html>
`))

// WriteHTML writes one page that needs nothing but itself: charts and the table.
func WriteHTML(w io.Writer, s Summary) error {
	var drawn []template.HTML
	for _, c := range chartsOf(s) {
		svg, err := c.svg()
		if err != nil {
			return err
		}
		drawn = append(drawn, template.HTML(svg)) // ours: it holds no text of anybody else's
	}
	head, body := tableOf(s.Rows)
	return page.Execute(w, struct {
		At      string
		Remarks []string
		Charts  []template.HTML
		Head    []string
		Body    [][]string
	}{s.At.Format(time.RFC1123), s.remarks(), drawn, head, body})
}

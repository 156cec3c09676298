package racelab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
)

// deadlockDetected is the SQLSTATE of a transaction that PostgreSQL ended to
// break a deadlock.
const deadlockDetected = "40P01"

var (
	conflictLine = regexp.MustCompile(`^ledger_transaction_conflicts_total\{(?:[^}]*,)?sqlstate="([^"]*)"[^}]*\} ([0-9.e+]+)`)
	parkedLine   = regexp.MustCompile(`^ledger_transfers_parked()(?:\{[^}]*\})? ([0-9.e+]+)`)
)

// readConflicts returns how many conflicts a service has counted, by SQLSTATE
// or by the service's own word for those without one.
func readConflicts(ctx context.Context, serviceURL string) (map[string]int, error) {
	return readMetric(ctx, serviceURL, conflictLine)
}

// readParked returns how many transfers wait in a service for locks that
// somebody else keeps. A service without groups has none.
func readParked(ctx context.Context, serviceURL string) (int, error) {
	parked, err := readMetric(ctx, serviceURL, parkedLine)
	return parked[""], err
}

// readMetric adds up the values in a service's lines of a metric, by their
// labels.
func readMetric(ctx context.Context, serviceURL string, line *regexp.Regexp) (map[string]int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, serviceURL+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the metrics: %s", response.Status)
	}
	return parseMetric(response.Body, line)
}

// parseMetric reads Prometheus' text format as far as the lab needs it. line
// matches a label and the value.
func parseMetric(text io.Reader, line *regexp.Regexp) (map[string]int, error) {
	values := map[string]int{}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		match := line.FindStringSubmatch(lines.Text())
		if match == nil {
			continue
		}
		n, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			return nil, fmt.Errorf("read the metrics: %w", err)
		}
		values[match[1]] += int(n)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	return values, nil
}

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

// readConflicts returns how many conflicts a service has counted, by SQLSTATE
// or by the service's own word for those without one.
func readConflicts(ctx context.Context, serviceURL string) (map[string]int, error) {
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
	return parseConflicts(response.Body)
}

var conflictLine = regexp.MustCompile(`^ledger_transaction_conflicts_total\{(?:[^}]*,)?sqlstate="([^"]*)"[^}]*\} ([0-9.e+]+)`)

// parseConflicts reads Prometheus' text format as far as the lab needs it.
func parseConflicts(text io.Reader) (map[string]int, error) {
	conflicts := map[string]int{}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		match := conflictLine.FindStringSubmatch(lines.Text())
		if match == nil {
			continue
		}
		n, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			return nil, fmt.Errorf("read the metrics: %w", err)
		}
		conflicts[match[1]] += int(n)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	return conflicts, nil
}

package bench

import (
	"bufio"
	"context"
	"os"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Machine is where a comparison ran: figures of another one say little.
type Machine struct {
	System     string            `json:"system"`
	Processor  string            `json:"processor,omitempty"`
	Processors int               `json:"processors"`
	Go         string            `json:"go"`
	PostgreSQL string            `json:"postgresql,omitempty"`
	Settings   map[string]string `json:"settings,omitempty"` // of the server, that speed and durability depend on
}

const selectSettingsSQL = `
	SELECT name, current_setting(name)
	  FROM pg_settings
	 WHERE name IN ('server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method',
	                'shared_buffers', 'max_wal_size', 'synchronous_standby_names')
	 ORDER BY name`

// DescribeMachine says where we are, and which server is at databaseURL, if
// there is one.
func DescribeMachine(ctx context.Context, databaseURL string) (Machine, error) {
	m := Machine{
		System: runtime.GOOS + "/" + runtime.GOARCH, Processor: processor(), Processors: runtime.NumCPU(), Go: runtime.Version(),
	}
	if databaseURL == "" {
		return m, nil
	}
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return m, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, selectSettingsSQL)
	if err != nil {
		return m, err
	}
	m.Settings = map[string]string{}
	var name, value string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		if name == "server_version" {
			m.PostgreSQL = value
		} else {
			m.Settings[name] = value
		}
		return nil
	})
	return m, err
}

// processor is the processor's name where the system has it in a file.
func processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

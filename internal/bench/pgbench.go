package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrNoPgBench says that this machine has no pgbench.
var ErrNoPgBench = errors.New("pgbench was not found")

// pgBenchAccountSQL is an account's id: pgbench knows numbers alone.
const pgBenchAccountSQL = `('00000000-0000-7000-8000-' || lpad(to_hex(:%s::int), 12, '0'))::uuid`

// pgBenchScript is base's statements with pgbench's variables for parameters.
func pgBenchScript(w Workload) (string, error) {
	choice := map[string]string{
		"uniform": `\set debit random(0, :last)
\set credit random(0, :last - 1)
\set credit CASE WHEN :credit >= :debit THEN :credit + 1 ELSE :credit END
`,
		"hot": `\set other random(0, :last - 1)
\set other CASE WHEN :other >= :hot THEN :other + 1 ELSE :other END
\set pays random(0, 1)
\set debit CASE WHEN :pays = 1 THEN :hot ELSE :other END
\set credit CASE WHEN :pays = 1 THEN :other ELSE :hot END
`,
	}[w.Name]
	if choice == "" {
		return "", fmt.Errorf("pgbench has no workload %q", w.Name)
	}
	debit, credit := fmt.Sprintf(pgBenchAccountSQL, "debit"), fmt.Sprintf(pgBenchAccountSQL, "credit")
	fill := func(sql string, parameters ...string) string {
		for i := len(parameters); i > 0; i-- {
			sql = strings.ReplaceAll(sql, "$"+strconv.Itoa(i), parameters[i-1])
		}
		return strings.Join(strings.Fields(sql), " ") // pgbench's \gset ends a line
	}
	script := choice + baseBeginSQL + ";\n" +
		fill(baseLockSQL, debit, credit) + ";\n" +
		fill(baseDebitSQL, debit, amount) + " \\gset debit_\n" +
		fill(baseCreditSQL, credit, amount) + " \\gset credit_\n" +
		fill(baseInsertSQL, "gen_random_uuid()", debit, credit, amount,
			":debit_balance", ":credit_balance", ":debit_version", ":credit_version") + ";\n" +
		baseCommitSQL + ";\n"
	return script, nil
}

// runPgBench measures base's statements as pgbench sends them. It has no
// warm-up: the statements are the same for all of its time.
func (b *Bench) runPgBench(ctx context.Context, l *ledger, w Workload, r *Result) (err error) {
	program, err := exec.LookPath("pgbench")
	if err != nil {
		return ErrNoPgBench
	}
	script, err := pgBenchScript(w)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ledger-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "transfer.sql")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return err
	}
	env, err := libpqEnv(l.url)
	if err != nil {
		return err
	}
	seconds := max(1, int(math.Round(b.Duration.Seconds())))
	b.tell(r.Cell, "measure")
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "--no-vacuum", "--protocol=prepared", "--file="+file,
		"--client="+strconv.Itoa(r.Clients), "--jobs="+strconv.Itoa(min(r.Clients, 2)), "--time="+strconv.Itoa(seconds),
		fmt.Sprintf("--define=last=%d", b.Accounts-1), fmt.Sprintf("--define=hot=%d", hotAccount(b.Accounts)))
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &out, &errOut
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("pgbench: %w\n%s", err, errOut.String())
	}
	if r.PerSecond, r.Made, err = parsePgBench(out.String()); err != nil {
		return err
	}
	l.made += r.Made
	return nil
}

var (
	pgBenchRate  = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)
	pgBenchCount = regexp.MustCompile(`(?m)^number of transactions actually processed: (\d+)`)
)

func parsePgBench(out string) (perSecond float64, made int64, err error) {
	rate, count := pgBenchRate.FindStringSubmatch(out), pgBenchCount.FindStringSubmatch(out)
	if rate == nil || count == nil {
		return 0, 0, fmt.Errorf("pgbench: its answer is not understood:\n%s", out)
	}
	perSecond, err = strconv.ParseFloat(rate[1], 64)
	if err != nil {
		return 0, 0, err
	}
	made, err = strconv.ParseInt(count[1], 10, 64)
	return perSecond, made, err
}

// libpqEnv says to a program of PostgreSQL's where the database is, without
// showing a password in the list of processes.
func libpqEnv(url string) ([]string, error) {
	c, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	env := []string{
		"PGHOST=" + c.Host, "PGPORT=" + strconv.Itoa(int(c.Port)), "PGUSER=" + c.User, "PGDATABASE=" + c.Database,
	}
	if path := c.RuntimeParams["search_path"]; path != "" {
		env = append(env, "PGOPTIONS=-c search_path="+path)
	}
	if c.Password != "" {
		env = append(env, "PGPASSWORD="+c.Password)
	}
	if c.TLSConfig != nil {
		env = append(env, "PGSSLMODE=require")
	}
	return env, nil
}

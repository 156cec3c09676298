package locklab

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

// errNoMariaDB says that there is no server to compare with.
var errNoMariaDB = errors.New("mariadbd is not installed (on Debian and Ubuntu: mariadb-server-core)")

// A mariaServer is a private MariaDB server with no data.
type mariaServer struct {
	dir     string
	process *exec.Cmd
	exited  chan struct{}
	log     bytes.Buffer
}

// startMariaDB starts a server on a socket of its own, which ends with stop.
func startMariaDB(ctx context.Context) (started *mariaServer, err error) {
	server, err := exec.LookPath("mariadbd")
	if err != nil {
		server, err = exec.LookPath("/usr/sbin/mariadbd") // not on everybody's PATH
	}
	if err != nil {
		return nil, errNoMariaDB
	}
	dir, err := os.MkdirTemp("", "ledger-maria-") // short: a socket's path may have 107 bytes
	if err != nil {
		return nil, err
	}
	s := &mariaServer{dir: dir, exited: make(chan struct{})}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	// Without grant tables there is nothing to install; whoever may enter the
	// directory is admitted, and that is us. Root must say that it means it.
	s.process = exec.Command(server, "--no-defaults", "--skip-grant-tables", "--skip-networking", "--datadir="+dir,
		"--socket="+s.socket(), "--pid-file="+filepath.Join(dir, "pid"), "--user="+strconv.Itoa(os.Getuid()))
	s.process.Stdout, s.process.Stderr = &s.log, &s.log
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is for us to pass on
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	go func() {
		s.process.Wait()
		close(s.exited)
	}()
	if err := s.await(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *mariaServer) socket() string { return filepath.Join(s.dir, "socket") }

// await returns when the server answers.
func (s *mariaServer) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		c, err := s.dial(ctx, "")
		if err == nil {
			c.close(ctx)
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("mariadbd ended at once: %s", s.log.String())
		case <-ctx.Done():
			return fmt.Errorf("mariadbd does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the server and removes its data.
func (s *mariaServer) stop() error {
	if s.process != nil && s.process.Process != nil {
		s.process.Process.Kill()
		<-s.exited
	}
	return os.RemoveAll(s.dir)
}

// schema makes an empty database of its own. It goes away with the server.
func (s *mariaServer) schema(ctx context.Context, name string) (dial func(context.Context) (conn, error), err error) {
	c, err := s.dial(ctx, "")
	if err != nil {
		return nil, err
	}
	defer c.close(ctx)
	if o := c.exec(ctx, "CREATE DATABASE "+name); o.err != nil || o.state != "" {
		return nil, fmt.Errorf("make a database: %s", o)
	}
	return func(ctx context.Context) (conn, error) { return s.dial(ctx, name) }, nil
}

func (s *mariaServer) dial(ctx context.Context, database string) (conn, error) {
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName, config.MultiStatements = "root", "unix", s.socket(), database, true
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	c := &mariaSession{db: db}
	if c.conn, err = db.Conn(ctx); err == nil {
		err = c.conn.QueryRowContext(ctx, "SELECT connection_id()").Scan(&c.number)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return c, nil
}

// A mariaSession is a connection to MariaDB.
type mariaSession struct {
	db     *sql.DB
	conn   *sql.Conn
	number uint64
}

func (s *mariaSession) exec(ctx context.Context, text string) outcome {
	found, err := s.query(ctx, text)
	var fault *mysql.MySQLError
	switch {
	case errors.As(err, &fault):
		return outcome{state: strconv.Itoa(int(fault.Number))}
	case err != nil:
		return outcome{err: err}
	}
	return outcome{text: found}
}

func (s *mariaSession) query(ctx context.Context, text string) (found string, err error) {
	rows, err := s.conn.QueryContext(ctx, text)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || len(columns) == 0 {
		return "done", errors.Join(err, rows.Err())
	}
	var all []string
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return "", err
		}
		var texts []string
		for _, v := range values {
			texts = append(texts, v.String)
		}
		all = append(all, strings.Join(texts, " "))
	}
	return rowsText(all), rows.Err()
}

func (s *mariaSession) id() uint64 { return s.number }

// waits looks at a table that InnoDB brings up to date only when nobody has
// read it for a tenth of a second.
func (s *mariaSession) waits(ctx context.Context, id uint64) (bool, error) {
	time.Sleep(110 * time.Millisecond)
	return s.counts(ctx, fmt.Sprintf("SELECT count(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = %d AND trx_state = 'LOCK WAIT'", id))
}

func (s *mariaSession) exists(ctx context.Context, id uint64) (bool, error) {
	return s.counts(ctx, fmt.Sprintf("SELECT count(*) FROM information_schema.processlist WHERE id = %d", id))
}

func (s *mariaSession) counts(ctx context.Context, text string) (bool, error) {
	var n int
	err := s.conn.QueryRowContext(ctx, text).Scan(&n)
	return n > 0, err
}

func (s *mariaSession) cancel(ctx context.Context) {
	s.db.ExecContext(ctx, fmt.Sprintf("KILL QUERY %d", s.number)) // on another connection
}

func (s *mariaSession) close(context.Context) {
	s.conn.Close()
	s.db.Close()
}

package racelab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlock/ledger/internal/postgres"
	"github.com/rowlock/ledger/internal/retry"
	"github.com/rowlock/ledger/internal/telemetry"
	"github.com/rowlock/ledger/internal/transfer"
)

// Controls runs what must not go well, and returns a failed result where it
// did: a lab that passes them is not blind. The error is as [Lab.Run]'s.
//
// One control is a service that refuses every transfer and so loses nothing.
// The other has two sessions of the lab lock two rows in opposite orders: the
// counters that must stay at zero in a race must both move.
func (l *Lab) Controls(ctx context.Context) ([]Result, error) {
	var results []Result
	for _, control := range []struct {
		name string
		run  func(context.Context, *Result) error
	}{
		{"control-refusals", l.controlRefusals},
		{"control-deadlock", l.controlDeadlock},
	} {
		result := Result{Scenario: control.name, Mode: "control", Round: 1, Kept: true}
		begun := time.Now()
		if err := control.run(ctx, &result); err != nil {
			return results, fmt.Errorf("%s: %w", control.name, err)
		}
		result.Elapsed = time.Since(begun)
		results = append(results, result)
	}
	return results, nil
}

// controlRefusals races against a service that keeps all money by moving none.
func (l *Lab) controlRefusals(ctx context.Context, result *Result) error {
	blind := *l
	blind.Start = refusing(l.Start)
	raced, err := blind.Race(ctx, Variant{Name: "control", Mode: transfer.Pessimistic.Name}, LostUpdate, 1)
	if err != nil {
		return err
	}
	result.Answers = raced.Answers
	wrong := func(failure string) bool { return strings.HasPrefix(failure, "answers = ") }
	if n := raced.Answers["422 insufficient-funds"]; n != LostUpdate.requests() {
		result.Failures = append(result.Failures, fmt.Sprintf("the control was no control: %s; %s", outcomes(raced.Answers), strings.Join(raced.Failures, "; ")))
	} else if !containsFunc(raced.Failures, wrong) {
		result.Failures = append(result.Failures, "a service that refuses everything was not noticed: this suite is blind")
	}
	return nil
}

func containsFunc(all []string, f func(string) bool) bool {
	for _, s := range all {
		if f(s) {
			return true
		}
	}
	return false
}

// refusing starts services that let a race be prepared and then refuse all.
func refusing(start Starter) Starter {
	return func(ctx context.Context, o StartOptions) (*Service, error) {
		service, err := start(ctx, o)
		if err != nil {
			return nil, err
		}
		target, err := url.Parse(service.URL)
		if err != nil {
			return nil, errors.Join(err, service.Stop())
		}
		proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
		address, closeServer, err := serveLocal(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || strings.HasPrefix(r.Header.Get("Idempotency-Key"), setupPrefix) {
				proxy.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"status":422,"code":"insufficient-funds","retryable":false}`)
		}))
		if err != nil {
			return nil, errors.Join(err, service.Stop())
		}
		return &Service{URL: address, Stop: func() error {
			closeServer()
			return service.Stop()
		}}, nil
	}
}

// serveLocal serves h on a free port.
func serveLocal(h http.Handler) (url string, closeServer func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener)
	return "http://" + listener.Addr().String(), func() { server.Close() }, nil
}

const createControlSQL = `
	CREATE TABLE control_rows AS
	SELECT id
	  FROM generate_series(1, 2) id`

const lockControlSQL = `
	SELECT id
	  FROM control_rows
	 WHERE id = $1
	   FOR UPDATE`

// controlDeadlock makes a deadlock and looks at both of the race's counters,
// by the way that a race looks at them.
func (l *Lab) controlDeadlock(ctx context.Context, result *Result) error {
	return l.withDatabase(ctx, func(databaseURL string) error {
		db, err := postgres.Open(ctx, postgres.Config{URL: databaseURL, PoolSize: 2, ApplicationName: "ledger-racelab"})
		if err != nil {
			return err
		}
		defer db.Close()
		if _, err := db.Exec(ctx, createControlSQL); err != nil {
			return fmt.Errorf("make rows to lock: %w", err)
		}
		before, err := selectDeadlocks(ctx, db)
		if err != nil {
			return err
		}
		metrics := telemetry.NewMetrics()
		name := newName("ledger_race_")
		if err := deadlock(ctx, withParameter(databaseURL, "application_name", name), metrics); err != nil {
			return err
		}
		if err := awaitSessionsEnd(ctx, db, name); err != nil {
			return err
		}
		moved, err := deadlocksMove(ctx, db, before)
		if err != nil {
			return err
		}
		if !moved {
			result.Failures = append(result.Failures, "a deadlock did not move pg_stat_database.deadlocks: this suite is blind")
		}
		metricsURL, closeServer, err := serveLocal(metrics.Handler())
		if err != nil {
			return err
		}
		defer closeServer()
		conflicts, err := readConflicts(ctx, metricsURL)
		if err != nil {
			return err
		}
		if result.Deadlocks = conflicts[deadlockDetected]; result.Deadlocks == 0 {
			result.Failures = append(result.Failures, "a deadlock did not move the service's counter: this suite is blind")
		}
		return nil
	})
}

// meetTimeout bounds the control, which PostgreSQL's deadlock_timeout of a
// second makes slow.
const meetTimeout = 20 * time.Second

// deadlock has two transactions lock two rows in opposite orders, each with
// its first row before either asks for its second. PostgreSQL ends one, which
// then starts again and meets nobody.
func deadlock(ctx context.Context, url string, metrics *telemetry.Metrics) error {
	db, err := postgres.Open(ctx, postgres.Config{URL: url, PoolSize: 2, AcquireTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer db.Close()
	policy := labPolicy
	policy.OnConflict = metrics.Conflict("control")
	ctx, cancel := context.WithTimeout(ctx, meetTimeout)
	defer cancel()
	other := make(chan struct{})
	meet := func() {
		select { // one sends, the other receives
		case other <- struct{}{}:
		case <-other:
		case <-ctx.Done():
		}
	}
	var sessions sync.WaitGroup
	errs := make([]error, 2)
	for i, order := range [][2]int{{1, 2}, {2, 1}} {
		sessions.Go(func() {
			errs[i] = lockInOrder(ctx, db, policy, order, sync.OnceFunc(meet))
		})
	}
	sessions.Wait()
	return errors.Join(errs...)
}

func lockInOrder(ctx context.Context, db retry.Beginner, policy retry.Policy, order [2]int, meet func()) error {
	_, err := retry.Tx(ctx, db, pgx.TxOptions{}, policy, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if _, err := tx.Exec(ctx, lockControlSQL, order[0]); err != nil {
			return struct{}{}, err
		}
		meet()
		_, err := tx.Exec(ctx, lockControlSQL, order[1])
		return struct{}{}, err
	})
	return err
}

// deadlocksMove waits for pg_stat_database to hear of it: before PostgreSQL 15
// the news travels.
func deadlocksMove(ctx context.Context, db *postgres.DB, before int) (bool, error) {
	for range 50 {
		after, err := selectDeadlocks(ctx, db)
		if err != nil || after > before {
			return after > before, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false, nil
}

package locklab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Lab carries out scenarios.
type Lab struct {
	// Schema makes an empty schema and returns the URL of a database whose
	// search path it is, and what removes it.
	Schema func(ctx context.Context) (url string, drop func(context.Context) error, err error)
}

// A Finding is what was seen of a scenario.
type Finding struct {
	Scenario Scenario
	Skipped  string   // why it was not carried out; "" where it was
	Seen     []string // of each step that was reached, what it came to
	Fault    string   // what was not as claimed; "" where all was
}

// Holds reports whether all was as claimed.
func (f Finding) Holds() bool { return f.Fault == "" && f.Skipped == "" }

// patience is how long the lab waits for what must come. Nothing takes as long
// where what is claimed holds.
const patience = 15 * time.Second

// Run carries out scenarios, one after the other, and returns what it found.
// Those of MariaDB are skipped where there is none to be started. The error is
// about the lab itself: no database, or an interrupt.
func (l *Lab) Run(ctx context.Context, scenarios []Scenario) (findings []Finding, err error) {
	var server *mariaServer
	var absent error // why there is none
	defer func() {
		if server != nil {
			err = errors.Join(err, server.stop())
		}
	}()
	for i, c := range scenarios {
		f := Finding{Scenario: c}
		if c.Engine == MariaDB && server == nil && absent == nil {
			if server, absent = startMariaDB(ctx); ctx.Err() != nil {
				return findings, ctx.Err()
			}
		}
		switch {
		case c.Engine != MariaDB:
			err = l.onPostgres(ctx, &f)
		case absent != nil:
			f.Skipped = absent.Error()
		default:
			err = onMariaDB(ctx, server, fmt.Sprintf("lab%d", i), &f)
		}
		if err != nil {
			return findings, fmt.Errorf("%s: %w", c.Name, err)
		}
		findings = append(findings, f)
	}
	return findings, nil
}

// onPostgres carries out a scenario in a schema of its own.
func (l *Lab) onPostgres(ctx context.Context, f *Finding) (err error) {
	url, drop, err := l.Schema(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		err = errors.Join(err, drop(ctx))
	}()
	return f.try(ctx, func(ctx context.Context) (conn, error) { return dialPostgres(ctx, url) })
}

func onMariaDB(ctx context.Context, server *mariaServer, name string, f *Finding) error {
	dial, err := server.schema(ctx, name)
	if err != nil {
		return err
	}
	return f.try(ctx, dial)
}

// try carries out f's scenario, and notes what it sees.
func (f *Finding) try(ctx context.Context, dial func(context.Context) (conn, error)) error {
	t := trial{ctx: ctx, sessions: map[string]*session{}, dial: dial}
	defer t.close()
	observer, err := t.connect()
	if err != nil {
		return err
	}
	t.watch = newWatch(ctx, observer)
	if o := observer.exec(ctx, f.Scenario.Setup); o.err != nil || o.state != "" {
		f.Fault = "the setup failed: " + o.String()
		return nil
	}
	for i, step := range f.Scenario.Steps {
		seen, fault, err := t.step(step)
		if err != nil {
			return err
		}
		f.Seen = append(f.Seen, seen)
		if fault != "" {
			f.Fault = fmt.Sprintf("step %d, %s: %s: %s", i+1, step.Session, step.describe(), fault)
			return nil
		}
	}
	return nil
}

// A trial is a scenario on its way.
type trial struct {
	ctx      context.Context
	dial     func(context.Context) (conn, error)
	conns    []conn
	watch    *watch
	sessions map[string]*session
}

func (t *trial) connect() (conn, error) {
	c, err := t.dial(t.ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	t.conns = append(t.conns, c)
	return c, nil
}

// close cuts all connections, so that nothing of the scenario is locked any more.
func (t *trial) close() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), patience)
	defer cancel()
	for _, s := range t.sessions {
		if s.pending != nil {
			s.cancel(ctx)
		}
	}
	for _, s := range t.sessions {
		if s.pending != nil { // a connection is not to be closed under its statement
			s.end(ctx, patience)
		}
	}
	for _, c := range t.conns {
		c.close(ctx)
	}
}

func (t *trial) session(name string) (*session, error) {
	if s, ok := t.sessions[name]; ok {
		return s, nil
	}
	c, err := t.connect()
	if err != nil {
		return nil, err
	}
	t.sessions[name] = &session{conn: c}
	return t.sessions[name], nil
}

// step carries out s and returns what was seen, and what was wrong with it.
func (t *trial) step(s Step) (seen, fault string, err error) {
	session, err := t.session(s.Session)
	if err != nil {
		return "", "", err
	}
	switch s.Act {
	case Vanish:
		session.close(t.ctx)
		delete(t.sessions, s.Session)
		t.watch.gone(t.ctx, session.id(), patience)
		return "gone", "", t.ctx.Err()
	case Lose:
		t.watch.gone(t.ctx, session.id(), patience)
		if o := session.exec(t.ctx, "SELECT 1"); o.err == nil && !strings.HasPrefix(o.state, "57P") && o.state != "25P03" {
			return o.String(), "its connection is still there: " + o.String(), t.ctx.Err()
		}
		return "ended by the server", "", t.ctx.Err()
	case Block:
		session.start(t.ctx, s.SQL)
		return t.wait(session)
	case Wait:
		session.endsWithin(t.ctx, settling)
		return t.wait(session)
	case Collide:
		return t.collide(session, s)
	case Run:
		session.start(t.ctx, s.SQL)
	}
	o, ok := session.end(t.ctx, patience)
	if !ok {
		return "waits", "did not end", t.ctx.Err()
	}
	return o.String(), s.wrong(o), t.ctx.Err()
}

// settling is how long a statement has that could go on, before it is said to
// wait still.
const settling = 100 * time.Millisecond

// wait sees that the session waits for a lock.
func (t *trial) wait(session *session) (seen, fault string, err error) {
	waits, err := t.watch.sessionWaits(t.ctx, session, patience)
	if err != nil || waits {
		return "waits", "", err
	}
	o, ok := session.end(t.ctx, patience)
	if !ok {
		return "", "neither ended nor was seen to wait", t.ctx.Err()
	}
	return o.String(), "did not wait: " + o.String(), t.ctx.Err()
}

// wrong says how o is not what s must end in, or "".
func (s Step) wrong(o outcome) string {
	switch {
	case o.err != nil, o.state != s.State:
		want := "success"
		if s.State != "" {
			want = "error " + s.State
		}
		return fmt.Sprintf("ended in %s, must end in %s", o, want)
	case s.State == "" && s.Want != "" && o.text != s.Want:
		return fmt.Sprintf("returned %s, must return %s", o.text, s.Want)
	}
	return ""
}

// collide waits for the end of a deadlock: one of both sessions is its victim,
// which lets go of its locks, and the other one goes on.
func (t *trial) collide(a *session, s Step) (seen, fault string, err error) {
	b, err := t.session(s.SQL)
	if err != nil {
		return "", "", err
	}
	first, ok1 := a.end(t.ctx, patience)
	second, ok2 := b.end(t.ctx, patience)
	if !ok1 || !ok2 {
		return "waits", "they did not end", t.ctx.Err()
	}
	if first.state == "" {
		first, second = second, first
	}
	if fault := s.wrong(first); fault != "" {
		return first.String(), fault, nil
	}
	if second.state != "" || second.err != nil {
		return second.String(), "the other session did not go on", nil
	}
	return "error " + s.State + " for one of both, and the other goes on", "", nil
}

// describe is s in a few words.
func (s Step) describe() string {
	switch s.Act {
	case Wait:
		return "must wait still"
	case Resume:
		return "goes on"
	case Collide:
		return "deadlock with " + s.SQL
	case Vanish:
		return "its connection is cut"
	case Lose:
		return "is ended by the server"
	}
	return s.SQL
}

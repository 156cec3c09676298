package racelab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/shopspring/decimal"

	"github.com/rowlock/ledger/internal/transfer"
)

// Crash kills the service under load at random points, as kill -9 does, rounds
// times, and starts it again each time. Keys whose requests were not answered
// are then sent again. In the end every acknowledged transfer must be there,
// every key must have had one effect, and the ledger must be clean. The
// starter's services must have Kill. The error is as [Lab.Run]'s.
func (l *Lab) Crash(ctx context.Context, v Variant, rounds int) (result Result, err error) {
	m, err := transfer.ModeByName(v.Mode)
	if err != nil {
		return Result{}, err
	}
	err = l.withDatabase(ctx, func(url string) error {
		result = Result{Scenario: crash.Name, Mode: v.Name, Round: 1, Answers: map[string]int{}, Resent: map[string]int{}}
		c := &crashes{
			race:   &race{lab: l, variant: v, mode: m, scenario: crash, url: url, result: &result, name: newName("ledger_race_"), client: newClient()},
			rounds: rounds,
			random: rand.New(rand.NewPCG(l.Seed, 9)),
		}
		return c.run(ctx)
	})
	return result, err
}

// crash is what the load contends for. How many requests there are is up to
// the moments of the crashes, so it is no scenario of the table.
var crash = &Scenario{
	Name: "kill-9",
	Doc:  "The service is killed at random points under load: what was acknowledged is there, what was not has one effect.",
	Accounts: []Account{
		{Name: "a", Funds: "100000.00"}, {Name: "b", Funds: "100000.00"}, {Name: "c", Funds: "100000.00"},
	},
	Workers: 8,
}

// crashFlags let a restarted service meet the locks of a killed one's sessions
// for no longer than PostgreSQL takes to notice.
var crashFlags = []string{"--pool-size", "8", "--acquire-timeout", "5s"}

// crashes are one run of [Lab.Crash].
type crashes struct {
	*race
	rounds int
	random *rand.Rand

	mu         sync.Mutex
	unanswered []answer // requests and their keys, without an answer
	sent       int
}

func (c *crashes) run(ctx context.Context) error {
	if err := c.openDB(ctx); err != nil {
		return err
	}
	defer c.db.Close()
	before, err := selectDeadlocks(ctx, c.db)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := c.killAndRestart(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.fail("%v", err)
		return nil
	}
	c.result.Elapsed = time.Since(begun)
	c.requests = nil
	for _, a := range c.answers {
		if c.result.Answers[a.outcome()]++; a.made() {
			c.requests = append(c.requests, a.request)
		}
	}
	return errors.Join(c.checkDeadlocks(ctx, before), c.checkStored(ctx), c.checkLedger(ctx))
}

// killAndRestart is all the rounds, and a last service that ends in order.
func (c *crashes) killAndRestart(ctx context.Context) error {
	for round := 0; ; round++ {
		service, err := c.lab.Start(ctx, StartOptions{
			Mode: c.mode.Name, DatabaseURL: withParameter(c.url, "application_name", c.name), Flags: slices.Concat(crashFlags, c.variant.Flags, c.lab.Flags),
		})
		if err != nil {
			return err
		}
		c.client.urls = []string{service.URL}
		if round == 0 {
			err = c.client.open(ctx, c.scenario.Accounts)
		} else {
			err = c.sendAgain(ctx)
		}
		if err != nil || round == c.rounds {
			return errors.Join(err, service.Stop())
		}
		c.loadUntilKilled(ctx, service, 50*time.Millisecond+time.Duration(c.random.Int64N(int64(time.Second))))
	}
}

// loadUntilKilled sends requests from all workers until the service is killed.
// Each worker ends with the request that gets no answer: all of them are at
// work when the kill comes, also where a group is answered at once.
func (c *crashes) loadUntilKilled(ctx context.Context, service *Service, after time.Duration) {
	var workers sync.WaitGroup
	for range c.scenario.Workers {
		random := rand.New(rand.NewPCG(c.random.Uint64(), 0))
		workers.Go(func() {
			for c.sendOnce(ctx, random) {
			}
		})
	}
	select {
	case <-time.After(after):
	case <-ctx.Done():
	}
	service.Kill()
	workers.Wait()
}

// sendOnce sends a request of its own, and keeps it in mind if the answer was
// not final, or never came. It reports whether there was one.
func (c *crashes) sendOnce(ctx context.Context, random *rand.Rand) (answered bool) {
	names := []string{"a", "b", "c", ""}
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	request := Request{Debit: names[0], Credit: names[1], Amount: decimal.New(1+random.Int64N(500), -2).StringFixed(2)}
	c.mu.Lock()
	c.sent++
	key := fmt.Sprintf("crash-%d", c.sent)
	c.mu.Unlock()

	path, body := c.client.route(request)
	a, wait, err := c.client.post(ctx, c.client.urls[0]+path, key, body)
	a.key, a.request = key, request
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || wait > 0 {
		c.unanswered = append(c.unanswered, a)
	} else {
		c.answers = append(c.answers, a)
	}
	return err == nil
}

// sendAgain settles what the crash left open.
func (c *crashes) sendAgain(ctx context.Context) error {
	if len(c.unanswered) == 0 {
		c.fail("the service was killed while no request was at work")
	}
	for _, open := range c.unanswered {
		a, err := c.client.transfer(ctx, 0, open.request, open.key)
		if err != nil {
			return err
		}
		c.result.Resent[noAnswer]++
		c.answers = append(c.answers, a)
	}
	c.unanswered = nil
	return nil
}

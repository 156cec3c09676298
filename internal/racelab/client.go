package racelab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
)

// A client sends requests to the services of one race, and sends them again
// under the same key until it has a final answer.
type client struct {
	http *http.Client
	urls []string
	ids  map[string]uuid.UUID // accounts by name

	mu     sync.Mutex
	resent map[string]int // by why
}

const (
	finalTimeout = 60 * time.Second      // for a final answer
	maxPause     = 50 * time.Millisecond // however long Retry-After asks for: the lab is in a hurry
	noAnswer     = "no-answer"           // a connection that could not be made, or broke
)

func newClient() *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	return &client{
		http:   &http.Client{Transport: transport, Timeout: finalTimeout},
		ids:    map[string]uuid.UUID{},
		resent: map[string]int{},
	}
}

// An answer is the final one to a request.
type answer struct {
	request  Request
	key      string
	status   int
	code     string // of the problem; "" for a success
	replayed bool
	body     []byte
	transfer transferBody // of a success
}

type transferBody struct {
	ID                 uuid.UUID `json:"id"`
	DebitAccountID     uuid.UUID `json:"debit_account_id"`
	CreditAccountID    uuid.UUID `json:"credit_account_id"`
	Amount             string    `json:"amount"`
	DebitBalanceAfter  string    `json:"debit_balance_after"`
	CreditBalanceAfter string    `json:"credit_balance_after"`
}

func (a answer) made() bool { return a.status == http.StatusCreated }

// outcome is what scenarios count.
func (a answer) outcome() string {
	text := strconv.Itoa(a.status)
	if a.code != "" {
		text += " " + a.code
	}
	// A refusal that is replayed is what its key was answered with.
	if a.replayed && a.made() {
		text += " replayed"
	}
	return text
}

// setupPrefix begins the keys of what prepares a race, so that a stand-in for
// the service can tell it from the race.
const setupPrefix = "setup-"

// open opens and funds the accounts.
func (c *client) open(ctx context.Context, accounts []Account) error {
	for _, account := range accounts {
		body := map[string]string{"currency": "USD", "name": account.Name}
		a, err := c.untilFinal(ctx, c.urls[0]+"/v1/accounts", setupPrefix+"open-"+account.Name, body)
		if err != nil {
			return err
		}
		var opened struct {
			ID uuid.UUID `json:"id"`
		}
		if err := json.Unmarshal(a.body, &opened); err != nil || !a.made() {
			return fmt.Errorf("open account %s: %s: %s", account.Name, a.outcome(), a.body)
		}
		c.ids[account.Name] = opened.ID
		if account.Funds == "" {
			continue
		}
		a, err = c.transfer(ctx, 0, Request{Credit: account.Name, Amount: account.Funds}, setupPrefix+"fund-"+account.Name)
		if err != nil {
			return err
		}
		if !a.made() {
			return fmt.Errorf("fund account %s: %s: %s", account.Name, a.outcome(), a.body)
		}
	}
	return nil
}

func (c *client) accountIDs(names []string) []uuid.UUID {
	var ids []uuid.UUID
	for _, name := range names {
		ids = append(ids, c.ids[name])
	}
	return ids
}

// transfer asks the worker's service for a transfer until it has the final
// answer.
func (c *client) transfer(ctx context.Context, worker int, r Request, key string) (answer, error) {
	path, body := c.route(r)
	a, err := c.untilFinal(ctx, c.urls[worker%len(c.urls)]+path, key, body)
	a.request = r
	return a, err
}

func (c *client) route(r Request) (path string, body map[string]string) {
	body = map[string]string{"amount": r.Amount, "currency": "USD"}
	switch {
	case r.Credit == "":
		body["account_id"] = c.ids[r.Debit].String()
		return "/v1/debits", body
	case r.Debit == "":
		body["account_id"] = c.ids[r.Credit].String()
		return "/v1/credits", body
	}
	body["debit_account_id"], body["credit_account_id"] = c.ids[r.Debit].String(), c.ids[r.Credit].String()
	return "/v1/transfers", body
}

// untilFinal sends a request until the answer is final: one that is not
// retryable.
func (c *client) untilFinal(ctx context.Context, url, key string, body map[string]string) (answer, error) {
	bounded, cancel := context.WithTimeout(ctx, finalTimeout)
	defer cancel()
	for {
		a, wait, err := c.post(bounded, url, key, body)
		if err == nil && wait == 0 {
			return a, nil
		}
		reason := a.code
		if err != nil {
			reason, wait = noAnswer, maxPause
		}
		if bounded.Err() != nil {
			return a, fmt.Errorf("no final answer under key %q within %v: the last was %s: %w", key, finalTimeout, reason, errors.Join(err, bounded.Err()))
		}
		c.count(reason)
		select {
		case <-bounded.Done():
		case <-time.After(wait):
		}
	}
}

func (c *client) count(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resent[reason]++
}

func (c *client) resentCodes() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.resent)
}

// post sends a request once. wait is zero for a final answer, and else how
// long to pause. The error says that there was no answer.
func (c *client) post(ctx context.Context, url, key string, body map[string]string) (a answer, wait time.Duration, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return answer{}, 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return answer{}, 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, 0, err
	}
	defer response.Body.Close()
	a = answer{key: key, status: response.StatusCode, replayed: response.Header.Get("Idempotent-Replayed") == "true"}
	if a.body, err = io.ReadAll(response.Body); err != nil {
		return answer{}, 0, err
	}
	if a.made() {
		if json.Unmarshal(a.body, &a.transfer) != nil {
			a.code = "unreadable"
		}
		return a, 0, nil
	}
	var problem struct {
		Code      string `json:"code"`
		Retryable bool   `json:"retryable"`
	}
	if json.Unmarshal(a.body, &problem) != nil {
		return a, 0, nil // no problem of ours: final, and not what anybody wants
	}
	a.code = problem.Code
	if problem.Retryable {
		wait = pause(response.Header.Get("Retry-After"))
	}
	return a, wait, nil
}

// pause is what Retry-After asks for, within bounds.
func pause(retryAfter string) time.Duration {
	seconds, err := strconv.Atoi(retryAfter)
	if err != nil {
		return maxPause
	}
	return min(maxPause, max(time.Millisecond, time.Duration(seconds)*time.Second))
}

// Package paymenthook asks another system, over HTTP, whether a payment may be
// made. Its one idea: an answer is whole and well formed, or it is none, and
// without one no payment is made and none is given up. Start reading at
// [Hook.Ask]; docs/payment-hook.md is what the other system is promised.
package paymenthook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/rowlock/ledger/internal/payment"
)

// Config says whom to ask, and how.
type Config struct {
	URL     string        // https, or http to this machine
	Secrets []string      // whsec_...; each signs every request, so that one can replace another without a gap
	Timeout time.Duration // for one request and its answer
	Client  *http.Client  // nil: one of its own. It never follows a redirect.
}

// A Hook is another system that decides about payments.
type Hook struct {
	url     string
	signers []*standardwebhooks.Webhook
	timeout time.Duration
	client  http.Client
}

var _ payment.Decide = (*Hook)(nil).Ask

// New makes a hook, without asking it anything. Its errors repeat neither a
// secret nor the URL.
func New(c Config) (*Hook, error) {
	if err := checkURL(c.URL); err != nil {
		return nil, fmt.Errorf("the payment hook's URL %w", err)
	}
	if c.Timeout <= 0 {
		return nil, fmt.Errorf("the payment hook's timeout must be positive, not %v", c.Timeout)
	}
	if len(c.Secrets) == 0 {
		return nil, errors.New("the payment hook needs a secret, or anyone could ask in the ledger's name")
	}
	h := &Hook{url: c.URL, timeout: c.Timeout, client: http.Client{Transport: newTransport()}}
	for i, secret := range c.Secrets {
		signer, err := newSigner(secret)
		if err != nil {
			return nil, fmt.Errorf("secret %d of the payment hook %w", i+1, err)
		}
		h.signers = append(h.signers, signer)
	}
	if c.Client != nil {
		h.client = *c.Client
	}
	// A redirect would send the payment to a place that nobody has configured.
	h.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return h, nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is not a URL") // err repeats it
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("must begin with https:// and a host")
	case u.User != nil:
		return errors.New("must not have a name or a password: requests are signed with the secret")
	case strings.Contains(text, "#"):
		return errors.New("must not have a fragment (#...)")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return errors.New("must be https, since payments are sent to it; http is for this machine alone")
	}
	return nil
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// newTransport makes connections that many workers can use at once. The
// context's deadline bounds all of a request. A proxy is used as the environment
// says: it sees no payment, which is encrypted wherever a proxy may be.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter}, // or a connection that a balancer has dropped is asked again and again
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    100,
		IdleConnTimeout:        30 * time.Second, // sooner than most servers close them
		MaxResponseHeaderBytes: maxAnswer,
		DisableCompression:     true,
	}
}

// pingAfter is after how long a silent connection must prove that it is alive.
const pingAfter = 5 * time.Second

// Ask asks whether p may be made: it is a [payment.Decide]. Any error means that
// there is no answer. It says what came instead, never a secret or the URL; it
// matches the cause of ctx where that has ended.
func (h *Hook) Ask(ctx context.Context, p payment.Payment) (payment.Decision, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.timeout, fmt.Errorf("no answer within %v", h.timeout))
	defer cancel()
	d, err := h.ask(ctx, p)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // and not where it was noticed
	}
	if err != nil {
		return payment.Decision{}, fmt.Errorf("payment hook: %w", err)
	}
	return d, nil
}

func (h *Hook) ask(ctx context.Context, p payment.Payment) (payment.Decision, error) {
	r, err := h.request(ctx, p, time.Now())
	if err != nil {
		return payment.Decision{}, err
	}
	answer, err := h.client.Do(r)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL, whose query may hold a password
		}
		return payment.Decision{}, err
	}
	defer answer.Body.Close()
	return readAnswer(answer)
}

// request is the question about p, signed.
func (h *Hook) request(ctx context.Context, p payment.Payment, now time.Time) (*http.Request, error) {
	body, err := marshalQuestion(p, now)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	id := p.ID.String() + "_" + strconv.Itoa(p.Attempts) // dots delimit what is signed
	signatures := make([]string, len(h.signers))
	for i, signer := range h.signers {
		if signatures[i], err = signer.Sign(id, now, body); err != nil {
			return nil, err
		}
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "rowlock-ledger")
	// Not sent. It says that the question may be asked again, on another connection,
	// where the other side closes an idle one just then (net/http, Transport).
	r.Header["Idempotency-Key"] = nil
	r.Header.Set(standardwebhooks.HeaderWebhookID, id)
	r.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	r.Header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return r, nil
}

package bench

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// amount is what every transfer of a benchmark moves, in USD.
const amount = "0.01"

// An httpCaller asks a service for transfers over one kept-alive connection.
//
// It writes and reads HTTP/1.1 by hand, because the load generator shares its
// processors with what it measures: net/http's client takes two goroutines a
// connection and several times the time, which would be measured as the
// service's. All that changes between two requests has a fixed width, so a
// request is bytes written over in place; of an answer it needs the status, the
// length and a problem's code.
type httpCaller struct {
	dial func() (net.Conn, error)
	conn net.Conn // nil after it broke

	request []byte
	sides   [][]byte // parts of request: who pays and who is paid, in turn
	key     []byte   // a part of request
	ids     []string
	sent    uint64

	answer []byte
}

// answerTimeout is longer than the service takes to give up by itself.
const answerTimeout = 30 * time.Second

// answerSize is more than the service answers a transfer with, alone or in a batch.
const (
	answerSize = 16 << 10
	memberSize = 2 << 10
)

// An httpTarget is where requests go.
type httpTarget struct {
	url   *url.URL
	token string
	ids   []uuid.UUID
	run   string // begins every key, so that no run meets another's; "" sends none
	batch int    // transfers in a request; 0: one, that is no batch
}

// newHTTPCaller makes the caller number n, which connects with its first
// request.
func newHTTPCaller(t httpTarget, n int) *httpCaller {
	c := &httpCaller{dial: func() (net.Conn, error) { return dial(t.url) }, answer: make([]byte, answerSize+t.batch*memberSize)}
	for _, id := range t.ids {
		c.ids = append(c.ids, id.String())
	}
	blank := uuid.Nil.String()
	route, body := "transfers", `{"debit_account_id":"`+blank+`","credit_account_id":"`+blank+`","amount":"`+amount+`","currency":"USD"}`
	if t.batch > 0 {
		route, body = "transfers/batch", `{"atomic":true,"transfers":[`+strings.Repeat(body+",", t.batch-1)+body+"]}"
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, "POST %s/v1/%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n", t.url.Path, route, t.url.Host)
	if t.token != "" {
		fmt.Fprintf(&head, "Authorization: Bearer %s\r\n", t.token)
	}
	keyEnd := 0
	if t.run != "" {
		fmt.Fprintf(&head, "Idempotency-Key: %s-%08x-%0*x", t.run, n, counterDigits, 0)
		keyEnd = head.Len()
		head.WriteString("\r\n")
	}
	fmt.Fprintf(&head, "Content-Length: %d\r\n\r\n", len(body))
	c.request = append(head.Bytes(), body...)
	if keyEnd > 0 {
		c.key = c.request[keyEnd-counterDigits : keyEnd]
	}
	for rest := c.request; ; {
		at := bytes.Index(rest, []byte(blank))
		if at < 0 {
			return c
		}
		c.sides = append(c.sides, rest[at:at+len(blank)])
		rest = rest[at+len(blank):]
	}
}

func dial(u *url.URL) (net.Conn, error) {
	port := u.Port()
	if port == "" {
		port = u.Scheme // a name that the system knows
	}
	address := net.JoinHostPort(u.Hostname(), port)
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	if u.Scheme == "https" {
		return tls.DialWithDialer(dialer, "tcp", address, &tls.Config{NextProtos: []string{"http/1.1"}})
	}
	return dialer.Dial("tcp", address)
}

// counterDigits is the width of the number that tells a caller's keys apart.
const counterDigits = 12

// call asks for transfers, under a new key. code is that of the problem that it
// was answered with, and "" where the money has moved. After an error nobody
// knows.
func (c *httpCaller) call(pairs []pair) (code string, err error) {
	if c.conn == nil {
		if c.conn, err = c.dial(); err != nil {
			return "", err
		}
	}
	for i, p := range pairs {
		copy(c.sides[2*i], c.ids[p.debit])
		copy(c.sides[2*i+1], c.ids[p.credit])
	}
	if err := c.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return "", err
	}
	c.sent++
	writeHex(c.key, c.sent)
	code, last, err := c.exchange()
	if err != nil || last {
		c.close()
	}
	return code, err
}

func (c *httpCaller) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// writeHex fills b with the last digits of n.
func writeHex(b []byte, n uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = "0123456789abcdef"[n&15]
		n >>= 4
	}
}

// exchange sends the request and reads the answer, which is the last one on
// the connection where the service says so.
func (c *httpCaller) exchange() (code string, last bool, err error) {
	if _, err := c.conn.Write(c.request); err != nil {
		return "", false, err
	}
	for n := 0; n < len(c.answer); {
		read, err := c.conn.Read(c.answer[n:])
		if err != nil {
			return "", false, err
		}
		n += read
		a, whole, err := parseAnswer(c.answer[:n])
		if err != nil {
			return "", false, err
		}
		if whole {
			return a.code(), a.last, nil
		}
	}
	return "", false, errors.New("the answer is too long")
}

// A httpAnswer is as much of an answer as a benchmark needs.
type httpAnswer struct {
	status string
	body   []byte
	last   bool
}

var errAnswer = errors.New("the answer is not HTTP/1.1 with a length")

// parseAnswer reads an answer, if it is whole.
func parseAnswer(text []byte) (a httpAnswer, whole bool, err error) {
	head, body, found := bytes.Cut(text, []byte("\r\n\r\n"))
	if !found {
		return a, false, nil
	}
	const statusAt = len("HTTP/1.1 ")
	length, ok := header(head, "\r\nContent-Length: ")
	n, err := strconv.Atoi(length)
	if !ok || err != nil || len(head) < statusAt+3 || len(body) > n {
		return a, false, fmt.Errorf("%w: %.200q", errAnswer, text)
	}
	connection, _ := header(head, "\r\nConnection: ")
	a = httpAnswer{status: string(head[statusAt : statusAt+3]), body: body, last: connection == "close"}
	return a, len(body) == n, nil
}

func header(head []byte, name string) (value string, ok bool) {
	_, rest, ok := bytes.Cut(head, []byte(name))
	text, _, _ := bytes.Cut(rest, []byte("\r\n"))
	return string(text), ok
}

// code is "" for a transfer that was made, the problem's code, or the status
// of an answer that is no problem of ours.
func (a httpAnswer) code() string {
	if a.status == "201" {
		return ""
	}
	_, rest, ok := bytes.Cut(a.body, []byte(`"code":"`))
	code, _, whole := bytes.Cut(rest, []byte(`"`))
	if !ok || !whole {
		return "status-" + a.status
	}
	return string(code)
}

package httpapi

import (
	"bufio"
	"context"
	"mime"
	"net/http"
	"net/url"
	"time"
)

// streamPage is how many items are read at a time, and are in memory.
const streamPage = 500

// streamShare is the share of the requests in flight that may be streams: they
// take long, and must leave room for the others.
const streamShare = 64

// stream answers with a whole list as CSV, in the file of that name. next reads
// one part of it after the other, the last of which has nothing more behind it.
//
// Each part has the time of a request to be read, and as much to be sent; no
// connection to the database is held while it is sent. After the first part, the
// answer has begun and cannot become a problem: what goes wrong then breaks the
// connection off, so that nobody takes half a list for a whole one.
func stream[T any](s *server, w http.ResponseWriter, r *http.Request, file string, next func(context.Context) (part []T, more bool, err error)) error {
	if !s.streams.take() {
		return errOverloaded
	}
	defer s.streams.leave()
	read := func() ([]T, bool, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.RequestTimeout)
		defer cancel()
		return next(ctx)
	}
	part, more, err := read()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", typeCSV+"; charset=utf-8; header=present")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": file}))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	control := http.NewResponseController(w)
	out := bufio.NewWriter(w)
	columns := csvColumnsOf[T]()
	row := columns.appendNames(nil)
	out.Write(row)
	for {
		control.SetWriteDeadline(time.Now().Add(s.RequestTimeout)) // its error: a connection without deadlines, as in tests
		for _, item := range part {
			row = columns.append(row[:0], item)
			out.Write(row) // its error comes back from Flush
		}
		if out.Flush() != nil || control.Flush() != nil {
			callOf(r).status = statusLeft
			panic(http.ErrAbortHandler)
		}
		if !more {
			return nil
		}
		s.goOn(r)
		if part, more, err = read(); err != nil {
			breakOff(r, err)
		}
	}
}

// goOn breaks a stream off that nobody reads any more, or that the service's end
// would have to wait for.
func (s *server) goOn(r *http.Request) {
	select {
	case <-callOf(r).left:
		callOf(r).status = statusLeft
		panic(http.ErrAbortHandler)
	case <-s.Stopping:
		breakOff(r, errNotReady)
	default:
	}
}

// breakOff ends an answer that has begun: its caller misses the end of the body.
// It is logged and counted as the problem that err would have been.
func breakOff(r *http.Request, err error) {
	c, k := callOf(r), kindOf(err)
	c.status, c.code, c.err = k.status, k.code, err
	panic(http.ErrAbortHandler)
}

// whole refuses the parameters of a page.
func (f *form) whole(q url.Values) {
	for _, name := range []string{"limit", "cursor"} {
		if q.Has(name) {
			f.Add(name, "must not be given where text/csv is accepted, which has the whole list")
		}
	}
}

package httpapi

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// Media types that a list is answered in.
const (
	typeJSON = "application/json"
	typeCSV  = "text/csv"
)

// acceptsCSV reports whether the request would rather have a list as CSV than as
// JSON: it likes CSV more, or as much and by name. The answer to HTTP/1.0 is never
// CSV: there, one that breaks off looks like one that is complete.
func acceptsCSV(w http.ResponseWriter, r *http.Request) (bool, error) {
	w.Header().Set("Vary", "Accept")
	ranges := mediaRanges(r.Header.Values("Accept"))
	if len(ranges) == 0 {
		return false, nil
	}
	likesJSON, namesJSON := quality(ranges, typeJSON)
	likesCSV, namesCSV := quality(ranges, typeCSV)
	if !r.ProtoAtLeast(1, 1) {
		likesCSV = 0
	}
	if likesJSON == 0 && likesCSV == 0 {
		return false, errNotAcceptable
	}
	return likesCSV > likesJSON || likesCSV == likesJSON && namesCSV > namesJSON, nil
}

// A mediaRange is a part of an Accept header: "text/csv;q=0.5" or "text/*".
type mediaRange struct {
	name    string
	quality float64
}

// mediaRanges reads Accept headers by RFC 9110, and leaves out what it cannot
// read.
func mediaRanges(accept []string) (ranges []mediaRange) {
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		m := mediaRange{name, 1}
		if q, ok := params["q"]; ok {
			m.quality, err = strconv.ParseFloat(q, 64)
			if err != nil || !(m.quality >= 0 && m.quality <= 1) {
				continue
			}
		}
		ranges = append(ranges, m)
	}
	return ranges
}

// quality is what the ranges say of a type, from 0, not at all, to 1. Those count
// that say the most about it: named is 2 for the type itself, 1 for its kind, and 0
// for any type.
func quality(ranges []mediaRange, name string) (q float64, named int) {
	kind, _, _ := strings.Cut(name, "/")
	for i, pattern := range []string{name, kind + "/*", "*/*"} {
		found := false
		for _, m := range ranges {
			if m.name == pattern {
				q, found = max(q, m.quality), true
			}
		}
		if found {
			return q, 2 - i
		}
	}
	return 0, 0
}

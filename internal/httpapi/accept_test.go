package httpapi

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTheFormOfAListIsWhatItsCallerPrefers(t *testing.T) {
	t.Parallel()
	const json, csv, none = "JSON", "CSV", "not acceptable"
	tests := []struct{ accept, want string }{
		{"", json},
		{",", json},
		{"*/*", json},
		{"application/json", json},
		{"application/*", json},
		{"text/csv", csv},
		{"TEXT/CSV; charset=UTF-8", csv},
		{"text/*", csv},
		{"text/csv, */*", csv},
		{"*/*, text/csv", csv},
		{"application/*, text/csv", csv},
		{"text/csv, application/json", json},
		{"text/*, application/*", json},
		{"text/csv;q=0.9, application/json;q=0.8", csv},
		{"text/csv;q=0.8, application/json;q=0.9", json},
		{"application/json;q=0.5, text/*;q=0.6, text/csv;q=0.4", json},
		{"text/csv;q=0, */*", json},
		{"application/json;q=0, */*;q=0.001", csv},
		{"text/csv;q=0, application/json;q=0.000", none},
		{"*/*;q=0", none},
		{"text/html, application/xhtml+xml", none},
		{"application/problem+json", none},
		{"text/html\nimage/png\ntext/csv", csv}, // three headers
		{"text/csv;q=2, application/json", json},
		{"text/csv;q=NaN, application/json", json},
		{"text/csv;q=, ;;, /, application/json;q=0.1", json},
	}
	for _, tt := range tests {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		if tt.accept != "" {
			r.Header["Accept"] = strings.Split(tt.accept, "\n")
		}
		got := json
		isCSV, err := acceptsCSV(w, r)
		switch {
		case errors.Is(err, errNotAcceptable):
			got = none
		case err != nil:
			t.Errorf("Accept %q: %v", tt.accept, err)
		case isCSV:
			got = csv
		}
		if got != tt.want {
			t.Errorf("Accept %q: %s, want %s", tt.accept, got, tt.want)
		}
		if vary := w.Header().Get("Vary"); vary != "Accept" {
			t.Errorf("Accept %q: Vary %q, want Accept", tt.accept, vary)
		}
	}
}

// Over HTTP/1.0 nobody could tell half a list from a whole one.
func TestHTTP10HasNoCSV(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{"text/csv": false, "text/csv, application/json;q=0.1": true} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0
		r.Header = http.Header{"Accept": {accept}}
		if isCSV, err := acceptsCSV(httptest.NewRecorder(), r); isCSV || (err == nil) != want {
			t.Errorf("Accept %q: CSV %t, %v; want JSON %t", accept, isCSV, err, want)
		}
	}
}

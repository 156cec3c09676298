package fault_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// mistakes are what a client does wrong by itself: one thing in a request that is
// right otherwise.
var mistakes = []func(*generator, *request){
	func(g *generator, r *request) { g.member(r, func(o map[string]any, name string) { delete(o, name) }) },
	func(g *generator, r *request) { g.member(r, func(o map[string]any, _ string) { o["unknown"] = 1 }) },
	func(g *generator, r *request) {
		g.member(r, func(o map[string]any, name string) { o[strings.ToUpper(name)] = o[name]; delete(o, name) })
	},
	func(g *generator, r *request) {
		g.member(r, func(o map[string]any, name string) {
			o[name] = pick(g, []any{nil, 1, -1, 0.5, 1e21, true, "", []any{}, []any{nil}, map[string]any{}, "x", 2147483648, 100})
		})
	},
	oddText, oddText, oddText,
	func(g *generator, r *request) { r.query = append(r.query, "unknown=1") },
	func(g *generator, r *request) {
		if len(r.query) > 0 {
			r.query = append(r.query, pick(g, r.query))
		}
	},
	oddQuery, oddQuery,
	func(g *generator, r *request) {
		r.header.Add("Idempotency-Key", g.key())
		r.header.Add("Idempotency-Key", g.key())
	},
	func(g *generator, r *request) {
		r.header.Set("Idempotency-Key", pick(g, []string{"", strings.Repeat("k", 256), strings.Repeat("k", 255), "\u00fc", "\xff"}))
	},
	func(g *generator, r *request) {
		r.header.Set("Content-Type", pick(g, []string{"text/plain", "application/json; charset=utf-8", "application/json; charset=latin1", "application/merge-patch+json", ""}))
	},
	func(g *generator, r *request) {
		r.method = pick(g, []string{http.MethodPut, http.MethodDelete, http.MethodHead, http.MethodOptions, http.MethodGet, http.MethodPost, http.MethodPatch, "LINK"})
	},
	func(g *generator, r *request) {
		r.path = pick(g, []string{r.path + "/", strings.ToUpper(r.path), strings.Replace(r.path, "/v1", "/v2", 1), "/" + r.path, r.path + "/x"})
	},
	func(_ *generator, r *request) { r.body, r.raw = nil, nil },
	func(_ *generator, r *request) { r.raw = []byte("{}") },
}

// odd are texts at the edge of what a member may be, by what its name ends in.
var odd = map[string][]string{
	"amount": {
		"00.1", "01", "1.", ".5", "-0", "-0.00", "+1", "-1", "1e3", "1,00", " 1", "1 ", "0x10", "NaN", "Infinity", "0", "0.001", "1000000000000000000",
		"0.0000000000000000001", "999999999999999999", "999999999999999999.99", "٣", "1.00000000000000000000",
	},
	"id": {
		"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "ffffffff-ffff-8fff-bfff-455552000000",
		"{0199d5f0-4b7c-7c1e-9d8a-1f2e3d4c5b6a}", "0199D5F0-4B7C-7C1E-9D8A-1F2E3D4C5B6A", "0199d5f04b7c7c1e9d8a1f2e3d4c5b6a",
	},
	"currency": {"eur", "EURO", "XXX", "XAU", "EU", "EUR ", "\u20ac"},
	"version":  {"9223372036854775808", "9223372036854775807", "-1", "007", "+1", "1.0"},
	"at": {
		"2026-02-30T00:00:00Z", "2026-05-01", "2026-05-01T09:30:60Z", "10000-01-01T00:00:00Z", "0000-01-01T00:00:00+23:59", "2026-05-01t09:30:00z",
		"9999-12-31T23:59:59-23:59", "1999-12-31T23:59:59Z", "2026-05-01T24:00:00Z", "2026-05-01T09:30:00+00:60", "2026-05-01T09:30:00,5Z",
	},
	"": {
		"", " ", "null", "true", strings.Repeat("n", 200), strings.Repeat("n", 201), strings.Repeat("💶", 500), strings.Repeat("💶", 501),
		"a\x00b", "\u202e", "\ufeff", "'; DROP TABLE accounts; --", "%s%n", "${jndi:ldap://x}", "<script>", "../../etc/passwd", "\\", "\u2028",
	},
}

// ends are what the names of members end in that have odd texts of their own.
var ends = map[string]string{
	"amount": "amount", "balance": "amount", "_min": "amount", "_max": "amount", "id": "id", "currency": "currency", "version": "version",
	"at": "at", "from": "at", "to": "at",
}

// oddFor is an odd text for a member of that name or, seldom, of another one.
func (g *generator) oddFor(name string) string {
	for _, end := range slices.Sorted(maps.Keys(ends)) {
		if strings.HasSuffix(name, end) && !g.one(4) {
			return pick(g, odd[ends[end]])
		}
	}
	return pick(g, odd[pick(g, slices.Sorted(maps.Keys(odd)))])
}

func oddText(g *generator, r *request) {
	g.member(r, func(o map[string]any, name string) { o[name] = g.oddFor(name) })
}

func oddQuery(g *generator, r *request) {
	names := []string{"limit", "cursor", "order", "dry_run", "metadata[order]", "metadata[]", "metadata"}
	for _, p := range r.params {
		names = append(names, p.Value.Name)
	}
	name := pick(g, names)
	value := g.oddFor(name)
	if g.one(3) {
		value = pick(g, []string{"0", "101", "050", "100", "desc", "asc", "TRUE", "AAAA"})
	}
	r.query = append(r.query, escape(name)+"="+escape(value))
}

// escape escapes all that is not a letter or digit, so that every byte arrives.
func escape(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// member lets do change some member of the body, of one of its parts where it has
// some.
func (g *generator) member(r *request, do func(o map[string]any, name string)) {
	o, ok := r.body.(map[string]any)
	for ok && len(o) > 0 {
		name := pick(g, slices.Sorted(maps.Keys(o)))
		inner := o[name]
		if list, isList := inner.([]any); isList && len(list) > 0 {
			inner = pick(g, list)
		}
		part, isObject := inner.(map[string]any)
		if !isObject || len(part) == 0 || g.one(4) {
			do(o, name)
			return
		}
		o = part
	}
}

// attacks are what no client does by mistake.
var attacks = []func(*generator, *request){
	oddText, oddQuery,
	damage(func(g *generator, body []byte) []byte { return body[:g.IntN(len(body)+1)] }),
	damage(func(g *generator, body []byte) []byte {
		if len(body) > 0 {
			body[g.IntN(len(body))] = byte(g.Uint32())
		}
		return body
	}),
	damage(func(g *generator, body []byte) []byte {
		return append(body, pick(g, []string{"{}", "\x00", "]", " x", "\n\n"})...)
	}),
	damage(func(_ *generator, body []byte) []byte { return append([]byte("\ufeff"), body...) }),
	damage(func(g *generator, body []byte) []byte {
		return bytes.Replace(body, []byte(`"`), []byte(pick(g, []string{`"\ud800`, "\"\xc3", `"\u0000`, `"\x`, `"" "`, "\"\x01"})), 1+g.IntN(3))
	}),
	damage(func(_ *generator, body []byte) []byte { // the same members twice
		inner := bytes.TrimSuffix(bytes.TrimPrefix(body, []byte("{")), []byte("}"))
		return slices.Concat([]byte("{"), inner, []byte(","), inner, []byte("}"))
	}),
	damage(func(g *generator, _ []byte) []byte {
		return []byte(strings.Repeat(pick(g, []string{`{"metadata":`, `[`, `{"transfers":[`, `{"a":{"b":[`}), 5000))
	}),
	damage(func(g *generator, _ []byte) []byte {
		return fmt.Appendf(nil, `{%q:%s}`, pick(g, []string{"priority", "amount", "max_attempts", "atomic"}), pick(g, []string{"1e999999", strings.Repeat("9", 10_000), "-", "0x1", "NaN"}))
	}),
	damage(func(g *generator, _ []byte) []byte { return bytes.Repeat([]byte("a"), 1<<(10+g.IntN(12))) }),
	func(g *generator, r *request) {
		r.query = append(r.query, pick(g, []string{"%zz", "a=%", "=", "&&", "%00=1", "limit=%ff", "a;b=1", "limit[]=1", strings.Repeat("x", 8000), "cursor=" + escape(strings.Repeat("A", 3000))}))
	},
	func(g *generator, r *request) {
		for i := range 12 {
			r.query = append(r.query, fmt.Sprintf("metadata%%5Bm%d%%5D=%s", i, escape(g.oddFor(""))))
		}
	},
	func(g *generator, r *request) {
		if i := strings.LastIndex(r.path, "/"); i > 0 {
			r.path = r.path[:i+1] + pick(g, []string{"%00", "..%2f..%2fmetrics", "%2e%2e", "%F0%9F%92%B6", strings.Repeat("a", 4000), "%FF", "1%20OR%201=1", "%2F", "."})
		}
	},
	func(g *generator, r *request) {
		r.header.Set("Accept", pick(g, []string{"text/csv", "text/csv", "application/xml", "*/*;q=nan", "text/csv;q=1e9, */*;q=0", ";;;", strings.Repeat("a/b,", 1000), "application/json;q=0"}))
	},
	func(g *generator, r *request) {
		name := pick(g, []string{"X-Request-Id", "Authorization", "Content-Encoding", "Origin", "Sec-Fetch-Site", "Range", "Idempotency-Key", "X-HTTP-Method-Override", "Forwarded"})
		r.header.Set(name, pick(g, []string{"", "x y", "gzip", "https://evil.example", "cross-site", "bytes=0-1", "DELETE", "Bearer x", strings.Repeat("v", 3000), "\xff\xfe", "a\tb"}))
	},
}

// damage is an attack on the body's bytes.
func damage(do func(g *generator, body []byte) []byte) func(*generator, *request) {
	return func(g *generator, r *request) {
		r.raw = do(g, slices.Clone(r.bytes()))
		if r.header.Get("Content-Type") == "" {
			r.header.Set("Content-Type", "application/json")
		}
	}
}

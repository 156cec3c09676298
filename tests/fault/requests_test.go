package fault_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"
)

// A generator makes requests of what the contract says: valid ones, those that
// are wrong in one place, and hostile ones. The same seed and the same answers
// make the same requests.
type generator struct {
	*rand.Rand
	calls []call
	known map[string][]string // ids of what was made, by the collection in the path
	keys  []string            // that were used
	next  map[string][]string // targets of further pages, by operation
}

// A call is one operation of the contract.
type call struct {
	*openapi3.Operation
	method, path string
	params       openapi3.Parameters
}

func newGenerator(seed uint64, doc *openapi3.T) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), known: map[string][]string{}, next: map[string][]string{}}
	paths := doc.Paths.Map()
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		operations := paths[path].Operations()
		for _, method := range slices.Sorted(maps.Keys(operations)) {
			o := operations[method]
			for range weight(method, o) {
				g.calls = append(g.calls, call{o, method, path, slices.Concat(paths[path].Parameters, o.Parameters)})
			}
		}
	}
	return g
}

// weight is how often a call is made. What moves money is most of it, and what
// stops an account is seldom.
func weight(method string, o *openapi3.Operation) int {
	switch {
	case made[o.OperationID] != "":
		return 8
	case slices.Contains([]string{"closeAccount", "freezeAccount", "setAccountLimits", "cancelPayment"}, o.OperationID):
		return 2
	case o.OperationID == "approvePayment": // few need it
		return 8
	case method == http.MethodGet:
		return 2
	}
	return 3
}

// A request is what is sent, in parts that can be damaged.
type request struct {
	call
	method, path string // of the contract's; a damaged one has its own
	query        []string
	header       http.Header
	body         any    // nil: none
	raw          []byte // in place of the body, where not nil
}

func (r *request) target() string {
	if len(r.query) == 0 {
		return r.path
	}
	return r.path + "?" + strings.Join(r.query, "&")
}

// bytes are the body as it is sent.
func (r *request) bytes() []byte {
	if r.raw != nil || r.body == nil {
		return r.raw
	}
	data, err := json.Marshal(r.body)
	if err != nil {
		panic(err)
	}
	return data
}

// one reports true in one of n times.
func (g *generator) one(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *generator, all []T) T { return all[g.IntN(len(all))] }

// request makes the next one: half of them are valid as far as the contract says.
func (g *generator) request() *request {
	r := g.valid()
	switch g.IntN(4) {
	case 0:
		pick(g, mistakes)(g, r)
	case 1:
		for range 1 + g.IntN(3) {
			pick(g, attacks)(g, r)
		}
	}
	return r
}

// valid makes a request as the contract has it.
func (g *generator) valid() *request {
	c := pick(g, g.calls)
	r := &request{call: c, method: c.method, path: c.path, header: http.Header{}}
	r.path = strings.Replace(c.path, "{id}", g.id(c.path), 1)
	if next := g.next[c.OperationID]; len(next) > 0 && g.one(3) {
		r.path = pick(g, next)
		return r
	}
	for _, p := range c.params {
		switch {
		case p.Value.In == "query" && (p.Value.Required || g.one(5)):
			g.addQuery(r, p.Value)
		case p.Value.Name == "Idempotency-Key" && !g.one(4):
			r.header.Set(p.Value.Name, g.key())
		}
	}
	if c.RequestBody != nil {
		content := c.RequestBody.Value.Content["application/json"]
		r.body = g.value("", content.Schema.Value)
		r.header.Set("Content-Type", "application/json")
		if len(content.Examples) > 0 && g.one(10) {
			r.body = clone(content.Examples[pick(g, slices.Sorted(maps.Keys(content.Examples)))].Value.Value)
		}
	}
	return r
}

func clone(v any) any {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var copied any
	json.Unmarshal(data, &copied)
	return copied
}

func (g *generator) addQuery(r *request, p *openapi3.Parameter) {
	if p.Name == "cursor" {
		return // there are whole targets for that
	}
	value := g.value(p.Name, p.Schema.Value)
	members, ok := value.(map[string]any)
	if !ok {
		r.query = append(r.query, p.Name+"="+url.QueryEscape(fmt.Sprint(value)))
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		r.query = append(r.query, url.QueryEscape(p.Name+"["+name+"]")+"="+url.QueryEscape(fmt.Sprint(members[name])))
	}
}

// key is one that is new, mostly.
func (g *generator) key() string {
	if len(g.keys) > 0 && g.one(6) {
		return pick(g, g.keys)
	}
	g.keys = append(g.keys, g.uuid())
	return g.keys[len(g.keys)-1]
}

func (g *generator) uuid() string {
	var id uuid.UUID
	for i := range id {
		id[i] = byte(g.Uint32())
	}
	id[0], id[6], id[8] = id[0]&0x7f, id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id.String()
}

// id is that of something which the path or the member names.
func (g *generator) id(name string) string {
	for _, kind := range []string{"account", "transfer", "hold", "payment", "batch"} {
		if all := g.known[kind]; strings.Contains(name, kind) && len(all) > 0 && !g.one(12) {
			return all[max(0, len(all)-1-g.IntN(8))] // the latest ones, so that calls meet
		}
	}
	return g.uuid()
}

// usual are what makes a ledger of requests: one currency, and amounts that can be
// paid.
var usual = map[string][]string{"currency": {"EUR"}, "amount": {"0.01", "1.00", "2.50", "7", "12.34"}}

// texts are what other strings are made of; a schema takes those that it admits.
var texts = []string{
	"EUR", "USD", "JPY", "XTS", "1", "2.50", "10.00", "0.01", "7", "30.00", "999999999999999999.99", "0.001", "0", "0.00", "-5.00",
	"-1000000", "42", "9223372036854775807", "rent", "Ärger 💶", "", "=1+1", "line\nline", "a,b;\"c\"",
}

var times = []string{"2099-05-01T09:30:00Z", "2001-01-01T00:00:00.123456789+05:30", "9999-12-31T23:59:59Z", "0001-01-01T00:00:01Z", "2026-05-01T09:30:00.5-23:59"}

// value makes one that the schema admits.
func (g *generator) value(name string, s *openapi3.Schema) any {
	switch {
	case len(s.Enum) > 0:
		return pick(g, s.Enum)
	case s.Type.Includes("null") && g.one(3):
		return nil
	case s.Type.Includes("object"):
		return g.object(name, s)
	case s.Type.Includes("array"):
		list := make([]any, int(s.MinItems)+g.IntN(4))
		for i := range list {
			list[i] = g.value(name, s.Items.Value)
		}
		return list
	case s.Type.Includes("boolean"):
		return g.one(2)
	case s.Type.Includes("integer"):
		return int(*s.Min) + g.IntN(int(*s.Max-*s.Min)+1)
	case s.Format == "uuid":
		return g.id(name)
	case s.Format == "date-time":
		return pick(g, times)
	}
	if some := usual[name]; some != nil && !g.one(10) {
		return pick(g, some)
	}
	for {
		text := pick(g, texts)
		if s.VisitJSON(text) == nil {
			return text
		}
	}
}

func (g *generator) object(name string, s *openapi3.Schema) any {
	o := map[string]any{}
	if len(s.Properties) == 0 { // labels
		for range g.IntN(3) {
			o[pick(g, []string{"order", "branch", "Ä", "a.b", "x]y"})] = g.value(name, s.AdditionalProperties.Schema.Value)
		}
		return o
	}
	for _, member := range slices.Sorted(maps.Keys(s.Properties)) {
		if slices.Contains(s.Required, member) || g.one(4) || len(s.Properties) <= 3 && g.one(2) {
			o[member] = g.value(member, s.Properties[member].Value)
		}
	}
	return o
}

// learn keeps what an answer names, for further requests.
func (g *generator) learn(r *request, status int, body []byte) {
	var answer struct {
		ID         string
		NextCursor string `json:"next_cursor"`
	}
	if status >= 300 || json.Unmarshal(body, &answer) != nil {
		return
	}
	if answer.NextCursor != "" && r.method == r.call.method && !strings.Contains(r.target(), "cursor=") {
		separator := "?"
		if len(r.query) > 0 {
			separator = "&"
		}
		g.next[r.OperationID] = append(g.next[r.OperationID], r.target()+separator+"cursor="+answer.NextCursor)
	}
	if kind := made[r.OperationID]; kind != "" && answer.ID != "" && r.method == r.call.method && !r.rehearses() {
		g.known[kind] = append(g.known[kind], answer.ID)
	}
}

// made are the kinds of what calls make.
var made = map[string]string{
	"openAccount": "account", "createTransfer": "transfer", "createDebit": "transfer", "createCredit": "transfer", "captureHold": "transfer",
	"reverseTransfer": "transfer", "createHold": "hold", "createPayment": "payment", "createBatch": "batch",
}

// rehearses reports whether r is a dry run.
func (r *request) rehearses() bool { return slices.Contains(r.query, "dry_run=true") }

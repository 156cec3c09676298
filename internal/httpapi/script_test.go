package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/testdb"
)

// TestScripts runs testdata/*.txt, each on a ledger of its own, over HTTP. A
// script is lines of:
//
//	# comment
//	tokens NAME…              the server knows these callers; must come first
//	as NAME                   who sends what follows
//	with HEADER: VALUE        a header of the next request; repeatable
//	times N                   send the next request so often
//	until PATH N              send it until a list has N items, which may take a moment
//	METHOD PATH [BODY]        send a request; go:"…" is a body as a Go string
//	status == N               what the last answer must be
//	problem N CODE [FIELD…]   … with these fields at fault, and no others
//	header NAME == VALUE      … or: matches REGEXP, absent
//	json PATH == VALUE        … VALUE is JSON; or: matches REGEXP, len N, absent
//	capture NAME PATH         $NAME stands for that string from here on
//	save NAME, same NAME      … the status, body and Location of the saved answer
//	sql STATEMENT             change the database behind the ledger's back
//
// Every answer is held against the contract.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d scripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &script{T: t, db: testdb.New(t), vars: map[string]string{}, saved: map[string]answer{}}
			for i, line := range strings.Split(string(text), "\n") {
				s.at = fmt.Sprintf("%s:%d", file, i+1)
				s.run(strings.TrimSpace(line))
			}
		})
	}
}

type script struct {
	*testing.T
	at      string // file:line
	db      *testdb.DB
	url     string // of the server, once it is started
	tokens  map[string]string
	token   string // of who sends
	headers http.Header
	times   int
	until   string // PATH N
	vars    map[string]string
	last    answer
	saved   map[string]answer
}

type answer struct {
	status int
	header http.Header
	body   []byte
	json   any
}

var directives = map[string]func(s *script, args string){
	"tokens": (*script).setTokens,
	"as":     func(s *script, name string) { s.token = s.tokens[name] },
	"with": func(s *script, line string) {
		name, value, _ := strings.Cut(line, ":")
		if s.headers == nil {
			s.headers = http.Header{}
		}
		s.headers.Add(name, strings.TrimSpace(value))
	},
	"times":   func(s *script, n string) { s.times = s.number(n) },
	"until":   func(s *script, args string) { s.until = args },
	"status":  func(s *script, want string) { s.compare("status", s.last.status, want) },
	"problem": (*script).problem,
	"header": func(s *script, args string) {
		name, want, _ := strings.Cut(args, " ")
		if got, ok := s.last.header[http.CanonicalHeaderKey(name)]; ok {
			s.compare(name, strings.Join(got, "|"), want)
		} else if want != "absent" {
			s.Errorf("%s: header %s is absent, want %s", s.at, name, want)
		}
	},
	"json": func(s *script, args string) {
		path, want, _ := strings.Cut(args, " ")
		if got, ok := lookup(s.last.json, path); ok {
			s.compare(path, got, want)
		} else if want != "absent" {
			s.Errorf("%s: %s is absent, want %s; body %s", s.at, path, want, s.last.body)
		}
	},
	"capture": func(s *script, args string) {
		name, path, _ := strings.Cut(args, " ")
		value, _ := lookup(s.last.json, path)
		text, ok := value.(string)
		if !ok {
			s.Fatalf("%s: %s is no string in %s", s.at, path, s.last.body)
		}
		s.vars[name] = text
	},
	"save": func(s *script, name string) { s.saved[name] = s.last },
	"same": func(s *script, name string) {
		want, got := s.saved[name], s.last
		if got.status != want.status || !bytes.Equal(got.body, want.body) || got.header.Get("Location") != want.header.Get("Location") {
			s.Errorf("%s: got %d %s\n%s\nwant %d %s\n%s", s.at, got.status, got.header.Get("Location"), got.body,
				want.status, want.header.Get("Location"), want.body)
		}
	},
	"sql": func(s *script, statement string) {
		if _, err := s.db.Exec(context.Background(), statement); err != nil {
			s.Fatalf("%s: %v", s.at, err)
		}
	},
}

func (s *script) run(line string) {
	if line == "" || line[0] == '#' {
		return
	}
	line = regexp.MustCompile(`\$\w+`).ReplaceAllStringFunc(line, func(name string) string {
		if value, ok := s.vars[name[1:]]; ok {
			return value
		}
		return name
	})
	word, args, _ := strings.Cut(line, " ")
	if directive, ok := directives[word]; ok {
		directive(s, strings.TrimSpace(args))
	} else if word == strings.ToUpper(word) {
		s.send(word, args)
	} else {
		s.Fatalf("%s: unknown directive %q", s.at, word)
	}
}

func (s *script) setTokens(names string) {
	path, tokens := tokenFile(s, strings.Fields(names)...)
	known, err := LoadTokens(path)
	if err != nil {
		s.Fatal(err)
	}
	config := configOn(s.db)
	config.Tokens = known
	s.url, s.tokens = serve(s, config), tokens
}

func (s *script) send(method, args string) {
	if s.url == "" {
		s.url = serve(s, configOn(s.db))
	}
	path, body, _ := strings.Cut(args, " ")
	if quoted, ok := strings.CutPrefix(body, "go:"); ok {
		unquoted, err := strconv.Unquote(quoted)
		if err != nil {
			s.Fatalf("%s: %s: %v", s.at, quoted, err)
		}
		body = unquoted
	}
	for sent, begun := 0, time.Now(); sent < max(s.times, 1) || s.awaits() && time.Since(begun) < 5*time.Second; sent++ {
		r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
		if err != nil {
			s.Fatalf("%s: %v", s.at, err)
		}
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		for name, values := range s.headers {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
		if s.token != "" {
			r.Header.Set("Authorization", "Bearer "+s.token)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			s.Fatalf("%s: %v", s.at, err)
		}
		s.last = answer{status: response.StatusCode, header: response.Header}
		s.last.body, err = io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			s.Fatalf("%s: %v", s.at, err)
		}
		json.Unmarshal(s.last.body, &s.last.json) // its error: not everything is JSON
		checkContract(s, s.at, r, s.last)
	}
	s.headers, s.times, s.until = nil, 0, ""
}

// awaits reports whether the last answer is not yet what until waits for.
func (s *script) awaits() bool {
	path, n, ok := strings.Cut(s.until, " ")
	if !ok {
		return false
	}
	value, _ := lookup(s.last.json, path)
	list, _ := value.([]any)
	return len(list) != s.number(n)
}

func (s *script) problem(args string) {
	words := strings.Fields(args)
	if len(words) < 2 {
		s.Fatalf("%s: problem needs a status and a code", s.at)
	}
	s.compare("status", s.last.status, "== "+words[0])
	code, _ := lookup(s.last.json, ".code")
	s.compare("code", code, fmt.Sprintf("== %q", words[1]))
	s.compare("Content-Type", s.last.header.Get("Content-Type"), "== application/problem+json")
	var fields []string
	errors, _ := lookup(s.last.json, ".errors")
	list, _ := errors.([]any)
	for _, e := range list {
		fields = append(fields, fmt.Sprint(e.(map[string]any)["field"]))
	}
	s.compare("fields", strings.Join(fields, " "), "== "+strings.Join(words[2:], " "))
}

// compare holds got against "== VALUE", "matches REGEXP", "len N" or "absent".
func (s *script) compare(what string, got any, want string) {
	s.Helper()
	verb, arg, _ := strings.Cut(want, " ")
	text := fmt.Sprint(got)
	ok := false
	switch verb {
	case "==":
		encoded, _ := json.Marshal(got)
		ok = text == arg || string(encoded) == arg
	case "matches":
		ok = regexp.MustCompile(arg).MatchString(text)
	case "len":
		list, _ := got.([]any)
		ok = len(list) == s.number(arg)
	case "absent":
	default:
		s.Fatalf("%s: unknown comparison %q", s.at, verb)
	}
	if !ok {
		s.Errorf("%s: %s: got %v, want %s; answer %d %s", s.at, what, got, want, s.last.status, s.last.body)
	}
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.Fatalf("%s: %v", s.at, err)
	}
	return n
}

// lookup finds a path like .items[0].id in a JSON value.
func lookup(value any, path string) (any, bool) {
	for _, step := range regexp.MustCompile(`\.[\w-]+|\[\d+\]`).FindAllString(path, -1) {
		switch v := value.(type) {
		case map[string]any:
			member, ok := v[strings.TrimPrefix(step, ".")]
			if !ok {
				return nil, false
			}
			value = member
		case []any:
			i, err := strconv.Atoi(strings.Trim(step, "[]"))
			if err != nil || i >= len(v) {
				return nil, false
			}
			value = v[i]
		default:
			return nil, false
		}
	}
	return value, true
}

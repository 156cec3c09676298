package httpapi

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
)

// Tokens are the callers that a token file names. The file has a line for each
// token, a name and the token's SHA-256 in hexadecimal; blank lines and lines
// that begin with # say nothing. A name may have several tokens, so that one
// can replace another without a gap.
type Tokens struct {
	path    string
	entries atomic.Pointer[[]tokenEntry]
}

type tokenEntry struct {
	name string
	hash [sha256.Size]byte
}

// LoadTokens reads a token file. A file without a token is an error: nobody
// could call.
func LoadTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	if err := t.Reload(); err != nil {
		return nil, err
	}
	return t, nil
}

// Reload reads the file again. After an error the tokens are as they were.
func (t *Tokens) Reload() error {
	data, err := os.ReadFile(t.path)
	if err != nil {
		return fmt.Errorf("read the token file: %w", err)
	}
	entries, err := parseTokens(string(data))
	if err != nil {
		return fmt.Errorf("token file %s: %w", t.path, err)
	}
	t.entries.Store(&entries)
	return nil
}

// Principal returns the name of a token. How long it takes does not depend on
// which token it is, or nearly is.
func (t *Tokens) Principal(token string) (name string, ok bool) {
	hash := sha256.Sum256([]byte(token))
	for _, e := range *t.entries.Load() {
		if subtle.ConstantTimeCompare(hash[:], e.hash[:]) == 1 {
			name, ok = e.name, true
		}
	}
	return name, ok
}

func parseTokens(text string) ([]tokenEntry, error) {
	var entries []tokenEntry
	seen := map[[sha256.Size]byte]bool{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		e, err := parseToken(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if seen[e.hash] {
			return nil, fmt.Errorf("line %d: the same token again", number)
		}
		seen[e.hash] = true
		entries = append(entries, e)
	}
	if len(entries) == 0 {
		return nil, errors.New("it has no tokens")
	}
	return entries, nil
}

// parseToken reads a line. Its errors do not repeat the line, which may hold a
// token where its hash should be.
func parseToken(line string) (e tokenEntry, err error) {
	fields := strings.Fields(line)
	if len(fields) != 2 {
		return e, errors.New("it must be a name and a SHA-256")
	}
	if err := checkTokenName(fields[0]); err != nil {
		return e, err
	}
	hash, err := hex.DecodeString(fields[1])
	if err != nil || len(hash) != len(e.hash) {
		return e, fmt.Errorf("the SHA-256 of %s must be %d hexadecimal digits", fields[0], hex.EncodedLen(len(e.hash)))
	}
	return tokenEntry{fields[0], [sha256.Size]byte(hash)}, nil
}

var tokenNames = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func checkTokenName(name string) error {
	if !tokenNames.MatchString(name) {
		return errors.New("a name must be 1 to 63 of a-z, 0-9, dot, dash and underscore, and begin with a letter or digit")
	}
	return nil
}

// NewToken makes a token for name: the token, which is to be kept secret and is
// not kept here, and the line for the token file.
func NewToken(name string) (token, line string, err error) {
	if err := checkTokenName(name); err != nil {
		return "", "", err
	}
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	token = "rowlock_" + base64.RawURLEncoding.EncodeToString(secret)
	hash := sha256.Sum256([]byte(token))
	return token, name + " " + hex.EncodeToString(hash[:]), nil
}

package httpapi

import (
	"os"
	"strings"
	"testing"
)

func TestTokensAreReloaded(t *testing.T) {
	path, made := tokenFile(t, "alice", "bob")
	tokens, err := LoadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range made {
		if got, ok := tokens.Principal(token); !ok || got != name {
			t.Errorf("the token of %s is %q's, %t", name, got, ok)
		}
		for _, wrong := range []string{"", token[1:], token + "x", strings.ToUpper(token)} {
			if got, ok := tokens.Principal(wrong); ok {
				t.Errorf("%q is taken for a token of %s", wrong, got)
			}
		}
	}

	// A file that cannot be used changes nothing.
	if err := os.WriteFile(path, []byte("alice nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Reload(); err == nil {
		t.Error("a bad file is reloaded without an error")
	}
	if _, ok := tokens.Principal(made["alice"]); !ok {
		t.Error("a bad file has taken alice's token away")
	}

	token, line, err := NewToken("carol")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("# rotated\n\n  "+line+"  \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Reload(); err != nil {
		t.Fatal(err)
	}
	if name, ok := tokens.Principal(token); !ok || name != "carol" {
		t.Errorf("carol's token is %q's, %t", name, ok)
	}
	if _, ok := tokens.Principal(made["alice"]); ok {
		t.Error("alice's token outlived its line")
	}
}

func TestBadTokenFiles(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	for _, text := range []string{
		"", "\n# nobody\n", "alice", "alice " + hash + " extra", "alice " + hash[2:], "alice " + hash + "00", "alice " + strings.Repeat("zz", 32),
		"Alice " + hash, "a/b " + hash, "-a " + hash, strings.Repeat("a", 64) + " " + hash,
		"alice " + hash + "\nbob " + strings.ToUpper(hash),
	} {
		if entries, err := parseTokens(text); err == nil {
			t.Errorf("%q is read as %v", text, entries)
		} else if strings.Contains(err.Error(), "ab") {
			t.Errorf("the error repeats what may be a secret: %v", err)
		}
	}
	if entries, err := parseTokens("alice " + hash + "\r\nalice " + strings.Repeat("cd", 32)); err != nil || len(entries) != 2 {
		t.Errorf("two tokens of one name are read as %v, %v", entries, err)
	}
	for _, name := range []string{"", "A", "a b", "a\n", "é"} {
		if _, _, err := NewToken(name); err == nil {
			t.Errorf("a token was made for %q", name)
		}
	}
	if _, err := LoadTokens(t.TempDir() + "/none"); err == nil {
		t.Error("a file that is not there was read")
	}
}

package paymenthook_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/paymenthook"
)

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"https://hook.example/may?key=hidden": "",
		"https://hook.example:8443":           "",
		"HTTPS://hook.example":                "",
		"http://localhost:9/may":              "",
		"http://127.0.0.2:9":                  "",
		"http://[::1]":                        "",

		"":                           "must begin with https://",
		"hook.example/may":           "must begin with https://",
		"//hook.example/hidden":      "must begin with https://",
		"https:///hidden":            "must begin with https://",
		"https://:443/hidden":        "must begin with https://",
		"https:hidden":               "must begin with https://",
		"ftp://hook.example/hidden":  "must begin with https://",
		"https://hook.example/#":     "fragment",
		"https://ann:hidden@hook":    "name or a password",
		"https://hidden@hook":        "name or a password",
		"https://ann:hid/den@hook":   "is not a URL",
		"https://hook:hidden":        "is not a URL",
		"http://hook.example":        "must be https",
		"http://10.0.0.1":            "must be https",
		"http://localhost.example":   "must be https",
		"http://127.0.0.1.example":   "must be https",
		"https://hook.example/\x00s": "is not a URL",
	} {
		_, err := paymenthook.New(paymenthook.Config{URL: url, Secrets: []string{newSecret}, Timeout: time.Second})
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", url, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: error = %v, want one with %q", url, err, want)
		case err != nil && strings.Contains(err.Error(), "hid"):
			t.Errorf("the error repeats the URL: %v", err)
		}
	}
}

func TestTimeoutIsPositive(t *testing.T) {
	for _, timeout := range []time.Duration{0, -time.Second} {
		if _, err := paymenthook.New(paymenthook.Config{URL: "https://hook.example", Secrets: []string{newSecret}, Timeout: timeout}); err == nil {
			t.Errorf("a hook with a timeout of %v was made", timeout)
		}
	}
}

func secretOf(bytes int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", bytes)))
}

// goodSecrets and badSecrets are secrets as a line of a file.
var (
	goodSecrets = []string{secretOf(24), secretOf(32), secretOf(64)}
	badSecrets  = []string{
		"whsec_", secretOf(23), secretOf(65), strings.TrimPrefix(secretOf(24), "whsec_"), "WHSEC_" + secretOf(24)[6:],
		secretOf(24) + "=", secretOf(24)[:20] + " " + secretOf(24)[20:], secretOf(24) + " " + secretOf(24),
	}
)

func TestSecrets(t *testing.T) {
	config := paymenthook.Config{URL: "https://hook.example", Timeout: time.Second}
	if _, err := paymenthook.New(config); err == nil {
		t.Error("a hook without a secret was made")
	}
	for _, good := range goodSecrets {
		config.Secrets = []string{newSecret, good}
		if _, err := paymenthook.New(config); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range badSecrets {
		config.Secrets = []string{newSecret, bad}
		_, err := paymenthook.New(config)
		checkBadSecret(t, bad, "secret 2 ", err)
	}
}

// checkBadSecret wants an error that says where the secret is, and not what.
func checkBadSecret(t *testing.T, bad, where string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), where) {
		t.Errorf("%q: error = %v, want one with %q", bad, err, where)
	} else if strings.Contains(err.Error(), "eHh4") { // "xxx"
		t.Errorf("the error repeats what may be a secret: %v", err)
	}
}

func secretFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestLoadSecrets(t *testing.T) {
	text := "# the new one\r\n\r\n  " + newSecret + "  \r\n#" + secretOf(1) + "\n" + oldSecret
	got, err := paymenthook.LoadSecrets(secretFile(t, text))
	if want := []string{newSecret, oldSecret}; err != nil || !slices.Equal(got, want) {
		t.Errorf("LoadSecrets returned %q, %v, want %q", got, err, want)
	}
	for _, good := range goodSecrets {
		if got, err := paymenthook.LoadSecrets(secretFile(t, good+"\n")); err != nil || !slices.Equal(got, []string{good}) {
			t.Errorf("LoadSecrets returned %q, %v, want %q", got, err, good)
		}
	}
	for _, bad := range badSecrets {
		_, err := paymenthook.LoadSecrets(secretFile(t, "# why\n"+bad+"\n"))
		checkBadSecret(t, bad, "line 2 ", err)
	}
}

func TestBadSecretFiles(t *testing.T) {
	for _, tt := range []struct {
		name, file, want string
	}{
		{"missing", filepath.Join(t.TempDir(), "none"), "no such file"},
		{"empty", secretFile(t, ""), "no secrets"},
		{"comments", secretFile(t, "\n# none yet\n"), "no secrets"},
		{"long", secretFile(t, newSecret+"\n"+strings.Repeat("#", 4<<10)), "longer than 4096 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := paymenthook.LoadSecrets(tt.file)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.file) {
				t.Errorf("LoadSecrets returned %q, %v, want an error with %q and the file", got, err, tt.want)
			} else if strings.Contains(err.Error(), "whsec_") {
				t.Errorf("the error tells a secret: %v", err)
			}
		})
	}
}

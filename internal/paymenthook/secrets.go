package paymenthook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// maxSecretFile is in bytes. All secrets sign every request, in one header that
// servers must accept.
const maxSecretFile = 4 << 10

// LoadSecrets reads a file of secrets. It has one on each line; blank lines and
// lines that begin with # say nothing. A file without a secret is an error.
func LoadSecrets(file string) ([]string, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the payment hook's secret file: %w", err)
	}
	secrets, err := parseSecrets(text)
	if err != nil {
		return nil, fmt.Errorf("secret file %s of the payment hook: %w", file, err)
	}
	return secrets, nil
}

// readFile asks nobody for the file's mode: where secrets are mounted for a
// container, it is not ours to choose.
func readFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxSecretFile {
		return "", fmt.Errorf("%s is longer than %d bytes", name, maxSecretFile)
	}
	return string(data), nil
}

func parseSecrets(text string) (secrets []string, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if _, err := newSigner(line); err != nil {
			return nil, fmt.Errorf("line %d %w", number, err)
		}
		secrets = append(secrets, line)
	}
	if len(secrets) == 0 {
		return nil, errors.New("it has no secrets")
	}
	return secrets, nil
}

// newSigner reads a secret more strictly than the library does, which takes
// "whsec_" for a secret of no bytes. The sizes are those of Standard Webhooks.
// Its error does not repeat the secret.
func newSigner(secret string) (*standardwebhooks.Webhook, error) {
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("must be whsec_ and 24 to 64 bytes in base64")
	}
	return standardwebhooks.NewWebhookRaw(key)
}

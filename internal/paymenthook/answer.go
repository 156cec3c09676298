package paymenthook

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/rowlock/ledger/internal/payment"
)

// Bounds of an answer.
const (
	maxAnswer     = 64 << 10 // bytes
	maxReason     = 500      // characters
	maxRetryAfter = 30 * 24 * time.Hour
)

// readAnswer reads what the hook has decided.
func readAnswer(r *http.Response) (payment.Decision, error) {
	switch {
	case r.StatusCode/100 == 3:
		return payment.Decision{}, fmt.Errorf("the answer is a redirect (%d), which is not followed: give its target as the URL", r.StatusCode)
	case r.StatusCode != http.StatusOK:
		return payment.Decision{}, fmt.Errorf("the answer has the status %d, not 200", r.StatusCode)
	}
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != "application/json" {
		return payment.Decision{}, errors.New("the answer's Content-Type is not application/json")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer+1))
	if err != nil {
		return payment.Decision{}, fmt.Errorf("read the answer: %w", err)
	}
	if len(body) > maxAnswer {
		return payment.Decision{}, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	return unmarshalAnswer(body)
}

func unmarshalAnswer(body []byte) (payment.Decision, error) {
	var answer struct {
		Decision          string `json:"decision"`
		Reason            string `json:"reason"`
		RetryAfterSeconds *int64 `json:"retry_after_seconds"`
	}
	// What is wrong with a reason must not undo the decision: its text is mended.
	if err := json.Unmarshal(body, &answer, jsontext.AllowInvalidUTF8(true)); err != nil {
		return payment.Decision{}, fmt.Errorf("the answer cannot be read: %w", err)
	}
	var after time.Duration
	if seconds := answer.RetryAfterSeconds; seconds != nil && answer.Decision == "later" {
		if *seconds < 1 || *seconds > int64(maxRetryAfter/time.Second) {
			return payment.Decision{}, fmt.Errorf("the answer's retry_after_seconds must be from 1 to %d", maxRetryAfter/time.Second)
		}
		after = time.Duration(*seconds) * time.Second
	}
	switch answer.Decision {
	case "allow":
		return payment.Decision{Verdict: payment.Allow}, nil
	case "deny":
		return payment.Decision{Verdict: payment.Deny, Reason: clean(answer.Reason)}, nil
	case "later":
		return payment.Decision{Verdict: payment.Later, Reason: clean(answer.Reason), After: after}, nil
	}
	return payment.Decision{}, errors.New(`the answer's decision must be "allow", "deny" or "later"`)
}

// clean is reason as it can be stored, and never empty.
func clean(reason string) string {
	reason = strings.ReplaceAll(reason, "\x00", "") // which PostgreSQL's text cannot hold
	if characters := []rune(reason); len(characters) > maxReason {
		reason = string(characters[:maxReason])
	}
	return cmp.Or(reason, "no reason was given")
}

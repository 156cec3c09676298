package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// remoteLedger opens accounts with the service at URL, which may have others
// that are none of our business. They stay there: a ledger forgets nothing.
func (b *Bench) remoteLedger(ctx context.Context, w Workload) (*ledger, error) {
	l := &ledger{url: b.DatabaseURL, ids: make([]uuid.UUID, b.Accounts), drop: func(context.Context) error { return nil }}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(remoteOpeners)
	for i := range l.ids {
		group.Go(func() error {
			var opened struct {
				ID uuid.UUID `json:"id"`
			}
			if err := b.post(ctx, "/v1/accounts", map[string]string{"currency": "USD", "name": fmt.Sprintf("account %d", i)}, &opened); err != nil {
				return err
			}
			l.ids[i] = opened.ID
			if w.Declines && i%2 == 1 {
				return nil
			}
			return b.post(ctx, "/v1/credits", map[string]string{"account_id": opened.ID.String(), "amount": funds, "currency": "USD"}, nil)
		})
	}
	return l, group.Wait()
}

const remoteOpeners = 16

// post asks for something and reads the answer, if somebody wants it.
func (b *Bench) post(ctx context.Context, path string, body map[string]string, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if b.Token != "" {
		request.Header.Set("Authorization", "Bearer "+b.Token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		return fmt.Errorf("POST %s: %s", path, response.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}

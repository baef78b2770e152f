package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Fetcher gets small documents whose URL a call named: certificates, key sets,
// confirmations. What may be asked for is decided before.
type Fetcher struct{ client *http.Client }

// NewFetcher makes a Fetcher on a client of NewClient.
func NewFetcher(client *http.Client) *Fetcher { return &Fetcher{client} }

const maxDocument = 256 << 10

// Fetch gets a document; anything but 200 is an error. No error holds the URL,
// which may carry a token.
func (f *Fetcher) Fetch(ctx context.Context, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, errors.New("fetch: the URL cannot be read")
	}
	request.Header.Set("User-Agent", "tocsin")
	response, err := f.client.Do(request)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("fetch from %s: %w", request.URL.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetch from %s: %s", request.URL.Host, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("fetch from %s: %w", request.URL.Host, err)
	}
	if len(text) > maxDocument {
		return nil, fmt.Errorf("fetch from %s: the document is too large", request.URL.Host)
	}
	return text, nil
}

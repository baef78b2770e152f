// Package apiclient speaks Tocsin's management API (w6w contract §7): it sends
// the bearer key, reads the error envelope, and gives every answer both decoded
// and as the server wrote it, so that what is printed as JSON is the server's
// own text.
package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// maxAnswer bounds one answer. The largest is an event with its call.
const maxAnswer = 64 << 20

// Client is a management API with a key for it.
type Client struct {
	base *url.URL
	key  secret.Text
	http *http.Client
}

// New makes a client of the API at base. A nil http client gets one whose
// requests end after a minute.
func New(base string, key secret.Text, client *http.Client) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(base, "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("not an http or https URL")
	}
	if client == nil {
		client = &http.Client{Timeout: time.Minute}
	}
	return &Client{base: u, key: key, http: client}, nil
}

// Base is where the API is.
func (c *Client) Base() string { return c.base.Redacted() }

// Error is an answer other than 2xx.
type Error struct {
	Status  int
	Code    string
	Message string
	Details []trigger.FieldError
}

func (e *Error) Error() string {
	switch {
	case e.Code == "":
		return fmt.Sprintf("the API answered %d %s", e.Status, http.StatusText(e.Status))
	case e.Message == "":
		return e.Code
	}
	return e.Code + ": " + e.Message
}

// UnreachableError is an API that gave no answer.
type UnreachableError struct {
	Base string
	Err  error
}

func (e *UnreachableError) Error() string { return e.Base + " does not answer: " + e.Err.Error() }

func (e *UnreachableError) Unwrap() error { return e.Err }

// Answer is a decoded answer beside the document as the server sent it.
type Answer[T any] struct {
	Document json.RawMessage
	Value    T
}

// Do sends a request and gives the answer's document. path starts with a slash
// and is escaped already; a nil body sends none.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, body any) (json.RawMessage, error) {
	request, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, c.unreachable(ctx, err)
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("the answer is larger than %d MiB", maxAnswer>>20)
	case response.StatusCode < 200 || response.StatusCode > 299:
		return nil, errorOf(response.StatusCode, text)
	}
	return text, nil
}

func (c *Client) request(ctx context.Context, method, path string, query url.Values, body any) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("write request: %w", err)
		}
		content = bytes.NewReader(text)
	}
	target := c.base.String() + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target, content)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		request.Header.Set("Authorization", "Bearer "+c.key.Reveal())
	}
	request.Header.Set("Accept", "application/json")
	return request, nil
}

func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the URL, which may hold a subscription's id
	}
	return &UnreachableError{Base: c.Base(), Err: err}
}

// errorOf reads either error envelope: w6w's {error:{code,message}} and
// OpenWOP's {error,message}.
func errorOf(status int, text []byte) error {
	e := &Error{Status: status}
	var envelope struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(text, &envelope) != nil {
		return e
	}
	var nested struct {
		Code    string               `json:"code"`
		Message string               `json:"message"`
		Details []trigger.FieldError `json:"details"`
	}
	if json.Unmarshal(envelope.Error, &nested) == nil {
		e.Code, e.Message, e.Details = nested.Code, nested.Message, nested.Details
		return e
	}
	_ = json.Unmarshal(envelope.Error, &e.Code) // absent: the status says it
	e.Message = envelope.Message
	return e
}

// ask is Do with the answer decoded.
func ask[T any](ctx context.Context, c *Client, method, path string, query url.Values, body any) (Answer[T], error) {
	var answer Answer[T]
	text, err := c.Do(ctx, method, path, query, body)
	if err != nil {
		return answer, err
	}
	answer.Document = text
	if err := json.Unmarshal(text, &answer.Value); err != nil {
		return answer, fmt.Errorf("read the answer of %s: %w", c.Base(), err)
	}
	return answer, nil
}

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (Answer[T], error) {
	return ask[T](ctx, c, http.MethodGet, path, query, nil)
}

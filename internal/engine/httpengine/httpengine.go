// Package httpengine starts runs over the w6w host API (DESIGN §8):
// POST {base}/workflows/{id}/run, with the event id as idempotency key.
package httpengine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/engine"
)

// Config of New. URL and Client are required.
type Config struct {
	// URL is the engine's base, http or https; a path is kept, a query is not.
	URL *url.URL
	// Token is sent as bearer when it reveals anything; nil is none.
	Token interface{ Reveal() string }
	// Client brings the transport, which decides where a call may lead. Its
	// redirect policy is not used: redirects are not followed.
	Client *http.Client
}

// Engine is the client. It is safe for concurrent use.
type Engine struct {
	base   string
	header http.Header // of every request
	client *http.Client
}

// New makes an Engine; it does not call it.
func New(cfg Config) (*Engine, error) {
	if cfg.URL == nil || (cfg.URL.Scheme != "http" && cfg.URL.Scheme != "https") || cfg.URL.Host == "" {
		return nil, errors.New("the engine's URL must be http://host or https://host")
	}
	header := http.Header{"Accept": {"application/json"}, "User-Agent": {"tocsin"}}
	if cfg.Token != nil && cfg.Token.Reveal() != "" {
		header.Set("Authorization", "Bearer "+cfg.Token.Reveal())
	}
	base := *cfg.URL
	base.RawQuery, base.Fragment = "", ""
	client := *cfg.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Engine{base: strings.TrimRight(base.String(), "/"), header: header, client: &client}, nil
}

// StartRun asks for one run.
func (e *Engine) StartRun(ctx context.Context, request engine.StartRequest) engine.StartResult {
	reached := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached = true }})
	call, err := e.request(ctx, http.MethodPost, "/workflows/"+segment(request.WorkflowID)+"/run", body(&request))
	if err != nil {
		return refused("invalid_request", err)
	}
	call.Header.Set("Content-Type", "application/json")
	call.Header.Set("Idempotency-Key", request.EventID) // net/http may send again on a kept connection that the engine closed
	if plain(request.Trace) {
		call.Header.Set("Traceparent", request.Trace)
	}
	got, err := e.send(call)
	switch {
	case got == nil:
		return noAnswer(ctx, err, reached)
	case err != nil:
		return retry(CodeInvalidAnswer, fmt.Sprintf("the engine answered %d and broke off", got.status))
	}
	return classify(got)
}

// WorkflowExists asks for the workflow. An engine without that route accepts
// any.
func (e *Engine) WorkflowExists(ctx context.Context, _, workflowID string) (bool, error) {
	call, err := e.request(ctx, http.MethodGet, "/workflows/"+segment(workflowID), nil)
	if err != nil {
		return false, fmt.Errorf("ask the engine for a workflow: %w", err)
	}
	got, err := e.send(call)
	if got == nil {
		return false, fmt.Errorf("ask the engine for a workflow: %w", err)
	}
	switch {
	case got.status >= 200 && got.status < 300:
		return true, nil
	case got.status == http.StatusNotFound:
		return false, nil
	case got.status == http.StatusMethodNotAllowed, got.status == http.StatusNotImplemented:
		return true, nil
	}
	return false, fmt.Errorf("ask the engine for a workflow: it answers %d", got.status)
}

// Ping says whether anything answers HTTP at the engine's address.
func (e *Engine) Ping(ctx context.Context) error {
	call, err := e.request(ctx, http.MethodHead, "/", nil)
	if err != nil {
		return fmt.Errorf("ping the engine: %w", err)
	}
	if got, err := e.send(call); got == nil {
		return fmt.Errorf("ping the engine: %w", err)
	}
	return nil
}

// Close lets go of kept connections.
func (e *Engine) Close() error {
	e.client.CloseIdleConnections()
	return nil
}

func (e *Engine) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	call, err := http.NewRequestWithContext(ctx, method, e.base+path, reader)
	if err != nil {
		return nil, err
	}
	call.Header = make(http.Header, len(e.header)+3)
	maps.Copy(call.Header, e.header)
	return call, nil
}

// segment makes an id one segment of a path, dots and all.
func segment(id string) string {
	if id == "." || id == ".." {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}

// plain says whether a stored traceparent can be a header's value. One that
// cannot must not keep its event from being started.
func plain(trace string) bool {
	for i := range len(trace) {
		if trace[i] <= ' ' || trace[i] > '~' {
			return false
		}
	}
	return trace != "" && len(trace) <= 256
}

// body is put together as text: the payload goes out as it came in.
func body(request *engine.StartRequest) []byte {
	event := request.Event
	if event == nil {
		event = []byte("null")
	}
	b := make([]byte, 0, len(event)+256)
	b = append(b, `{"trigger":"webhook","variables":{},"event":`...)
	b = append(b, event...)
	b = append(b, `,"eventId":`...)
	b = strconv.AppendQuote(b, request.EventID) // ids are plain ASCII
	b = append(b, `,"subscriptionId":`...)
	b = strconv.AppendQuote(b, request.Subscription.Reveal())
	b = append(b, `,"attempt":`...)
	b = strconv.AppendInt(b, int64(request.Attempt), 10)
	b = append(b, `,"causationId":`...)
	b = strconv.AppendQuote(b, request.AttemptID)
	return append(b, '}')
}

const (
	maxRead  = 64 << 10  // of an answer is looked at
	maxDrain = 256 << 10 // more is thrown away, to keep the connection
)

// answer is what came back: the start of it, and when it broke off, what there
// is.
type answer struct {
	status int
	header http.Header
	text   []byte
}

// send makes the call. No answer at all is nil; one that broke off comes with
// an error. A connection whose answer is longer than is worth draining is given
// up.
func (e *Engine) send(call *http.Request) (*answer, error) {
	response, err := e.client.Do(call)
	if err != nil {
		return nil, hideURL(err)
	}
	defer func() { _ = response.Body.Close() }()
	got := &answer{status: response.StatusCode, header: response.Header}
	if n := response.ContentLength; n >= 0 && n <= maxRead && call.Method != http.MethodHead {
		got.text = make([]byte, n)
		_, err := io.ReadFull(response.Body, got.text)
		return got, err
	}
	if got.text, err = io.ReadAll(io.LimitReader(response.Body, maxRead)); err != nil {
		return got, err
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxDrain)
	return got, nil
}

// hideURL takes the URL out of a net/http error: it may hold a password, and
// the workflow's id is known anyway.
func hideURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// retryAfter reads Retry-After in either form; 0 when there is none.
func retryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

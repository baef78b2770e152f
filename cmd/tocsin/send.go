package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/apiclient"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/vendors/sender"
)

// sending is what `send` is told.
type sending struct {
	body, method, contentType string
	headers                   []string
	sign, secret, secretFile  string
	event, vendor, replay     string
	count                     int

	url     string
	content []byte
	key     []byte
	bodySet bool
	again   *sender.Request // of --replay
}

func (c *cli) send() *cobra.Command {
	s := &sending{}
	cmd := c.command("send URL|SUBSCRIPTION", "Send a call, as a vendor would", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		s.bodySet = cmd.Flags().Changed("body")
		if s.vendor != "" && !cmd.Flags().Changed("event") {
			s.event = "" // the vendor's most usual one
		}
		if err := c.prepare(cmd.Context(), s, args[0]); err != nil {
			return err
		}
		return c.sendAll(cmd.Context(), s)
	})
	cmd.Long = `Send a call, as a vendor would: to a callback URL, or to a subscription's, which
the API then gives. Exits with 0 only if every call was answered with 2xx.`
	cmd.Example = `  tocsin send sub_… --body '{"hello":"tocsin"}'
  tocsin send sub_… --body @delivery.json --sign github --secret-file secret.txt
  tocsin send sub_… --vendor stripe --event invoice.paid --secret-file secret.txt
  generate | tocsin send https://hooks.example.com/triggers/webhooks/sub_… --body -`
	flags := cmd.Flags()
	flags.StringVar(&s.body, "body", "{}", "the body: text as it stands, @file, or - for standard input")
	flags.StringVar(&s.method, "method", http.MethodPost, "the HTTP method")
	flags.StringVar(&s.contentType, "content-type", "application/json", "the body's content type; empty for none")
	flags.StringArrayVar(&s.headers, "header", nil, "one header as Name: value; may be repeated")
	flags.StringVar(&s.sign, "sign", "", "sign as this vendor does: github")
	flags.StringVar(&s.secret, "secret", "", "the secret to sign with")
	flags.StringVar(&s.secretFile, "secret-file", "", "a file with the secret; - is standard input")
	flags.StringVar(&s.event, "event", "push", "with --sign github the X-GitHub-Event, with --vendor the name of a sample")
	flags.StringVar(&s.vendor, "vendor", "", "send a sample as this vendor would, signed: "+strings.Join(sender.Vendors(), ", "))
	flags.StringVar(&s.replay, "replay", "", "send the captured request of this file, as it is")
	flags.IntVar(&s.count, "count", 1, "how many times")
	return cmd
}

// prepare reads everything once, before the first call goes out.
func (c *cli) prepare(ctx context.Context, s *sending, target string) error {
	var err error
	if s.count < 1 {
		return &usageError{errors.New("--count must be at least 1")}
	}
	if s.content, err = c.input(s.body); err != nil {
		return err
	}
	if s.key, err = c.signingKey(s); err != nil {
		return err
	}
	if err := c.readReplay(s); err != nil {
		return err
	}
	for _, header := range s.headers {
		if name, _, ok := strings.Cut(header, ":"); !ok || strings.TrimSpace(name) == "" {
			return &usageError{fmt.Errorf("--header %q: want Name: value", header)}
		}
	}
	s.url, err = c.callbackURL(ctx, target)
	return err
}

func (c *cli) signingKey(s *sending) ([]byte, error) {
	switch {
	case s.vendor != "" && (s.sign != "" || s.replay != ""):
		return nil, &usageError{errors.New("--vendor stands without --sign and --replay")}
	case s.sign == "" && s.secret == "" && s.secretFile == "":
		return nil, nil
	case s.sign != "github" && s.vendor == "":
		return nil, &usageError{fmt.Errorf("--sign %q is not known; want github", s.sign)}
	case s.secret != "":
		return []byte(s.secret), nil
	case s.secretFile != "":
		text, err := c.file(s.secretFile)
		return bytes.TrimRight(text, "\r\n"), err
	}
	return nil, &usageError{errors.New("--sign needs --secret or --secret-file")}
}

func (c *cli) readReplay(s *sending) error {
	if s.replay == "" {
		return nil
	}
	text, err := c.file(s.replay)
	if err != nil {
		return err
	}
	request, err := sender.ReadReplay(bytes.NewReader(text))
	if err != nil {
		return &usageError{fmt.Errorf("--replay: %w", err)}
	}
	s.again = &request
	return nil
}

// ready is the request as a vendor or a file has it; nil when the flags say
// all. Each of a vendor's has ids of its own.
func (s *sending) ready() (*sender.Request, error) {
	if s.vendor == "" {
		return s.again, nil
	}
	options := sender.Options{Secret: secret.Text(s.key), Event: s.event, URL: s.url, Time: time.Now()}
	if s.bodySet {
		options.Body = s.content
	}
	request, err := sender.Build(s.vendor, options)
	if err != nil {
		return nil, &usageError{err}
	}
	return &request, nil
}

// asIs makes a request of one that is ready. Its header is set by hand, since
// http would spell the names anew.
func asIs(ctx context.Context, ready *sender.Request, address string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, ready.Method, address, bytes.NewReader(ready.Body))
	if err != nil {
		return nil, &usageError{err}
	}
	for _, f := range ready.Header {
		switch strings.ToLower(f.Name) {
		case "host", "content-length", "transfer-encoding", "connection": // the connection's own
		default:
			request.Header[f.Name] = append(request.Header[f.Name], f.Value)
		}
	}
	return request, nil
}

// callbackURL takes a URL as it is and asks the API for a subscription's.
func (c *cli) callbackURL(ctx context.Context, target string) (string, error) {
	if strings.Contains(target, "://") {
		if u, err := url.Parse(target); err != nil || u.Host == "" {
			return "", &usageError{errors.New("the URL cannot be read")}
		}
		return target, nil
	}
	client, err := c.api()
	if err != nil {
		return "", err
	}
	answer, err := client.Subscription(ctx, target)
	if err != nil {
		return "", err
	}
	if answer.Value.Subscription.CallbackURL == "" {
		return "", errors.New("the subscription polls; it has no callback URL")
	}
	return answer.Value.Subscription.CallbackURL, nil
}

// sent is one call's answer.
type sent struct {
	Status     int             `json:"status"`
	EventIDs   []string        `json:"eventIds"`
	DurationMs float64         `json:"durationMs"`
	Answer     json.RawMessage `json:"answer"`
}

func (c *cli) sendAll(ctx context.Context, s *sending) error {
	client := &http.Client{Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	var calls []sent
	var failure error
	for range s.count {
		call, err := c.sendOne(ctx, client, s)
		if err != nil {
			return err
		}
		calls = append(calls, call)
		if call.Status > 299 && failure == nil {
			failure = &silentError{&apiclient.Error{Status: call.Status}}
		}
	}
	err := c.value(map[string]any{"calls": calls}, func(p *printer) {
		p.row("STATUS", "TOOK", "EVENTS")
		for _, call := range calls {
			answer := strings.Join(call.EventIDs, " ")
			if answer == "" {
				answer = string(call.Answer)
			}
			p.row(fmt.Sprintf("%d %s", call.Status, http.StatusText(call.Status)), fmt.Sprintf("%.1f ms", call.DurationMs), answer)
		}
	})
	return errors.Join(err, failure)
}

func (c *cli) sendOne(ctx context.Context, client *http.Client, s *sending) (sent, error) {
	request, err := s.request(ctx)
	if err != nil {
		return sent{}, err
	}
	started := c.now()
	response, err := client.Do(request)
	if err != nil && ctx.Err() != nil {
		return sent{}, ctx.Err()
	}
	if err != nil {
		return sent{}, unreachable(request.URL, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return sent{}, unreachable(request.URL, err)
	}
	call := sent{Status: response.StatusCode, DurationMs: float64(c.now().Sub(started).Microseconds()) / 1000, Answer: text}
	var body struct {
		EventIDs []string `json:"eventIds"`
	}
	if json.Unmarshal(text, &body) != nil {
		call.Answer = quoted(string(text)) // a handshake's answer, or a proxy's
	}
	call.EventIDs = body.EventIDs
	return call, nil
}

// unreachable names the host alone: the path is a secret.
func unreachable(u *url.URL, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return &apiclient.UnreachableError{Base: u.Scheme + "://" + u.Host, Err: err}
}

func (s *sending) request(ctx context.Context) (*http.Request, error) {
	ready, err := s.ready()
	if err != nil {
		return nil, err
	}
	if ready != nil {
		address := s.url
		if s.vendor != "" {
			address = ready.URL // some vendors sign within it
		}
		request, err := asIs(ctx, ready, address)
		if err != nil {
			return nil, err
		}
		return s.withHeaders(request), nil
	}
	request, err := http.NewRequestWithContext(ctx, s.method, s.url, bytes.NewReader(s.content))
	if err != nil {
		return nil, &usageError{err}
	}
	if s.contentType != "" {
		request.Header.Set("Content-Type", s.contentType)
	}
	if s.key != nil {
		s.signGitHub(request.Header)
	}
	return s.withHeaders(request), nil
}

// withHeaders sets --header, last, so that they win.
func (s *sending) withHeaders(request *http.Request) *http.Request {
	for _, header := range s.headers {
		name, value, _ := strings.Cut(header, ":")
		request.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return request
}

func (s *sending) signGitHub(header http.Header) {
	mac := hmac.New(sha256.New, s.key)
	_, _ = mac.Write(s.content) // a hash never fails
	header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	header.Set("X-GitHub-Event", s.event)
	header.Set("X-GitHub-Delivery", uuid.NewString())
	header.Set("User-Agent", "GitHub-Hookshot/tocsin")
}

package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/time/rate"

	"github.com/tocsin-dev/tocsin/internal/hook"
)

// Sign adds a connection's credential to a request before it leaves. A signer
// that replaces the body sets GetBody too.
type Sign func(ctx context.Context, call *hook.Call, request *http.Request) error

// Options says how a Host works. The zero value of a field takes the default.
type Options struct {
	AllowPrivate bool          // reach private and loopback addresses too
	MaxBody      int64         // bytes of an answer; default 4 MiB
	Timeout      time.Duration // for a fetch with all its redirects; default 30 s
	LinesPerSec  float64       // log lines of one app; default 20, in bursts of ten times that
	Sign         Sign          // default: requests leave unsigned
	Log          *zap.Logger   // takes the hooks' log lines; default: none
}

const (
	defaultMaxBody = 4 << 20
	defaultTimeout = 30 * time.Second
	defaultLines   = 20
	burstSeconds   = 10

	maxHops = 5
	// maxLimiters bounds the memory of the log limiter; beyond it all apps
	// start afresh.
	maxLimiters = 10_000
)

// Host answers what hooks ask of the outside. It implements hook.Host.
type Host struct {
	options Options
	client  *http.Client

	mu       sync.Mutex
	limiters map[hook.AppRef]*logLimiter
}

type logLimiter struct {
	limit   *rate.Limiter
	dropped int
}

var _ hook.Host = (*Host)(nil)

// NewHost makes a Host.
func NewHost(options Options) *Host {
	if options.MaxBody == 0 {
		options.MaxBody = defaultMaxBody
	}
	if options.Timeout == 0 {
		options.Timeout = defaultTimeout
	}
	if options.LinesPerSec == 0 {
		options.LinesPerSec = defaultLines
	}
	if options.Log == nil {
		options.Log = zap.NewNop()
	}
	return &Host{options: options, client: NewClient(options.AllowPrivate, 0), limiters: map[hook.AppRef]*logLimiter{}}
}

// Close drops idle connections.
func (h *Host) Close() { h.client.CloseIdleConnections() }

// Fetch implements hook.Host.
func (h *Host) Fetch(ctx context.Context, r hook.FetchRequest) (hook.FetchResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	target, err := parseTarget(r.URL)
	if err != nil {
		return hook.FetchResponse{}, err
	}
	if err := checkAllowed(r.Allow, target); err != nil {
		return hook.FetchResponse{}, err
	}
	request, err := newRequest(ctx, r, target)
	if err != nil {
		return hook.FetchResponse{}, err
	}
	if h.options.Sign != nil {
		if err := h.options.Sign(ctx, r.Call, request); err != nil {
			return hook.FetchResponse{}, err
		}
		if err := checkAllowed(r.Allow, request.URL); err != nil {
			return hook.FetchResponse{}, err
		}
	}
	// The hook never sees the signed URL, which may hold a credential.
	seen, _, _ := strings.Cut(r.URL, "#")
	return h.follow(request, seen)
}

// follow sends a request and follows redirects on the same host. seen is the
// URL as the hook knows it.
func (h *Host) follow(request *http.Request, seen string) (hook.FetchResponse, error) {
	for hops := 0; ; hops++ {
		response, err := h.client.Do(request)
		if err != nil {
			return hook.FetchResponse{}, requestError(request.Context(), err)
		}
		location := response.Header.Get("Location")
		if !isRedirect(response.StatusCode) || location == "" {
			return h.answer(request.Context(), response, seen)
		}
		_ = response.Body.Close()
		if hops == maxHops {
			return hook.FetchResponse{}, &hook.Error{Code: hook.CodeTooManyRedirect, Message: fmt.Sprintf("more than %d redirects", maxHops)}
		}
		if request, err = redirected(request, response.StatusCode, location); err != nil {
			return hook.FetchResponse{}, err
		}
		seen = request.URL.String()
	}
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// redirected is the request that a redirect asks for.
func redirected(request *http.Request, status int, location string) (*http.Request, error) {
	target, err := request.URL.Parse(location)
	if err != nil {
		return nil, &hook.Error{Code: hook.CodeInvalidURL, Message: "the redirect's location is no URL"}
	}
	if target, err = parseTarget(target.String()); err != nil {
		return nil, err
	}
	if hostname(target) != hostname(request.URL) {
		return nil, &hook.Error{Code: hook.CodeEgressDenied, Message: "redirect to another host: " + hostname(target)}
	}
	if request.URL.Scheme == "https" && target.Scheme != "https" {
		return nil, &hook.Error{Code: hook.CodeEgressDenied, Message: "redirect from https to http"}
	}
	next := request.Clone(request.Context())
	next.URL, next.Host = target, ""
	becomesGet := status == http.StatusSeeOther && request.Method != http.MethodHead ||
		(status == http.StatusMovedPermanently || status == http.StatusFound) && request.Method != http.MethodGet && request.Method != http.MethodHead
	switch {
	case becomesGet:
		next.Method, next.Body, next.GetBody, next.ContentLength = http.MethodGet, nil, nil, 0
		for _, name := range []string{"Content-Type", "Content-Encoding", "Content-Language", "Content-Location"} {
			next.Header.Del(name)
		}
	case request.GetBody != nil:
		if next.Body, err = request.GetBody(); err != nil {
			return nil, fmt.Errorf("send the body again: %w", err)
		}
	}
	return next, nil
}

func (h *Host) answer(ctx context.Context, response *http.Response, seen string) (hook.FetchResponse, error) {
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, h.options.MaxBody+1))
	if err != nil {
		return hook.FetchResponse{}, requestError(ctx, err)
	}
	if int64(len(body)) > h.options.MaxBody {
		return hook.FetchResponse{}, &hook.Error{Code: hook.CodeTooLarge, Message: fmt.Sprintf("the answer is larger than %d bytes", h.options.MaxBody)}
	}
	answer := hook.FetchResponse{
		Status: response.StatusCode, StatusText: http.StatusText(response.StatusCode), URL: seen, Body: body,
	}
	if _, text, ok := strings.Cut(response.Status, " "); ok {
		answer.StatusText = text
	}
	names := make([]string, 0, len(response.Header))
	for name := range response.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range response.Header[name] {
			answer.Headers = append(answer.Headers, [2]string{strings.ToLower(name), value})
		}
	}
	return answer, nil
}

func parseTarget(text string) (*url.URL, error) {
	target, err := url.Parse(text)
	switch {
	case err != nil || target.Hostname() == "":
		return nil, &hook.Error{Code: hook.CodeInvalidURL, Message: "the URL is not valid"}
	case target.Scheme != "http" && target.Scheme != "https":
		return nil, &hook.Error{Code: hook.CodeInvalidURL, Message: "only http and https can be fetched"}
	case target.User != nil:
		return nil, &hook.Error{Code: hook.CodeInvalidURL, Message: "the URL must not hold credentials"}
	}
	target.Fragment, target.RawFragment = "", ""
	return target, nil
}

// hopHeaders belong to the connection, which is the host's.
func hopHeaders() []string {
	return []string{
		"Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect",
	}
}

func newRequest(ctx context.Context, r hook.FetchRequest, target *url.URL) (*http.Request, error) {
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, target.String(), body)
	if err != nil {
		return nil, &hook.Error{Code: hook.CodeInvalidURL, Message: "the request is not valid"}
	}
	for _, header := range r.Headers {
		request.Header.Add(header[0], header[1])
	}
	for _, name := range hopHeaders() {
		request.Header.Del(name)
	}
	return request, nil
}

// requestError keeps the URL, which may hold a credential, out of the text.
func requestError(ctx context.Context, err error) error {
	if wrapper, ok := errors.AsType[*url.Error](err); ok {
		err = wrapper.Err
	}
	switch {
	case errors.Is(err, ErrPrivateAddress):
		return &hook.Error{Code: hook.CodeEgressDenied, Message: err.Error()}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &hook.Error{Code: hook.CodeFetchTimeout, Message: "the request took too long"}
	}
	return fmt.Errorf("fetch: %w", err)
}

func hostname(u *url.URL) string { return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") }

func checkAllowed(allow []string, target *url.URL) error {
	if name := hostname(target); !Allowed(allow, name) {
		return &hook.Error{Code: hook.CodeEgressDenied, Message: name + " is not in the app's network.allow"}
	}
	return nil
}

// Allowed reports whether an allow-list names a host: "*" is any host,
// "*.x.y" any below x.y but not x.y itself, all else is exact.
func Allowed(allow []string, host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return slices.ContainsFunc(allow, func(entry string) bool {
		entry = strings.ToLower(entry)
		if parent, ok := strings.CutPrefix(entry, "*."); ok {
			return strings.HasSuffix(host, "."+parent) && len(host) > len(parent)+1
		}
		return entry == "*" || entry == host
	})
}

// Log implements hook.Host.
func (h *Host) Log(call *hook.Call, line hook.LogLine) {
	dropped, ok := h.mayLog(call.App)
	if !ok {
		return
	}
	level, err := zapcore.ParseLevel(line.Level)
	if err != nil {
		level = zapcore.InfoLevel
	}
	fields := []zap.Field{
		zap.String("app_id", call.App.ID), zap.String("hook", call.Hook), zap.String("message", line.Message),
	}
	if len(line.Data) > 0 {
		fields = append(fields, zap.ByteString("data", line.Data))
	}
	if dropped > 0 {
		fields = append(fields, zap.Int("dropped_before", dropped))
	}
	h.options.Log.Log(min(level, zapcore.ErrorLevel), "hook.log", fields...)
}

// mayLog takes one line from the app's allowance, and says how many were
// dropped before it.
func (h *Host) mayLog(app hook.AppRef) (dropped int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.limiters[app]
	if l == nil {
		if len(h.limiters) >= maxLimiters {
			clear(h.limiters)
		}
		l = &logLimiter{limit: rate.NewLimiter(rate.Limit(h.options.LinesPerSec), int(max(1, burstSeconds*h.options.LinesPerSec)))}
		h.limiters[app] = l
	}
	if !l.limit.Allow() {
		l.dropped++
		return 0, false
	}
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}

package connection

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// signTime bounds one sign hook: the request that waits for it has a limit of
// its own.
const signTime = 10 * time.Second

// signable is a request as the sign hook gets and gives it.
type signable struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	// Body is text; a body that is none is not shown.
	Body *string `json:"body"`
}

// Sign puts a connection's credential on a request (egress.Sign): the app's auth
// `sign` runs in a VM of its own that cannot fetch, and what it returns is sent.
// Requests of hooks without a connection, and those of auth hooks themselves,
// leave as they are.
func (k *Keeper) Sign(ctx context.Context, call *hook.Call, request *http.Request) error {
	id := connectionOf(call)
	if id == "" || strings.HasPrefix(call.Hook, "auth:") {
		return nil
	}
	app, err := k.apps.App(call.App.ID)
	if err != nil {
		return err
	}
	c, err := k.usable(ctx, call.App.Tenant, app.ID, id)
	if err != nil {
		return err
	}
	method := app.AuthFor(c.Auth)
	if method == nil || !method.Hooks["sign"] {
		return nil
	}
	return k.sign(ctx, app, method, c, request)
}

// connectionOf is the connection that the host gave a call.
func connectionOf(call *hook.Call) string {
	var given struct {
		Connection struct {
			ID string `json:"id"`
		} `json:"connection"`
	}
	if len(call.Ctx) == 0 || json.Unmarshal(call.Ctx, &given) != nil {
		return ""
	}
	return given.Connection.ID
}

func (k *Keeper) sign(ctx context.Context, app *trigger.App, method *trigger.AuthMethod, c *trigger.Connection, request *http.Request) error {
	before, err := toSign(request)
	if err != nil {
		return err
	}
	text, err := json.Marshal(before)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, signTime)
	defer cancel()
	result, err := k.apps.Invoke(ctx, hook.Call{
		App: authRef(app, c.Tenant), Hook: "auth:" + method.Key + "/sign", Limits: hook.Limits{Wall: signTime, MaxHostOps: -1},
		Input: object("request", json.RawMessage(text), "credential", c.Credential.Reveal()), Ctx: object("connection", Redacted(c)),
	})
	if err != nil {
		return signError(err, c.Credential)
	}
	var after signable
	if err := json.Unmarshal(result.Output, &after); err != nil || after.URL == "" {
		return &hook.Error{Code: hook.CodeReturnedInvalid, Phase: "auth", Message: "sign: want the request {url, method, headers, body}"}
	}
	return apply(request, before, &after)
}

// signError names the phase, and keeps the credential out of what the hook said.
func signError(err error, credential trigger.Credential) error {
	var e *hook.Error
	if !errors.As(err, &e) {
		return err
	}
	return &hook.Error{Code: e.Code, Phase: "auth", Name: e.Name, Message: "sign: " + scrub(e.Message, credential), Stack: scrub(e.Stack, credential)}
}

func toSign(request *http.Request) (*signable, error) {
	out := &signable{URL: request.URL.String(), Method: request.Method, Headers: map[string]string{}}
	for name, values := range request.Header {
		out.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	if request.GetBody == nil {
		return out, nil
	}
	reader, err := request.GetBody()
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }()
	body, err := io.ReadAll(reader)
	if err != nil {
		return nil, err
	}
	if text := string(body); utf8.ValidString(text) {
		out.Body = &text
	}
	return out, nil
}

// apply makes the request what the signer returned. Where two headers differ in
// case only, the signer's own wins (w6w contract §5). What was not shown as text
// is sent as it was.
func apply(request *http.Request, before, after *signable) error {
	target, err := url.Parse(after.URL)
	if err != nil || target.Host == "" || target.Scheme != "http" && target.Scheme != "https" || target.User != nil {
		return &hook.Error{Code: hook.CodeInvalidURL, Phase: "auth", Message: "sign: the signed URL is not valid"}
	}
	request.URL, request.Host = target, ""
	if after.Method != "" {
		request.Method = strings.ToUpper(after.Method)
	}
	if after.Headers != nil {
		setHeaders(request, before.Headers, after.Headers)
	}
	if after.Body != nil && (before.Body == nil || *after.Body != *before.Body) {
		setBody(request, []byte(*after.Body))
	}
	return nil
}

// connectionHeaders are the HTTP client's to set.
var connectionHeaders = []string{"connection", "content-length", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect"}

func setHeaders(request *http.Request, before, after map[string]string) {
	request.Header = http.Header{}
	for _, signers := range []bool{false, true} { // the signer's come last and replace
		for name, value := range after {
			old, kept := before[name]
			if own := !kept || old != value; own == signers && !slices.Contains(connectionHeaders, strings.ToLower(name)) {
				request.Header.Set(name, value)
			}
		}
	}
}

func setBody(request *http.Request, body []byte) {
	request.ContentLength = int64(len(body))
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	request.Body, _ = request.GetBody()
}

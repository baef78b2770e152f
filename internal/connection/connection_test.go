package connection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tocsin-dev/tocsin/internal/connection"
	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

const canary = "CANARY-token"

// ledger holds one connection, with the claims of the real one.
type ledger struct {
	mu      sync.Mutex
	c       trigger.Connection
	token   string
	until   time.Time
	err     error
	refused int
}

func (l *ledger) Connection(_ context.Context, tenant, id string) (*trigger.Connection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	if tenant != l.c.Tenant || id != l.c.ID {
		return nil, trigger.ErrUnknownConnection
	}
	c := l.c
	c.RefreshHeld = time.Now().Before(l.until)
	c.Refreshing = c.RefreshHeld && l.token != ""
	return &c, nil
}

func (l *ledger) ClaimRefresh(_ context.Context, c *trigger.Connection, token string, lease time.Duration) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.until) || c.Version != l.c.Version {
		l.refused++
		return false, nil
	}
	l.token, l.until = token, time.Now().Add(lease)
	return true, nil
}

func (l *ledger) EndRefresh(_ context.Context, _ *trigger.Connection, token string, credential trigger.Credential, expires *time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token != l.token {
		return trigger.ErrConflict
	}
	l.c.Credential, l.c.ExpiresAt, l.c.RefreshDue, l.token, l.until = credential, expires, false, "", time.Time{}
	l.c.State = trigger.ConnectionConnected
	l.c.Version++
	return nil
}

func (l *ledger) FailRefresh(_ context.Context, _ *trigger.Connection, _, reason string, wait time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c.Error, l.token, l.until = reason, "", time.Now().Add(wait)
	return nil
}

// app runs its auth hooks as Go functions.
type app struct {
	mu      sync.Mutex
	calls   []hook.Call
	refresh func() (string, error)
	sign    func(request string) (string, error)
}

func (a *app) App(id string) (*trigger.App, error) {
	if id != "io.x" {
		return nil, trigger.ErrUnknownApp
	}
	return &trigger.App{ID: id, Hash: "h", Auth: []trigger.AuthMethod{
		{Key: "none", Hooks: map[string]bool{}}, {Key: "token", Hooks: map[string]bool{"sign": true, "refresh": true}},
	}}, nil
}

func (a *app) Invoke(_ context.Context, call hook.Call) (hook.Result, error) {
	a.mu.Lock()
	a.calls = append(a.calls, call)
	a.mu.Unlock()
	var out string
	var err error
	switch call.Hook {
	case "auth:token/refresh":
		out, err = a.refresh()
	case "auth:token/sign":
		var input struct{ Request json.RawMessage }
		_ = json.Unmarshal(call.Input, &input) // the keeper wrote it
		out, err = a.sign(string(input.Request))
	default:
		err = fmt.Errorf("an unexpected hook %s", call.Hook)
	}
	return hook.Result{Output: json.RawMessage(out)}, err
}

func (a *app) seen() []hook.Call {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

type world struct {
	*ledger
	*app
	keeper *connection.Keeper
	logs   *observer.ObservedLogs
}

func setup() *world {
	core, logs := observer.New(zap.DebugLevel)
	w := &world{
		ledger: &ledger{c: trigger.Connection{
			ID: "conn_1", Tenant: "acme", AppID: "io.x", Auth: "token", State: trigger.ConnectionConnected, Version: 1,
			Credential: trigger.Credential(`{"accessToken":"` + canary + `"}`), Display: json.RawMessage(`{"host":"a.example"}`),
		}},
		app: &app{}, logs: logs,
	}
	w.keeper = connection.New(w.ledger, 30*time.Second, zap.New(core))
	w.keeper.Use(w.app)
	return w
}

// w6w contract §5: “connected → go; needs_refresh → run auth refresh, failure =
// connection_broken; pending/revoked/broken → same-named error, phase auth”.
func TestEveryStateHasItsGate(t *testing.T) {
	t.Parallel()

	for state, want := range map[trigger.ConnectionState]string{
		trigger.ConnectionConnected: "", trigger.ConnectionPending: "connection_pending",
		trigger.ConnectionBroken: "connection_broken", trigger.ConnectionRevoked: "connection_revoked",
	} {
		w := setup()
		w.c.State = state
		got, err := w.keeper.Ready(t.Context(), "acme", "io.x", "conn_1")
		if hook.CodeOf(err) != want {
			t.Errorf("%s: %v, want %q", state, err, want)
		}
		if want == "" && (!strings.Contains(string(got), `"display":{"host":"a.example"}`) || strings.Contains(string(got), "CANARY")) {
			t.Errorf("the hook would see %s", got)
		}
		var gate *hook.Error
		if errors.As(err, &gate) && gate.Phase != "auth" {
			t.Errorf("%s: phase %s", state, gate.Phase)
		}
	}
	for name, c := range map[string][3]string{
		"another tenant's": {"other", "io.x", "conn_1"}, "another app's": {"acme", "io.y", "conn_1"}, "none": {"acme", "io.x", "conn_2"},
	} {
		if _, err := setup().keeper.Ready(t.Context(), c[0], c[1], c[2]); hook.CodeOf(err) != "unknown_connection" {
			t.Errorf("%s: %v", name, err)
		}
	}
	w := setup()
	w.err = fmt.Errorf("get: %w", trigger.ErrUnavailable)
	if _, err := w.keeper.Ready(t.Context(), "acme", "io.x", "conn_1"); !errors.Is(err, trigger.ErrUnavailable) {
		t.Errorf("no database: %v", err)
	}
}

// Issue 3: “refresh when due”, once for all who wait, in this process and others.
func TestOneRefreshIsForAllWhoWait(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := setup()
		w.c.RefreshDue = true
		w.refresh = func() (string, error) {
			time.Sleep(time.Second) // the bubble's clock
			return `{"accessToken":"new","expires_in":3600}`, nil
		}
		other := connection.New(w.ledger, 30*time.Second, zap.NewNop()) // another process
		other.Use(w.app)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := []*connection.Keeper{w.keeper, other}[i%2].Ready(t.Context(), "acme", "io.x", "conn_1"); err != nil {
					t.Errorf("caller %d: %v", i, err)
				}
			})
		}
		started := time.Now()
		wg.Wait()
		if n := len(w.seen()); n != 1 {
			t.Errorf("%d refreshes, want one", n)
		}
		if w.refused > 8 { // the other process looks five times a second, for one who asks for all
			t.Errorf("%d tries to refresh beside the one", w.refused)
		}
		if string(w.c.Credential.Reveal()) != `{"accessToken":"new","expires_in":3600}` || w.c.ExpiresAt == nil || w.c.ExpiresAt.Sub(started) < time.Hour {
			t.Errorf("kept %s until %v", w.c.Credential.Reveal(), w.c.ExpiresAt)
		}
		call := w.seen()[0]
		if call.App.Tenant == "acme" || call.Limits.MaxHostOps < 0 || !strings.Contains(string(call.Input), canary) {
			t.Errorf("refresh ran as %+v", call.App)
		}
	})
}

func TestARefreshThatFailsBreaksTheHookAndRests(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := setup()
		w.c.RefreshDue, w.c.State = true, trigger.ConnectionNeedsRefresh
		w.refresh = func() (string, error) {
			return "", &hook.Error{Code: hook.CodeThrew, Message: "the vendor said no to " + canary}
		}
		for range 3 {
			_, err := w.keeper.Ready(t.Context(), "acme", "io.x", "conn_1")
			if hook.CodeOf(err) != "connection_broken" || strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), "the vendor said no") {
				t.Errorf("got %v", err)
			}
		}
		if n := len(w.seen()); n != 1 {
			t.Errorf("%d refreshes in one moment, want one", n)
		}
		if text := fmt.Sprint(w.logs.All()); strings.Contains(text, canary) || w.logs.FilterMessage("connection.refresh_failed").Len() != 1 {
			t.Errorf("the log has %s", text)
		}
		time.Sleep(time.Minute) // the bubble's clock
		w.refresh = func() (string, error) { return `"plain"`, nil }
		if _, err := w.keeper.Ready(t.Context(), "acme", "io.x", "conn_1"); err != nil {
			t.Errorf("once the vendor is back: %v", err)
		}
	})
}

func TestARefreshedCredentialSaysWhenItEnds(t *testing.T) {
	t.Parallel()

	at := time.Date(2026, 7, 3, 9, 0, 0, 0, time.UTC)
	for credential, want := range map[string]*time.Time{
		`{"expiresAt":"2026-07-03T09:00:00Z"}`: &at, `{"expiresAt":1783069200}`: &at, `{"expires_at":1783069200000}`: &at,
		`{}`: nil, `"text"`: nil, `{"expiresAt":"soon"}`: nil, `{"expiresIn":-1}`: nil,
	} {
		w := setup()
		w.c.RefreshDue = true
		w.refresh = func() (string, error) { return credential, nil }
		if _, err := w.keeper.Ready(t.Context(), "acme", "io.x", "conn_1"); err != nil {
			t.Fatal(err)
		}
		if got := w.c.ExpiresAt; (got == nil) != (want == nil) || got != nil && !got.Equal(*want) {
			t.Errorf("%s ends at %v, want %v", credential, got, want)
		}
	}
}

func signed(t *testing.T, w *world, call *hook.Call, body string) (*http.Request, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.example/v1?a=1", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "the hook's own")
	return request, w.keeper.Sign(t.Context(), call, request)
}

func ingest() *hook.Call {
	return &hook.Call{App: hook.AppRef{ID: "io.x", Version: "h", Tenant: "acme"}, Hook: "t/handleIngest", Ctx: json.RawMessage(`{"connection":{"id":"conn_1"}}`)}
}

// w6w contract §5: “for every ctx.fetch the host runs sign({request:{url,method,
// headers,body}, credential}, ctx) in a second sandbox without fetch … Header
// clash is resolved case-insensitively, signer wins”.
func TestTheSignersRequestIsWhatIsSent(t *testing.T) {
	t.Parallel()

	w := setup()
	w.sign = func(request string) (string, error) {
		want := `{"url":"https://api.example/v1?a=1","method":"POST","headers":{"authorization":"the hook's own","content-type":"application/json"},"body":"{}"}`
		if request != want {
			t.Errorf("the signer saw %s", request)
		}
		return `{"url":"https://api.example/v1?a=1&sig=s","method":"put","headers":{"authorization":"the hook's own","Authorization":"Bearer x",` +
			`"content-type":"application/json","Host":"evil.example","X-Sig":"1"},"body":"{\"signed\":true}"}`, nil
	}
	request, err := signed(t, w, ingest(), "{}")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		t.Fatal(err)
	}
	again, err := request.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	replay, err := io.ReadAll(again)
	if err != nil {
		t.Fatal(err)
	}
	if request.Method != http.MethodPut || request.URL.String() != "https://api.example/v1?a=1&sig=s" || string(body) != `{"signed":true}` ||
		string(replay) != string(body) || request.ContentLength != int64(len(body)) || request.Host != "" {
		t.Errorf("%s %s %s (host %q)", request.Method, request.URL, body, request.Host)
	}
	want := http.Header{"Authorization": {"Bearer x"}, "Content-Type": {"application/json"}, "X-Sig": {"1"}}
	if diff := cmp.Diff(want, request.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	call := w.seen()[0]
	if call.App.Tenant == "acme" || call.Limits.MaxHostOps != -1 || strings.Contains(string(call.Ctx), "CANARY") {
		t.Errorf("sign ran as %+v with %+v", call.App, call.Limits)
	}
}

func TestBytesThatAreNoTextAreSentAsTheyAre(t *testing.T) {
	t.Parallel()

	w := setup()
	w.sign = func(request string) (string, error) { return request, nil }
	request, err := signed(t, w, ingest(), "\xff\x00")
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(request.Body); err != nil || string(body) != "\xff\x00" {
		t.Errorf("sent %q, %v", body, err)
	}
}

func TestWhoHasNoConnectionSendsUnsigned(t *testing.T) {
	t.Parallel()

	refresh, without, unsignable := ingest(), ingest(), ingest()
	refresh.Hook = "auth:token/refresh"
	without.Ctx = nil
	for name, c := range map[string]struct {
		call *hook.Call
		auth string
	}{
		"an auth hook": {refresh, "token"}, "no connection": {without, "token"}, "a method without sign": {unsignable, "none"},
		"a method that is not there, of an app whose first has no sign": {ingest(), "gone"},
	} {
		w := setup()
		w.c.Auth = c.auth
		if request, err := signed(t, w, c.call, "{}"); err != nil || request.Header.Get("Authorization") != "the hook's own" || len(w.seen()) != 0 {
			t.Errorf("%s: %v %v", name, request.Header, err)
		}
	}
}

func TestASignerThatFailsSendsNothingAndTellsNoSecret(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		out  string
		err  error
		code string
	}{
		"throws":            {"", &hook.Error{Code: hook.CodeThrew, Message: "bad " + canary, Stack: "at " + canary}, "hook_threw"},
		"returns nothing":   {"null", nil, "hook_returned_invalid"},
		"no such URL":       {`{"url":"file:///etc/passwd"}`, nil, "invalid_request_url"},
		"a user in the URL": {`{"url":"https://u:p@api.example/"}`, nil, "invalid_request_url"},
	} {
		w := setup()
		w.sign = func(string) (string, error) { return c.out, c.err }
		_, err := signed(t, w, ingest(), "{}")
		var failure *hook.Error
		if !errors.As(err, &failure) || failure.Code != c.code || failure.Phase != "auth" || strings.Contains(failure.Message+failure.Stack, canary) {
			t.Errorf("%s: %+v", name, err)
		}
	}
}

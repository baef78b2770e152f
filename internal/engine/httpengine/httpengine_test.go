package httpengine_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/egress"
	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/engine/enginetest"
	"github.com/tocsin-dev/tocsin/internal/engine/fakeengine"
	"github.com/tocsin-dev/tocsin/internal/engine/httpengine"
)

type token string

func (t token) Reveal() string { return string(t) }

func newEngine(t *testing.T, base string, allowPrivate bool) *httpengine.Engine {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	client := egress.NewClient(allowPrivate, 0)
	e, err := httpengine.New(httpengine.Config{URL: u, Token: token("s3cret"), Client: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func setup(t *testing.T) (*httpengine.Engine, *fakeengine.Engine) {
	t.Helper()
	fake := fakeengine.New(nil)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	return newEngine(t, server.URL+"/base/", true), fake
}

func TestHTTPEngineIsAnEngine(t *testing.T) {
	t.Parallel()

	enginetest.Run(t, func(t *testing.T) enginetest.Subject {
		t.Helper()
		e, fake := setup(t)
		known := []string{"wf_1"}
		fake.Play(fakeengine.Script{Known: known})
		return enginetest.Subject{
			Engine: e,
			Behave: func(b enginetest.Behaviour) bool {
				script := fakeengine.Script{Known: known}
				switch b {
				case enginetest.Works:
				case enginetest.FailsForNow:
					script.Then = fakeengine.Step{Do: fakeengine.DoStatus, Status: 503}
				case enginetest.Refuses:
					script.Then = fakeengine.Step{Do: fakeengine.DoStatus, Status: 500, Code: "plan_error", Message: "no"}
				case enginetest.IsOverloaded:
					script.Then = fakeengine.Step{Do: fakeengine.DoStatus, Status: 429, RetryAfter: "2"}
				case enginetest.IsAway:
					script.Up, script.Down = 1, fakeengine.Duration(time.Hour)
				case enginetest.Hangs:
					script.Then = fakeengine.Step{Do: fakeengine.DoHang}
				case enginetest.FailsWithDirt:
					script.Then = fakeengine.Step{Do: fakeengine.DoDirty}
				}
				fake.Play(script)
				return true
			},
			Runs: func() map[string]json.RawMessage {
				runs := map[string]json.RawMessage{}
				for _, start := range fake.Starts() {
					if start.RunID != "" {
						runs[start.EventID] = start.Event
					}
				}
				return runs
			},
		}
	})
}

func TestTheRequestIsTheDocumentedOne(t *testing.T) {
	t.Parallel()

	var (
		got  *http.Request
		body string
	)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var text json.RawMessage
		_ = json.NewDecoder(r.Body).Decode(&text)
		got, body = r, string(text)
		_, _ = w.Write([]byte(`{"runId":"run_1"}`))
	}))
	t.Cleanup(server.Close)
	request := enginetest.Request(`{"a":1}`)
	request.WorkflowID = "wf/../x y"
	e := newEngine(t, server.URL+"/base", true)
	if result := e.StartRun(t.Context(), request); result.RunID != "run_1" {
		t.Fatalf("%+v", result)
	}
	want := `{"trigger":"webhook","variables":{},"event":{"a":1},"eventId":"` + request.EventID + `","subscriptionId":"` +
		request.Subscription.Reveal() + `","attempt":1,"causationId":"` + request.AttemptID + `"}`
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if got.Method != http.MethodPost || got.URL.EscapedPath() != "/base/workflows/wf%2F..%2Fx%20y/run" {
		t.Errorf("%s %s", got.Method, got.URL.EscapedPath())
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer s3cret", "Idempotency-Key": request.EventID, "Traceparent": request.Trace, "Content-Type": "application/json",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Header.Get(name), want)
		}
	}
}

// DESIGN §8: `retryable` decides when present; then the codes; then the status.
func TestAnswersAreClassified(t *testing.T) {
	t.Parallel()

	yes, no := true, false
	for name, c := range map[string]struct {
		step fakeengine.Step
		kind engine.Kind
		code string
	}{
		"404 alone":                       {fakeengine.Step{Status: 404}, engine.NonRetryable, "http_404"},
		"401":                             {fakeengine.Step{Status: 401, Code: "unauthorized"}, engine.NonRetryable, "unauthorized"},
		"408":                             {fakeengine.Step{Status: 408}, engine.Retryable, "http_408"},
		"425":                             {fakeengine.Step{Status: 425}, engine.Retryable, "http_425"},
		"429 without a time":              {fakeengine.Step{Status: 429}, engine.Retryable, "http_429"},
		"429 with a time":                 {fakeengine.Step{Status: 429, RetryAfter: "7"}, engine.Overloaded, "http_429"},
		"503 with a date":                 {fakeengine.Step{Status: 503, RetryAfter: "Tue, 01 Dec 2099 00:00:00 GMT"}, engine.Overloaded, "http_503"},
		"503 with nonsense":               {fakeengine.Step{Status: 503, RetryAfter: "soon"}, engine.Overloaded, "http_503"},
		"500 with a time":                 {fakeengine.Step{Status: 500, RetryAfter: "7"}, engine.Retryable, "http_500"},
		"500":                             {fakeengine.Step{Status: 500}, engine.Retryable, "http_500"},
		"redirect":                        {fakeengine.Step{Status: 307}, engine.Retryable, "http_307"},
		"plan_error on 500":               {fakeengine.Step{Status: 500, Code: "plan_error"}, engine.NonRetryable, "plan_error"},
		"invalid_variables on 503":        {fakeengine.Step{Status: 503, Code: "invalid_variables", RetryAfter: "1"}, engine.NonRetryable, "invalid_variables"},
		"unknown_workflow, but retryable": {fakeengine.Step{Status: 404, Code: "unknown_workflow", Retryable: &yes}, engine.Retryable, "unknown_workflow"},
		"500, but not retryable":          {fakeengine.Step{Status: 500, Code: "oops", Retryable: &no}, engine.NonRetryable, "oops"},
		"a code that is none":             {fakeengine.Step{Status: 500, Code: "a code\nwith lines"}, engine.Retryable, "http_500"},
		"2xx without a run id":            {fakeengine.Step{Do: fakeengine.DoNoRunID}, engine.Retryable, httpengine.CodeInvalidAnswer},
		"2xx that is no JSON":             {fakeengine.Step{Do: fakeengine.DoGarbage}, engine.Retryable, httpengine.CodeInvalidAnswer},
		"2xx that breaks off":             {fakeengine.Step{Do: fakeengine.DoCut}, engine.Retryable, httpengine.CodeInvalidAnswer},
		"reset":                           {fakeengine.Step{Do: fakeengine.DoDrop}, engine.Unreachable, httpengine.CodeUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, fake := setup(t)
			if c.step.Do == "" {
				c.step.Do = fakeengine.DoStatus
			}
			fake.Play(fakeengine.Script{Then: c.step})
			got := e.StartRun(t.Context(), enginetest.Request(`{}`))
			if got.Kind != c.kind || got.Err == nil || got.Err.Code != c.code || got.Err.Retryable == (c.kind == engine.NonRetryable) {
				t.Errorf("got %+v %v, want kind %d, code %s", got, got.Err, c.kind, c.code)
			}
			if strings.HasSuffix(name, "with a date") && got.Wait < time.Hour {
				t.Errorf("wait %s", got.Wait)
			}
		})
	}
}

func TestOddIDsAndTracesAreNoTrouble(t *testing.T) {
	t.Parallel()

	e, fake := setup(t)
	for id, want := range map[string]string{"..": "..", ".": ".", "a/b": "a%2Fb", "ü?x=1#y": "%C3%BC%3Fx=1%23y", "%2e": "%252e"} {
		request := enginetest.Request(`{}`)
		request.WorkflowID, request.Trace = id, "00-bad\r\nX-Evil: 1\x00"
		got := e.StartRun(t.Context(), request)
		starts := fake.Starts()
		if last := starts[len(starts)-1]; got.Kind != engine.Started || last.WorkflowID != want && last.WorkflowID != strings.ReplaceAll(want, ".", "%2E") || last.Trace != "" {
			t.Errorf("%q: %+v, reached as %q with trace %q", id, got, last.WorkflowID, last.Trace)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()

	followed := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusPermanentRedirect))
	t.Cleanup(server.Close)
	got := newEngine(t, server.URL, true).StartRun(t.Context(), enginetest.Request(`{}`))
	if followed || got.Kind != engine.Retryable {
		t.Errorf("followed %t, got %+v", followed, got)
	}
}

func TestPrivateAddressesAreRefusedUnlessAllowed(t *testing.T) {
	t.Parallel()

	server := httptest.NewServer(fakeengine.New(nil))
	t.Cleanup(server.Close)
	got := newEngine(t, server.URL, false).StartRun(t.Context(), enginetest.Request(`{}`))
	if got.Kind != engine.Unreachable || !strings.Contains(got.Err.Message, "not public") {
		t.Errorf("got %+v %v", got, got.Err)
	}
}

func TestErrorsDoNotShowThePasswordOfTheURL(t *testing.T) {
	t.Parallel()

	e := newEngine(t, "http://user:CANARY@127.0.0.1:1/", true)
	got := e.StartRun(t.Context(), enginetest.Request(`{}`))
	_, err := e.WorkflowExists(t.Context(), "", "wf")
	for _, text := range []string{got.Err.Error(), err.Error(), e.Ping(t.Context()).Error()} {
		if strings.Contains(text, "CANARY") {
			t.Error(text)
		}
	}
}

func TestAnEngineWithoutTheWorkflowRouteAcceptsAny(t *testing.T) {
	t.Parallel()

	e, fake := setup(t)
	fake.Play(fakeengine.Script{Known: []string{"wf_1"}, NoWorkflowRoute: true})
	if ok, err := e.WorkflowExists(t.Context(), "", "wf_any"); !ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()

	e, fake := setup(t)
	fake.Play(fakeengine.Script{Loop: true, Steps: []fakeengine.Step{{}, {Do: fakeengine.DoStatus, Status: 503}, {Do: fakeengine.DoNoRunID}}})
	for range 30 {
		e.StartRun(t.Context(), enginetest.Request(`{}`))
	}
	remotes := map[string]bool{}
	for _, start := range fake.Starts() {
		remotes[start.Remote] = true
	}
	if len(remotes) != 1 {
		t.Errorf("%d connections for 30 calls in a row", len(remotes))
	}
}

// A kept connection that the engine has closed meanwhile is no failed attempt.
func TestAStaleConnectionIsNoFailure(t *testing.T) {
	t.Parallel()

	fake := fakeengine.New(nil)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	e := newEngine(t, server.URL, true)
	for range 5 {
		if got := e.StartRun(t.Context(), enginetest.Request(`{}`)); got.Kind != engine.Started {
			t.Fatalf("got %+v %v", got, got.Err)
		}
		server.CloseClientConnections()
	}
}

func BenchmarkStartRun(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"runId":"run_1"}`))
	}))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	client := egress.NewClient(true, 0)
	if transport, ok := client.Transport.(*http.Transport); ok {
		transport.MaxIdleConnsPerHost = 64
	}
	e, err := httpengine.New(httpengine.Config{URL: u, Client: client})
	if err != nil {
		b.Fatal(err)
	}
	request := enginetest.Request(`{"text":"` + strings.Repeat("x", 1000) + `"}`)
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if got := e.StartRun(b.Context(), request); got.Kind != engine.Started {
				b.Errorf("%+v", got)
			}
		}
	})
}

package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/services/ingest/internal/api"
)

const (
	origin = "https://hooks.example"
	subID  = "sub_0123456789abcdefghjkmnpqrstvwxyz"
)

var when = time.Date(2026, 7, 3, 9, 0, 0, 123456789, time.FixedZone("", 7200))

// world is the manager, the ledger and the registry of tenant acme.
type world struct {
	mu        sync.Mutex
	sub       *trigger.Subscription
	event     *trigger.EventDetail
	run       *trigger.Run
	err       error // of the next write
	requested []manager.SubscribeRequest
	calls     []*trigger.Call
	pages     []trigger.Page
	workflows []string
	deleted   []trigger.SubscriptionID
	status    trigger.Status
	requeued  []string
	filters   []trigger.RequeueFilter
	states    map[string]trigger.AppState
	reloads   int
	destroyed []string
	put       []*trigger.Connection
	asked     []manager.OptionsRequest
	checks    *trigger.PollState
}

func (w *world) Subscribe(_ context.Context, tenant string, r manager.SubscribeRequest) (*trigger.Subscription, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requested = append(w.requested, r)
	s := *w.sub
	s.Tenant = tenant
	return &s, w.err
}

func (w *world) Unsubscribe(ctx context.Context, tenant string, id trigger.SubscriptionID) error {
	if _, err := w.GetSubscription(ctx, tenant, id); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleted = append(w.deleted, id)
	return w.err
}

func (w *world) GetSubscription(_ context.Context, tenant string, id trigger.SubscriptionID) (*trigger.Subscription, error) {
	if tenant != "acme" || id != subID {
		return nil, fmt.Errorf("get: %w", trigger.ErrUnknownSubscription)
	}
	return w.sub, nil
}

func (w *world) ListSubscriptionsForWorkflow(_ context.Context, tenant, workflow string, page trigger.Page) ([]*trigger.Subscription, string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages, w.workflows = append(w.pages, page), append(w.workflows, workflow)
	if tenant != "acme" {
		return nil, "", nil
	}
	return []*trigger.Subscription{w.sub}, "next", nil
}

func (w *world) SetEnabled(ctx context.Context, tenant string, id trigger.SubscriptionID, enabled bool) (*trigger.Subscription, error) {
	s, err := w.GetSubscription(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	changed := *s
	changed.Delivery = trigger.DeliveryPaused
	if enabled {
		changed.Delivery = trigger.DeliveryActive
	}
	return &changed, nil
}

func (w *world) Ingest(_ context.Context, _ trigger.SubscriptionID, call *trigger.Call) (trigger.IngestResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, call)
	return trigger.IngestResult{EventIDs: []string{"evt_1"}, Status: trigger.StatusReceived}, w.err
}

func (w *world) BodyMask(*trigger.Subscription) func(json.RawMessage) json.RawMessage {
	return func(body json.RawMessage) json.RawMessage { return body }
}

func (w *world) SubscriptionBySID(context.Context, int64) (*trigger.Subscription, error) {
	return &trigger.Subscription{}, nil
}

func (w *world) CallbackURL(id trigger.SubscriptionID) string {
	return origin + trigger.CallbackPath + id.Reveal()
}

func (w *world) Events(ctx context.Context, tenant string, id trigger.SubscriptionID, status trigger.Status, page trigger.Page) ([]trigger.EventSummary, string, error) {
	if _, err := w.GetSubscription(ctx, tenant, id); err != nil {
		return nil, "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages, w.status = append(w.pages, page), status
	return []trigger.EventSummary{w.event.EventSummary}, "", nil
}

func (w *world) Event(_ context.Context, tenant, id string) (*trigger.EventDetail, error) {
	if tenant != "acme" || id != w.event.ID {
		return nil, trigger.ErrUnknownEvent
	}
	return w.event, nil
}

func (w *world) Requeue(ctx context.Context, tenant, id string) error {
	if _, err := w.Event(ctx, tenant, id); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.requeued = append(w.requeued, id)
	}
	return w.err
}

func (w *world) RequeueAll(_ context.Context, tenant string, filter trigger.RequeueFilter) (*trigger.Operation, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.filters = append(w.filters, filter)
	return w.operation(tenant, "op_1", trigger.OperationRunning)
}

func (w *world) Operation(_ context.Context, tenant, id string) (*trigger.Operation, error) {
	return w.operation(tenant, id, trigger.OperationRunning)
}

func (w *world) CancelOperation(_ context.Context, tenant, id string) (*trigger.Operation, error) {
	return w.operation(tenant, id, trigger.OperationCancelled)
}

func (w *world) operation(tenant, id string, state trigger.OperationState) (*trigger.Operation, error) {
	if tenant != "acme" || id != "op_1" {
		return nil, trigger.ErrUnknownOperation
	}
	return &trigger.Operation{ID: id, State: state, Total: 130, Requeued: 50, CreatedAt: w.event.ReceivedAt}, w.err
}

func (w *world) Reingest(ctx context.Context, tenant, id string) (trigger.IngestResult, error) {
	if err := w.Requeue(ctx, tenant, id); err != nil {
		return trigger.IngestResult{}, err
	}
	return trigger.IngestResult{CallID: id, EventIDs: []string{"evt_2"}, Status: trigger.StatusReceived}, nil
}

func (w *world) UnsubscribeWorkflow(_ context.Context, tenant, workflow string) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.destroyed = append(w.destroyed, tenant+" "+workflow)
	return 2, w.err
}

func (w *world) ParamOptions(_ context.Context, tenant string, r manager.OptionsRequest) (json.RawMessage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, r)
	return json.RawMessage(`[{"value":"` + tenant + `"}]`), w.err
}

func (w *world) PollState(context.Context, int64) (*trigger.PollState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checks, nil
}

func (w *world) DeleteConnection(ctx context.Context, tenant, id string) (int, error) {
	if _, err := w.Connection(ctx, tenant, id); err != nil {
		return 0, err
	}
	return w.UnsubscribeWorkflow(ctx, tenant, id)
}

func (w *world) Connection(_ context.Context, tenant, id string) (*trigger.Connection, error) {
	if tenant != "acme" || id != "conn_1" {
		return nil, trigger.ErrUnknownConnection
	}
	return &trigger.Connection{
		ID: id, Tenant: tenant, AppID: "io.w6w.slack", Auth: "bot", State: trigger.ConnectionConnected, Display: json.RawMessage(`{"team":"T1"}`),
		Credential: trigger.Credential(`{"accessToken":"CANARY"}`), CreatedAt: when, UpdatedAt: when,
	}, nil
}

func (w *world) PutConnection(_ context.Context, c *trigger.Connection) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put = append(w.put, c)
	return len(w.put) == 1, w.err
}

func (w *world) SetAppState(_ context.Context, app string, state trigger.AppState) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states = map[string]trigger.AppState{app: state}
	return w.err
}

func (w *world) RequestReload(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reloads++
	return w.err
}

func (w *world) Run(_ context.Context, tenant, id string) (*trigger.Run, error) {
	if tenant != "acme" || id != w.run.ID {
		return nil, trigger.ErrUnknownRun
	}
	return w.run, nil
}

func (w *world) RunsOfWorkflow(_ context.Context, tenant, workflow string, _ trigger.Page) ([]trigger.Run, string, error) {
	if tenant != "acme" || workflow != w.run.WorkflowID {
		return nil, "", nil
	}
	return []trigger.Run{*w.run}, "", nil
}

type apps struct{}

func (apps) Refresh(context.Context) error { return nil }

func (apps) Reload(context.Context) error { return nil }

func (apps) app() *trigger.App {
	return &trigger.App{ID: "io.w6w.slack", Auth: []trigger.AuthMethod{{Key: "bot"}}, Version: "1.0.0", Hash: "abc", Title: "Slack", Triggers: []*trigger.Definition{apps{}.definition()}}
}

func (apps) definition() *trigger.Definition {
	return &trigger.Definition{
		AppID: "io.w6w.slack", Key: "new-message", Title: "New Message", Type: trigger.TypeWebhook, RequiresAuth: true,
		Params: json.RawMessage(`[{"key":"channelId","type":"string"},{"key":"signing","type":"secret"}]`), Sample: json.RawMessage(`{"id":"1"}`),
	}
}

func (a apps) Apps() []*trigger.App { return []*trigger.App{a.app()} }

func (a apps) App(id string) (*trigger.App, error) {
	if id != a.app().ID {
		return nil, fmt.Errorf("app %q: %w", id, trigger.ErrUnknownApp)
	}
	return a.app(), nil
}

func (a apps) Trigger(app, key string) (*trigger.Definition, error) {
	if app != a.app().ID {
		return nil, trigger.ErrUnknownApp
	}
	if key != "new-message" {
		return nil, trigger.ErrUnknownTrigger
	}
	return a.definition(), nil
}

// keys: "<tenant> <scope,scope>" is a key of that tenant with these scopes.
type keys struct{}

func (keys) Authenticate(_ context.Context, key secret.Text) (*apikey.Principal, error) {
	tenant, scopes, ok := strings.Cut(key.Reveal(), "/")
	if key == "away" {
		return nil, fmt.Errorf("ask: %w", trigger.ErrUnavailable)
	}
	if !ok {
		return nil, apikey.ErrUnknownKey
	}
	p := &apikey.Principal{KeyID: "k", Tenant: tenant}
	for scope := range strings.SplitSeq(scopes, ",") {
		p.Scopes = append(p.Scopes, apikey.Scope(scope))
	}
	return p, nil
}

type server struct {
	*world
	url    string
	health *obs.Health
	logs   *observer.ObservedLogs
}

func serve(t *testing.T) *server {
	t.Helper()
	started := when.Add(5 * time.Second)
	core, logs := observer.New(zap.InfoLevel)
	s := &server{health: obs.NewHealth(zap.NewNop()), logs: logs, world: &world{
		sub: &trigger.Subscription{
			ID: subID, Tenant: "acme", AppID: "io.w6w.slack", TriggerKey: "new-message", WorkflowID: "wf_1",
			Params: json.RawMessage(`{"channelId":"C01","signing":"CANARY"}`), State: json.RawMessage(`{"webhookId":"wh_1","secret":"CANARY"}`),
			Delivery: trigger.DeliveryActive, Lifecycle: trigger.LifecycleLive, CreatedAt: when, UpdatedAt: when,
		},
		event: &trigger.EventDetail{
			EventSummary: trigger.EventSummary{
				ID: "evt_1", Subscription: subID, WorkflowID: "wf_1", Tenant: "acme", Status: trigger.StatusDispatched, Attempts: 2, ReceivedAt: when,
				DispatchedAt: &started, RunID: "run_1", Source: trigger.SourceWebhook, CallID: "evt_1",
			},
			Call: &trigger.StoredCall{
				Method: "POST", Path: trigger.CallbackPath + subID, RawQuery: "a=1",
				Header: []trigger.Field{{Name: "content-type", Value: "text/html"}, {Name: "authorization", Value: "[redacted]"}}, Body: []byte("<b>\x00\xff"),
			},
			Normalized: json.RawMessage(`{"z":1, "a":"\u0000<>", "n":12345678901234567890.10}`),
			AttemptLog: []trigger.Attempt{
				{ID: "att_1", Attempt: 1, Outcome: trigger.AttemptRetrying, Code: "http_503", Message: "busy", EndedAt: when, Duration: 1500 * time.Microsecond},
				{ID: "att_2", Attempt: 2, Outcome: trigger.AttemptDelivered, RunID: "run_1", EndedAt: started, Duration: time.Second},
			},
		},
		run: &trigger.Run{
			ID: "run_1", Tenant: "acme", WorkflowID: "wf_1", EventID: "evt_1", Subscription: subID, AttemptID: "att_2", Trigger: "webhook", Status: "succeeded",
			Event: json.RawMessage(`{"a": 1}`), StartedAt: when, Log: json.RawMessage(`[]`),
		},
	}}
	a := api.New(api.Config{
		Manager: s.world, Ledger: s.world, Apps: apps{}, Keys: keys{}, HostURL: origin, Health: s.health, Metrics: obs.NewRegistry("test"), Log: zap.New(core),
	})
	listener := httptest.NewServer(a.Handler())
	t.Cleanup(listener.Close)
	s.url = listener.URL
	return s
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (s *server) ask(t *testing.T, key, method, path, body string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, strings.TrimSuffix(string(text), "\n")}
}

const (
	subscriptionJSON = `{"id":"` + subID + `","appId":"io.w6w.slack","triggerKey":"new-message","connectionId":null,"workflowId":"wf_1",` +
		`"params":{"channelId":"C01","signing":"[redacted]"},"state":{"secret":"[redacted]","webhookId":"[redacted]"},"enabled":true,"delivery":"active",` +
		`"createdAt":"2026-07-03T07:00:00.123Z","updatedAt":"2026-07-03T07:00:00.123Z",` +
		`"callbackUrl":"https://hooks.example/triggers/webhooks/` + subID + `","webhookUrl":"https://hooks.example/triggers/webhooks/` + subID + `"}`
	eventLine = `"id":"evt_1","subscriptionId":"` + subID + `","status":"dispatched","attempts":2,"receivedAt":"2026-07-03T07:00:00.123Z",` +
		`"dispatchedAt":"2026-07-03T07:00:05.123Z","runId":"run_1"`
	triggersJSON = `[{"key":"new-message","title":"New Message","type":"webhook","requiresAuth":true,` +
		`"params":[{"key":"channelId","type":"string"},{"key":"signing","type":"secret"}],"sample":{"id":"1"}}]`
	appJSON        = `{"id":"io.w6w.slack","title":"Slack","version":"1.0.0","state":"active","hasAuth":false,"triggerCount":1}`
	connectionJSON = `{"connection":{"id":"conn_1","app":"io.w6w.slack","auth":"bot","state":"connected","display":{"team":"T1"},"hasCredential":true,` +
		`"expiresAt":null,"lastRefreshedAt":null,"createdAt":"2026-07-03T07:00:00.123Z","updatedAt":"2026-07-03T07:00:00.123Z"}}`
	runLine = `"runId":"run_1","status":"succeeded","trigger":"webhook","startedAt":"2026-07-03T07:00:00.123Z","finishedAt":null,"eventId":"evt_1"`
)

func TestAnswersHaveTheHostedClientsShapes(t *testing.T) {
	t.Parallel()

	s := serve(t)
	for _, c := range []struct {
		request, body string
		status        int
		want          string
	}{
		{"GET /subscriptions", "", 200, `{"subscriptions":[` + subscriptionJSON + `],"nextCursor":"next"}`},
		{"GET /workflows/wf_1/subscriptions", "", 200, `{"subscriptions":[` + subscriptionJSON + `],"nextCursor":"next"}`},
		{"GET /subscriptions/" + subID, "", 200, `{"subscription":` + subscriptionJSON + `}`},
		{"POST /apps/io.w6w.slack/triggers/new-message/subscriptions", `{"workflowId":"wf_1","connectionId":null,"params":{"a":1}}`, 201, `{"subscription":` + subscriptionJSON + `}`},
		{"PATCH /subscriptions/" + subID, `{"enabled":true}`, 200, `{"subscription":` + subscriptionJSON + `}`},
		{"DELETE /subscriptions/" + subID, "", 200, `{"ok":true}`},
		{"POST /subscriptions/" + subID + "/test", "", 200, `{"eventIds":["evt_1"],"status":"received"}`},
		{"GET /subscriptions/" + subID + "/events", "", 200, `{"events":[{` + eventLine + `}]}`},
		{
			"GET /trigger-events/evt_1", "", 200, `{"event":{` + eventLine + `,"workflowId":"wf_1","source":"webhook","callId":"evt_1"},` +
				`"call":{"method":"POST","path":"/triggers/webhooks/` + subID + `","query":{"a":"1"},"headers":{"content-type":"text/html","authorization":"[redacted]"},` +
				`"body":"<b>\u0000` + "\uFFFD" + `","url":"https://hooks.example/triggers/webhooks/` + subID + `?a=1","rawQuery":"a=1",` +
				`"headerValues":{"content-type":["text/html"],"authorization":["[redacted]"]},"queryValues":{"a":["1"]}},` +
				`"payload":{"z":1, "a":"\u0000<>", "n":12345678901234567890.10},` +
				`"attempts":[{"id":"att_1","attempt":1,"outcome":"retrying","runId":null,"error":{"code":"http_503","message":"busy"},"endedAt":"2026-07-03T07:00:00.123Z","durationMs":1},` +
				`{"id":"att_2","attempt":2,"outcome":"delivered","runId":"run_1","error":null,"endedAt":"2026-07-03T07:00:05.123Z","durationMs":1000}],` +
				`"explain":"It has run: attempt 2 started run run_1 at 2026-07-03 07:00:05 UTC."}`,
		},
		{"POST /trigger-events/evt_1/requeue", "", 200, `{"ok":true}`},
		{"POST /trigger-events/evt_1/reingest", "", 200, `{"eventIds":["evt_2"],"status":"received"}`},
		{"POST /trigger-events/requeue", `{"subscriptionId":"` + subID + `","errorCode":"plan_error"}`, 202, `{"operation":` + operationLine("running") + `}`},
		{"POST /trigger-events/requeue", `{"all":true}`, 202, `{"operation":` + operationLine("running") + `}`},
		{"GET /operations/op_1", "", 200, `{"operation":` + operationLine("running") + `}`},
		{"DELETE /operations/op_1", "", 200, `{"operation":` + operationLine("cancelled") + `}`},
		{"PATCH /apps/io.w6w.slack", `{"state":"disabled"}`, 200, `{"app":` + appJSON + `}`},
		{"POST /apps/reload", "", 200, `{"apps":[` + appJSON + `]}`},
		{"POST /apps/io.w6w.slack/triggers/new-message/params/filter.label/options", `{"connectionId":"conn_1","form":{"a":1}}`, 200, `{"options":[{"value":"acme"}]}`},
		{"PUT /connections/conn_1", `{"app":"io.w6w.slack","auth":"bot","credential":{"accessToken":"CANARY"},"display":null}`, 201, connectionJSON},
		{"PUT /connections/conn_1", `{"app":"io.w6w.slack","auth":"bot","label":"L","expiresAt":"2026-07-03T09:00:00+02:00"}`, 200, connectionJSON},
		{"GET /connections/conn_1", "", 200, connectionJSON},
		{"DELETE /connections/conn_1", "", 200, `{"ok":true,"subscriptions":2}`},
		{"DELETE /workflows/wf_1", "", 200, `{"ok":true,"subscriptions":2}`},
		{"GET /apps", "", 200, `{"apps":[` + appJSON + `]}`},
		{"GET /apps/io.w6w.slack", "", 200, `{"app":` + appJSON + `,"actions":[],"triggers":` + triggersJSON + `,"version":"1.0.0","digest":"abc"}`},
		{"GET /apps/io%2Ew6w%2Eslack/triggers", "", 200, `{"triggers":` + triggersJSON + `}`},
		{"GET /runs/run_1", "", 200, `{"run":{"runId":"run_1","workflowId":"wf_1","status":"succeeded","trigger":"webhook","variables":{},"steps":{},` +
			`"startedAt":"2026-07-03T07:00:00.123Z","finishedAt":null,"eventId":"evt_1","subscriptionId":"` + subID + `","causationId":"att_2","event":{"a": 1},"log":[]}}`},
		{"GET /workflows/wf_1/runs", "", 200, `{"runs":[{` + runLine + `}]}`},
		{"GET /workflows/wf_2/runs", "", 200, `{"runs":[]}`},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		got := s.ask(t, "acme/admin", method, path, c.body)
		if got.status != c.status || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s %s", c.request, got.status, got.header.Get("Content-Type"), got.body)
		}
		if diff := cmp.Diff(c.want, got.body); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.request, diff)
		}
	}
	if diff := cmp.Diff([]manager.SubscribeRequest{{AppID: "io.w6w.slack", TriggerKey: "new-message", WorkflowID: "wf_1", Params: json.RawMessage(`{"a":1}`)}}, s.requested); diff != "" {
		t.Errorf("subscribe (-want +got):\n%s", diff)
	}
	if s.states["io.w6w.slack"] != trigger.AppDisabled || s.reloads != 1 || cmp.Diff([]string{"acme conn_1", "acme wf_1"}, s.destroyed) != "" {
		t.Errorf("states %v, %d reloads, destroyed %v", s.states, s.reloads, s.destroyed)
	}
	if diff := cmp.Diff([]manager.OptionsRequest{{
		AppID: "io.w6w.slack", TriggerKey: "new-message", Param: "filter.label", ConnectionID: "conn_1", Form: json.RawMessage(`{"a":1}`),
	}}, s.asked); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if first, second := s.put[0], s.put[1]; first.Tenant != "acme" || first.State != trigger.ConnectionConnected || first.Display != nil ||
		string(first.Credential.Reveal()) != `{"accessToken":"CANARY"}` || second.Credential != nil || second.State != trigger.ConnectionConnected ||
		second.ExpiresAt == nil || second.Label != "L" {
		t.Errorf("put %+v and %+v", first, second)
	}
	if diff := cmp.Diff([]string{"", "wf_1"}, s.workflows); diff != "" {
		t.Errorf("workflows listed (-want +got):\n%s", diff)
	}
}

func TestAPollsIntervalAndItsChecksAreSeen(t *testing.T) {
	t.Parallel()

	s := serve(t)
	s.checks = &trigger.PollState{Interval: 90 * time.Second, NextAt: when, Failures: 2, Code: "hook_threw", Message: "away", Running: true}
	got := s.ask(t, "acme/admin", "GET", "/subscriptions/"+subID, "")
	want := `"poll":{"intervalMs":90000,"nextAt":"2026-07-03T07:00:00.123Z","lastAt":null,"failures":2,"running":true,"error":{"code":"hook_threw","message":"away"}}`
	if got.status != 200 || !strings.Contains(got.body, want) {
		t.Errorf("%d %s, want %s in it", got.status, got.body, want)
	}
	const create = "/apps/io.w6w.slack/triggers/new-message/subscriptions"
	if got := s.ask(t, "acme/admin", "POST", create, `{"workflowId":"wf","pollIntervalMs":90000}`); got.status != 201 || s.requested[0].PollInterval != 90*time.Second {
		t.Errorf("%d %s: %+v", got.status, got.body, s.requested)
	}
	for _, bad := range []string{"-1", "31536000001", `"1m"`, "1.5"} {
		if got := s.ask(t, "acme/admin", "POST", create, `{"workflowId":"wf","pollIntervalMs":`+bad+`}`); got.status != 400 {
			t.Errorf("%s: %d %s", bad, got.status, got.body)
		}
	}
}

func TestEveryRouteNeedsAKeyWithItsScope(t *testing.T) {
	t.Parallel()

	s := serve(t)
	for request, scope := range map[string]string{
		"GET /subscriptions":                       "subscriptions:read",
		"GET /workflows/w/subscriptions":           "subscriptions:read",
		"GET /subscriptions/x":                     "subscriptions:read",
		"POST /apps/a/triggers/b/subscriptions":    "subscriptions:write",
		"PATCH /subscriptions/x":                   "subscriptions:write",
		"DELETE /subscriptions/x":                  "subscriptions:write",
		"POST /subscriptions/x/test":               "events:write",
		"GET /subscriptions/x/events":              "events:read",
		"GET /trigger-events/x":                    "events:read",
		"GET /trigger-events/x/raw":                "events:read",
		"POST /trigger-events/x/requeue":           "events:write",
		"POST /trigger-events/x/reingest":          "events:write",
		"POST /trigger-events/requeue":             "events:write",
		"GET /operations/x":                        "events:read",
		"DELETE /operations/x":                     "events:write",
		"PATCH /apps/a":                            "apps:write",
		"POST /apps/reload":                        "apps:write",
		"POST /apps/a/triggers/b/params/c/options": "subscriptions:write",
		"DELETE /workflows/w":                      "subscriptions:write",
		"GET /connections/c":                       "connections:read",
		"PUT /connections/c":                       "connections:write",
		"DELETE /connections/c":                    "connections:write",
		"GET /apps":                                "apps:read",
		"GET /apps/a":                              "apps:read",
		"GET /apps/a/triggers":                     "apps:read",
		"GET /runs/x":                              "runs:read",
		"GET /workflows/w/runs":                    "runs:read",
	} {
		method, path, _ := strings.Cut(request, " ")
		for _, key := range []string{"", "wrong", "Basic x"} {
			got := s.ask(t, key, method, path, "")
			if got.status != 401 || got.header.Get("WWW-Authenticate") == "" || !strings.Contains(got.body, `"code":"unauthorized"`) {
				t.Errorf("%s with key %q: %+v", request, key, got)
			}
		}
		others := []string{"runs:create"}
		for _, other := range apikey.Scopes() {
			if string(other) != scope && other != apikey.Admin && strings.TrimSuffix(string(other), ":write") != strings.TrimSuffix(scope, ":read") {
				others = append(others, string(other))
			}
		}
		if got := s.ask(t, "acme/"+strings.Join(others, ","), method, path, ""); got.status != 403 || !strings.Contains(got.body, "forbidden") || !strings.Contains(got.body, scope) {
			t.Errorf("%s without %s: %+v", request, scope, got)
		}
		if got := s.ask(t, "acme/"+scope, method, path, ""); got.status == 401 || got.status == 403 {
			t.Errorf("%s with %s: %+v", request, scope, got)
		}
	}
	if got := s.ask(t, "away", "GET", "/apps", ""); got.status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("keys cannot be asked: %+v", got)
	}
}

func TestAnotherTenantsObjectsDoNotExist(t *testing.T) {
	t.Parallel()

	s := serve(t)
	for _, request := range []string{
		"GET /subscriptions/" + subID, "PATCH /subscriptions/" + subID, "DELETE /subscriptions/" + subID, "POST /subscriptions/" + subID + "/test",
		"GET /subscriptions/" + subID + "/events", "GET /trigger-events/evt_1", "GET /trigger-events/evt_1/raw", "POST /trigger-events/evt_1/requeue", "POST /trigger-events/evt_1/reingest", "GET /runs/run_1",
		"GET /connections/conn_1", "DELETE /connections/conn_1",
	} {
		method, path, _ := strings.Cut(request, " ")
		theirs := s.ask(t, "other/admin", method, path, `{"enabled":false}`)
		missing := s.ask(t, "acme/admin", method, strings.NewReplacer(subID, "sub_x", "evt_1", "evt_x", "run_1", "run_x", "conn_1", "conn_x").Replace(path), `{"enabled":false}`)
		if theirs.status != 404 || theirs.body != missing.body || missing.status != 404 {
			t.Errorf("%s: %d %s, of a missing one: %d %s", request, theirs.status, theirs.body, missing.status, missing.body)
		}
	}
	if len(s.calls)+len(s.deleted)+len(s.requeued) != 0 {
		t.Error("something was done to another tenant's object")
	}
}

func TestErrorsHaveTheirStatusAndCode(t *testing.T) {
	t.Parallel()

	s := serve(t)
	const create = "POST /apps/a/triggers/b/subscriptions"
	const good = `{"workflowId":"wf_1"}`
	for name, c := range map[string]struct {
		request, body string
		err           error
		status        int
		want          string
	}{
		"unknown app":      {create, good, fmt.Errorf("x: %w", trigger.ErrUnknownApp), 404, `{"error":{"code":"unknown_app","message":"there is no such app"}}`},
		"unknown trigger":  {create, good, trigger.ErrUnknownTrigger, 404, `{"error":{"code":"unknown_trigger","message":"the app has no such trigger"}}`},
		"unknown workflow": {create, good, trigger.ErrUnknownWorkflow, 404, `{"error":{"code":"unknown_workflow","message":"the engine knows no such workflow"}}`},
		"bad params": {
			create, good, &trigger.InvalidError{Code: "param_invalid", Message: "1 param is wrong", Details: []trigger.FieldError{{Path: "a.b", Message: "required"}}}, 400,
			`{"error":{"code":"param_invalid","message":"1 param is wrong","details":[{"path":"a.b","message":"required"}]}}`,
		},
		"the vendor refuses": {
			create, good, &manager.HookFailedError{Hook: "onSubscribe", Err: &trigger.StepError{Code: "hook_threw", Message: "no"}}, 424,
			`{"error":{"code":"hook_threw","message":"onSubscribe: no"}}`,
		},
		"not reingestable": {"POST /trigger-events/evt_1/reingest", "", trigger.ErrNotReingestable, 409, `{"error":{"code":"not_requeueable","message":"only a call whose handleIngest failed, of a subscription that is still there, can be ingested again"}}`},
		"no such auth":     {"PUT /connections/c", `{"app":"io.w6w.slack","auth":"x"}`, nil, 400, `{"error":{"code":"invalid_body","message":"auth must be the key of one of the app's auth methods"}}`},
		"no such app":      {"PUT /connections/c", `{"app":"x"}`, nil, 404, `{"error":{"code":"unknown_app","message":"there is no such app"}}`},
		"another's id":     {"PUT /connections/c", `{"app":"io.w6w.slack"}`, trigger.ErrConflict, 409, `{"error":{"code":"conflict","message":"the object changed meanwhile; read it again"}}`},
		"no such state":    {"PATCH /apps/io.w6w.slack", `{"state":"off"}`, nil, 400, `{"error":{"code":"invalid_body","message":"state must be active, disabled or archived"}}`},
		"no app to change": {"PATCH /apps/none", `{"state":"active"}`, nil, 404, `{"error":{"code":"unknown_app","message":"there is no such app"}}`},
		"no database":      {create, good, fmt.Errorf("x: %w", trigger.ErrUnavailable), 503, `{"error":{"code":"unavailable","message":"the database or the engine cannot be asked now; try again"}}`},
		"a bug":            {create, good, errors.New("CANARY"), 500, `{"error":{"code":"internal","message":"something went wrong here; the log says what"}}`},
		"no body":          {create, "", nil, 400, `{"error":{"code":"invalid_body","message":"the body must be a JSON object in UTF-8"}}`},
		"a list":           {create, "[]", nil, 400, `{"error":{"code":"invalid_body","message":"the body must be a JSON object in UTF-8"}}`},
		"broken":           {create, `{"workflowId":`, nil, 400, `{"error":{"code":"invalid_body","message":"the body is not valid JSON"}}`},
		"trailing":         {create, good + "x", nil, 400, `{"error":{"code":"invalid_body","message":"the body is not valid JSON"}}`},
		"wrong type":       {create, `{"workflowId":1}`, nil, 400, `{"error":{"code":"invalid_body","message":"workflowId must not be a number"}}`},
		"no workflow":      {create, `{}`, nil, 400, `{"error":{"code":"invalid_body","message":"workflowId is required; ids have at most 256 bytes and no control characters"}}`},
		"NUL":              {create, `{"workflowId":"a\u0000"}`, nil, 400, `{"error":{"code":"invalid_body","message":"workflowId is required; ids have at most 256 bytes and no control characters"}}`},
		"no flag":          {"PATCH /subscriptions/" + subID, `{}`, nil, 400, `{"error":{"code":"invalid_body","message":"enabled is required: true or false"}}`},
		"too large":        {create, `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, nil, 413, `{"error":{"code":"body_too_large","message":"the body is larger than this API takes"}}`},
		"limit":            {"GET /subscriptions?limit=x", "", nil, 400, `{"error":{"code":"invalid_limit","message":"limit must be a number from 1 to 200"}}`},
		"cursor":           {"GET /subscriptions?cursor=%00", "", nil, 400, `{"error":{"code":"invalid_cursor","message":"the cursor is not one that this list gave out"}}`},
		"status":           {"GET /subscriptions/" + subID + "/events?status=gone", "", nil, 400, `{"error":{"code":"invalid_status","message":"status must be one of received, dispatching, dispatched, failed, ignored"}}`},
		"no such route":    {"GET /nothing", "", nil, 404, `{"error":{"code":"not_found","message":"there is no such route"}}`},
		"no such method":   {"PUT /subscriptions", "", nil, 405, `{"error":{"code":"method_not_allowed","message":"the route does not take this method"}}`},
		"NUL in an id":     {"GET /subscriptions/%00", "", nil, 404, `{"error":{"code":"unknown_subscription","message":"there is no such subscription"}}`},
		"not UTF-8":        {"GET /trigger-events/%ff", "", nil, 404, `{"error":{"code":"unknown_event","message":"there is no such event"}}`},
		"C20 not failed":   {"POST /trigger-events/evt_1/requeue", "", fmt.Errorf("x: %w", trigger.ErrNotRequeueable), 409, `{"error":{"code":"not_requeueable","message":"only a failed event with a payload, of a subscription that is still there, can be requeued"}}`},
		"C20 unknown":      {"POST /trigger-events/evt_x/requeue", "", nil, 404, `{"error":{"code":"requeue_failed","message":"there is no such event"}}`},
		"requeue, no db":   {"POST /trigger-events/evt_1/requeue", "", trigger.ErrUnavailable, 503, `{"error":{"code":"unavailable","message":"the database or the engine cannot be asked now; try again"}}`},
		"test, too much":   {"POST /subscriptions/" + subID + "/test", "", trigger.ErrBackPressure, 429, `{"error":{"code":"back_pressure","message":"too many calls are waiting to be stored; try again"}}`},
		"changed":          {"DELETE /subscriptions/" + subID, "", trigger.ErrConflict, 409, `{"error":{"code":"conflict","message":"the object changed meanwhile; read it again"}}`},
	} {
		s.mu.Lock()
		s.err = c.err
		s.mu.Unlock()
		method, path, _ := strings.Cut(c.request, " ")
		got := s.ask(t, "acme/admin", method, path, c.body)
		if got.status != c.status {
			t.Errorf("%s: status %d, want %d", name, got.status, c.status)
		}
		if diff := cmp.Diff(c.want, got.body); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if retry := got.header.Get("Retry-After") != ""; retry != (c.status == 503 || c.status == 429) {
			t.Errorf("%s: Retry-After %q", name, got.header.Get("Retry-After"))
		}
	}
}

func TestLimitsAndCursorsAreHandedOn(t *testing.T) {
	t.Parallel()

	s := serve(t)
	s.ask(t, "acme/admin", "GET", "/subscriptions/"+subID+"/events?limit=1000&cursor=abc&status=failed", "")
	if len(s.pages) != 1 || s.pages[0].Size() != 200 || s.pages[0].Cursor != "abc" || s.status != trigger.StatusFailed {
		t.Errorf("%+v, status %q", s.pages, s.status)
	}
}

func TestRawIsTheBytesAndNothingRunsThem(t *testing.T) {
	t.Parallel()

	s := serve(t)
	got := s.ask(t, "acme/events:read", "GET", "/trigger-events/evt_1/raw", "")
	if got.status != 200 || got.body != "<b>\x00\xff" {
		t.Errorf("%d %q", got.status, got.body)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html", "X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment; filename=evt_1.bin",
		"Content-Security-Policy": "default-src 'none'; sandbox",
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.header.Get(name), want)
		}
	}
}

func TestATestCallIsWhatAVendorWouldSend(t *testing.T) {
	t.Parallel()

	s := serve(t)
	s.ask(t, "acme/admin", "POST", "/subscriptions/"+subID+"/test", "")
	s.ask(t, "acme/admin", "POST", "/subscriptions/"+subID+"/test", "hello")
	want := []*trigger.Call{
		{Source: trigger.SourceTest, Method: "POST", Path: trigger.CallbackPath + subID, Header: []trigger.Field{{Name: "content-type", Value: "application/json"}}, Body: []byte(`{"id":"1"}`)},
		{Source: trigger.SourceTest, Method: "POST", Path: trigger.CallbackPath + subID, Body: []byte("hello")},
	}
	if diff := cmp.Diff(want, s.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestSecretsOfASubscriptionWhoseAppIsGoneStayHidden(t *testing.T) {
	t.Parallel()

	s := serve(t)
	s.sub.AppID = "gone"
	s.sub.State = json.RawMessage(`"CANARY"`)
	got := s.ask(t, "acme/admin", "GET", "/subscriptions/"+subID, "")
	if got.status != 200 || strings.Contains(got.body, "CANARY") || !strings.Contains(got.body, `"state":"[redacted]"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestAnEventWithoutACallHasNoRawBytes(t *testing.T) {
	t.Parallel()

	s := serve(t)
	s.event.Call = &trigger.StoredCall{Source: trigger.SourcePoll}
	if got := s.ask(t, "acme/admin", "GET", "/trigger-events/evt_1/raw", ""); got.status != 404 {
		t.Errorf("raw: %d", got.status)
	}
	if got := s.ask(t, "acme/admin", "GET", "/trigger-events/evt_1", ""); !strings.Contains(got.body, `"call":null`) {
		t.Errorf("detail: %s", got.body)
	}
}

func TestHealthAndMetricsNeedNoKey(t *testing.T) {
	t.Parallel()

	s := serve(t)
	s.ask(t, "acme/admin", "GET", "/subscriptions/"+subID, "")
	if got := s.ask(t, "", "GET", "/healthz", ""); got.status != 200 {
		t.Errorf("healthz: %+v", got)
	}
	if got := s.ask(t, "", "GET", "/readyz", ""); got.status != 200 {
		t.Errorf("readyz: %+v", got)
	}
	if got := s.ask(t, "", "HEAD", "/healthz", ""); got.status != 200 {
		t.Errorf("HEAD healthz: %+v", got)
	}
	got := s.ask(t, "", "GET", "/metrics", "")
	if got.status != 200 || !strings.Contains(got.body, `tocsin_api_requests_total{method="GET",route="/subscriptions/:id",status="200"} 1`) || strings.Contains(got.body, subID) {
		t.Errorf("metrics: %d\n%s", got.status, got.body)
	}
	s.health.Stop("stopping")
	if got := s.ask(t, "", "GET", "/readyz", ""); got.status != 503 {
		t.Errorf("readyz when stopping: %+v", got)
	}
}

func TestARequeueIsLogged(t *testing.T) {
	t.Parallel()

	s := serve(t)
	s.ask(t, "acme/events:write", "POST", "/trigger-events/evt_1/requeue", "")
	if lines := s.logs.FilterMessage("event.requeued").All(); len(lines) != 1 || lines[0].ContextMap()["event_id"] != "evt_1" || lines[0].ContextMap()["tenant"] != "acme" {
		t.Errorf("lines: %+v", lines)
	}
}

func TestAnAppIDMayHoldASlash(t *testing.T) {
	t.Parallel()

	s := serve(t)
	s.ask(t, "acme/admin", "POST", "/apps/%40w6w%2Fwebhook/triggers/call/subscriptions", `{"workflowId":"wf_1"}`)
	if len(s.requested) != 1 || s.requested[0].AppID != "@w6w/webhook" {
		t.Errorf("%+v", s.requested)
	}
}

// Package managertest is the w6w Trigger RFC's §TriggerManager as a suite. Each
// test quotes the sentence that it proves.
package managertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Bundle is a TriggerManager with the app io.tocsin.test.suite loaded, on a
// ledger of its own.
type Bundle struct {
	Manager *manager.TriggerManager
	// Other is a second manager on the same ledger, as another process has it.
	Other *manager.TriggerManager
	// Event reads an event of tenant "default".
	Event func(t *testing.T, id string) *trigger.EventDetail
	// Rows counts what the ledger holds of a subscription.
	Rows func(t *testing.T, id trigger.SubscriptionID) int
	// Elapse moves the waits of all open events into the past.
	Elapse func(t *testing.T)
	// ElapsePolls makes every poll due.
	ElapsePolls func(t *testing.T)
	// SetApp sets the operator's word on the app.
	SetApp func(t *testing.T, state trigger.AppState)
}

const (
	app      = "io.tocsin.test.suite"
	tenant   = "default"
	workflow = "wf_known"
)

// Exercise runs the suite; setup gives each test its own Bundle, whose engine
// knows the workflow "wf_known" only.
func Exercise(t *testing.T, setup func(t *testing.T) *Bundle) {
	for name, test := range map[string]func(*testing.T, *Bundle){
		"subscribe asks the app what a param may be":                   subscribeAsks,
		"subscribe keeps the state that onSubscribe returned":          subscribeKeepsState,
		"subscribe leaves nothing when onSubscribe throws":             subscribeThrows,
		"subscribe validates params, trigger and workflow":             subscribeValidates,
		"unsubscribe deletes even when the hook fails":                 unsubscribeDeletes,
		"subscriptions are read by their tenant alone":                 subscriptionsAreTheTenants,
		"ingest persists every event before it returns":                ingestPersists,
		"ingest without a parser takes the body as the event":          ingestBody,
		"ingest keeps a call whose parser throws as one failed row":    ingestThrows,
		"ingest keeps a call without events as one ignored row":        ingestEmpty,
		"reingest gives a failed call its events, once":                reingests,
		"reingest refuses what never failed in its parser":             reingestRefuses,
		"ingest answers what the parser asks for":                      ingestResponds,
		"ingest shows the parser the whole call and stores it masked":  ingestMasks,
		"ingest ignores the calls of archived and disabled apps":       ingestIgnores,
		"drainPending never gives an event twice":                      drainDisjoint,
		"drainPending is first in, first out among what is due":        drainFIFO,
		"drainPending skips disabled subscriptions and loses nothing":  drainDisabled,
		"markDispatched retries with 5, 10, 20, 40 s and then fails":   markRetries,
		"markDispatched fails at once what cannot be retried":          markNonRetryable,
		"parseOutput makes the payload, from the masked call":          parseOutput,
		"parseOutput's throw is a retryable failure":                   parseOutputThrows,
		"poll commits nextState with its events":                       pollMoves,
		"poll that throws moves nothing and waits longer":              pollThrows,
		"poll is made once an interval across processes":               pollOnce,
		"poll is not run for disabled subscriptions and archived apps": pollSkipped,
		"parseOutput is optional: the event is the stored value":       parseOutputAbsent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, setup(t))
		})
	}
}

func (b *Bundle) subscribe(t *testing.T, key, params string) *trigger.Subscription {
	t.Helper()
	s, err := b.Manager.Subscribe(t.Context(), tenant, manager.SubscribeRequest{
		AppID: app, TriggerKey: key, WorkflowID: workflow, Params: json.RawMessage(params),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func call(body string) *trigger.Call {
	return &trigger.Call{
		Source: trigger.SourceWebhook, Method: "POST", Path: "/triggers/webhooks/x", RawQuery: "a=1&token=canary-q",
		Header: []trigger.Field{{Name: "content-type", Value: "application/json"}, {Name: "authorization", Value: "Bearer canary-h"}},
		Body:   []byte(body),
	}
}

func (b *Bundle) ingest(t *testing.T, s *trigger.Subscription, body string) trigger.IngestResult {
	t.Helper()
	result, err := b.Manager.Ingest(t.Context(), s.ID, call(body))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (b *Bundle) drain(t *testing.T, m *manager.TriggerManager, limit int) []*trigger.PendingEvent {
	t.Helper()
	events, err := m.DrainPending(t.Context(), trigger.ClaimRequest{Owner: "suite", Limit: limit, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func (b *Bundle) mark(t *testing.T, event *trigger.PendingEvent, failure *trigger.StepError) {
	t.Helper()
	outcome := trigger.Outcome{Event: event, AttemptID: fmt.Sprintf("att_%s_%d", event.ID, event.Attempts), Err: failure}
	if failure == nil {
		outcome.RunID = "run_" + event.ID
	}
	lost, err := b.Manager.MarkDispatched(t.Context(), outcome)
	if err != nil || len(lost) > 0 {
		t.Fatalf("mark: lost %v, %v", lost, err)
	}
}

func decode[T any](t *testing.T, text json.RawMessage) (value T) {
	t.Helper()
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

// “Calls onSubscribe. Persists the returned state.” “Persisted verbatim on the
// subscription.” “URL the transport adapter serves for this subscription.”
func subscribeKeepsState(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "managed", `{"channel":"C01","undeclared":1}`)
	got, err := b.Manager.GetSubscription(t.Context(), tenant, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	type urls struct{ CallbackURL, HostURL string }
	state := decode[struct {
		Params         json.RawMessage
		SubscriptionID string
		CallbackURL    string
		HostURL        string
		HostContext    urls
	}](t, got.State)
	want := "https://tocsin.example/triggers/webhooks/" + s.ID.Reveal()
	if state.CallbackURL != want || state.HostContext.CallbackURL != want || state.SubscriptionID != s.ID.Reveal() {
		t.Errorf("the hook was given %+v, want callback %s", state, want)
	}
	if state.HostURL != "https://tocsin.example" || state.HostContext.HostURL != state.HostURL {
		t.Errorf("host %q, %q", state.HostURL, state.HostContext.HostURL)
	}
	if string(state.Params) != `{"channel":"C01","stubborn":false}` {
		t.Errorf("params %s, want the declared ones with their defaults", state.Params)
	}
	if !got.Enabled() {
		t.Error("a new subscription is not enabled")
	}
}

// “On failure, no subscription row is created.”
func subscribeThrows(t *testing.T, b *Bundle) {
	_, err := b.Manager.Subscribe(t.Context(), tenant, manager.SubscribeRequest{
		AppID: app, TriggerKey: "managed", WorkflowID: workflow, Params: json.RawMessage(`{"channel":"C","refuse":"no such channel"}`),
	})
	var refused *manager.HookFailedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Err.Message, "no such channel") {
		t.Errorf("got %v, want the hook's own words", err)
	}
	list, _, err := b.Manager.ListSubscriptionsForWorkflow(t.Context(), tenant, workflow, trigger.Page{})
	if err != nil || len(list) != 0 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}

// “Validates params against the trigger's declared Params.”
func subscribeValidates(t *testing.T, b *Bundle) {
	for name, c := range map[string]struct {
		request manager.SubscribeRequest
		want    error
	}{
		"no app":      {manager.SubscribeRequest{AppID: "none", TriggerKey: "plain", WorkflowID: workflow}, trigger.ErrUnknownApp},
		"no trigger":  {manager.SubscribeRequest{AppID: app, TriggerKey: "none", WorkflowID: workflow}, trigger.ErrUnknownTrigger},
		"no workflow": {manager.SubscribeRequest{AppID: app, TriggerKey: "plain", WorkflowID: "wf_none"}, trigger.ErrUnknownWorkflow},
	} {
		if _, err := b.Manager.Subscribe(t.Context(), tenant, c.request); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	_, err := b.Manager.Subscribe(t.Context(), tenant, manager.SubscribeRequest{AppID: app, TriggerKey: "managed", WorkflowID: workflow})
	var invalid *trigger.InvalidError
	if !errors.As(err, &invalid) || invalid.Code != "param_invalid" || len(invalid.Details) != 1 || invalid.Details[0].Path != "channel" {
		t.Errorf("a missing param: %v", err)
	}
}

// Param RFC §options, §validation: the source hook “receives { form, dependsOn }”,
// the validation hook `{value, form}`; “a value outside the resolved option set is
// param_invalid”.
func subscribeAsks(t *testing.T, b *Bundle) {
	ask := func(params string) error {
		_, err := b.Manager.Subscribe(t.Context(), tenant, manager.SubscribeRequest{
			AppID: app, TriggerKey: "asking", WorkflowID: workflow, Params: json.RawMessage(params),
		})
		return err
	}
	if err := ask(`{"workspace":"T1","channel":"T1-general"}`); err != nil {
		t.Errorf("what the app offers: %v", err)
	}
	for params, want := range map[string][]trigger.FieldError{
		`{"workspace":"T2","channel":"T1-general"}`: {{Path: "channel", Message: `must be one of "T2-general", "T2-random"`}},
		`{"workspace":"X"}`:                         {{Path: "workspace", Message: "must start with T, not with X"}},
	} {
		var invalid *trigger.InvalidError
		if err := ask(params); !errors.As(err, &invalid) || invalid.Code != "param_invalid" || cmp.Diff(want, invalid.Details) != "" {
			t.Errorf("%s: %v, want %v", params, err, want)
		}
	}
	var refused *manager.HookFailedError
	if err := ask(`{"workspace":"crash"}`); !errors.As(err, &refused) || refused.Hook != "checkWorkspace" || refused.Err.Code != "hook_threw" {
		t.Errorf("a hook that throws: %v", err)
	}

	offered, err := b.Manager.ParamOptions(t.Context(), tenant, manager.OptionsRequest{
		AppID: app, TriggerKey: "asking", Param: "channel", Form: json.RawMessage(`{"workspace":"T9"}`),
	})
	if want := `[{"value":"T9-general","label":"general"},"T9-random"]`; err != nil || string(offered) != want {
		t.Errorf("options %s, %v, want %s", offered, err, want)
	}
	var invalid *trigger.InvalidError
	if _, err := b.Manager.ParamOptions(t.Context(), tenant, manager.OptionsRequest{AppID: app, TriggerKey: "asking", Param: "workspace"}); !errors.As(err, &invalid) {
		t.Errorf("options of a text: %v", err)
	}
}

// “Calls onUnsubscribe. Persists deletion even if the hook fails (logs the
// error).”
func unsubscribeDeletes(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "managed", `{"channel":"C","stubborn":true}`)
	if err := b.Manager.Unsubscribe(t.Context(), tenant, s.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Manager.GetSubscription(t.Context(), tenant, s.ID); !errors.Is(err, trigger.ErrUnknownSubscription) {
		t.Errorf("still there: %v", err)
	}
	if _, err := b.Other.Ingest(t.Context(), s.ID, call(`{}`)); !errors.Is(err, trigger.ErrUnknownSubscription) {
		t.Errorf("a later call: %v", err)
	}
	if err := b.Manager.Unsubscribe(t.Context(), tenant, s.ID); !errors.Is(err, trigger.ErrUnknownSubscription) {
		t.Errorf("a second time: %v", err)
	}
}

// “Read-only reflection for editors and dispatchers.”
func subscriptionsAreTheTenants(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "plain", `{}`)
	if _, err := b.Manager.GetSubscription(t.Context(), "other", s.ID); !errors.Is(err, trigger.ErrUnknownSubscription) {
		t.Errorf("another tenant's read: %v", err)
	}
	if err := b.Manager.Unsubscribe(t.Context(), "other", s.ID); !errors.Is(err, trigger.ErrUnknownSubscription) {
		t.Errorf("another tenant's delete: %v", err)
	}
	list, _, err := b.Manager.ListSubscriptionsForWorkflow(t.Context(), tenant, workflow, trigger.Page{})
	if err != nil || len(list) != 1 || list[0].ID != s.ID {
		t.Errorf("list %v, %v", list, err)
	}
}

// “ingest MUST NOT return control to the transport adapter until every event
// returned by handleIngest is durably persisted with status: "received".”
func ingestPersists(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "parsed", `{}`)
	result := b.ingest(t, s, `{"result":[{"n":1},{"n":2},3,null]}`)
	if len(result.EventIDs) != 4 || result.Status != trigger.StatusReceived {
		t.Fatalf("result %+v", result)
	}
	for i, want := range []string{`{"n":1}`, `{"n":2}`, `3`, `null`} {
		if got := b.Event(t, result.EventIDs[i]); got.Status != trigger.StatusReceived || string(got.Normalized) != want {
			t.Errorf("event %d: %s %s, want %s", i, got.Status, got.Normalized, want)
		}
	}
}

// “With no handleIngest, the call body is the normalized event.”
func ingestBody(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "plain", `{}`)
	for _, body := range []string{`{"z":1,"a":2.0,"big":12345678901234567890,"nul":"\u0000","lone":"\ud800"}`, `0`, `null`, `[1,2]`} {
		result := b.ingest(t, s, body)
		if got := string(b.Event(t, result.EventIDs[0]).Normalized); got != body {
			t.Errorf("stored %s, sent %s", got, body)
		}
	}
}

// “The call is recorded as one failed row in trigger_events and the listener
// answers 200.”
func ingestThrows(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "parsed", `{}`)
	for name, body := range map[string]string{
		"throws": `{"throw":"bad signature"}`, "returns no list": `{"result":7}`, "returns an object without events": `{"result":{}}`,
	} {
		result := b.ingest(t, s, body)
		if result.Status != trigger.StatusFailed || len(result.EventIDs) != 0 || result.Err == nil {
			t.Errorf("%s: %+v", name, result)
			continue
		}
		got := b.Event(t, result.CallID)
		if got.Status != trigger.StatusFailed || got.Reason != trigger.ReasonParserFailed || string(got.Call.Body) != body || got.LastErrorCode == "" {
			t.Errorf("%s: stored %+v", name, got.EventSummary)
		}
	}
	if n := b.Rows(t, s.ID); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
	if events := b.drain(t, b.Manager, 10); len(events) != 0 {
		t.Errorf("a failed call was claimed: %+v", events)
	}
}

// “a POST … that returns 200 has produced at least one row”, with ignored among
// the statuses (amendment).
func ingestEmpty(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "parsed", `{}`)
	result := b.ingest(t, s, `{"result":[]}`)
	if got := b.Event(t, result.CallID); got.Status != trigger.StatusIgnored || got.Reason != trigger.ReasonEmpty {
		t.Errorf("stored %+v", got.EventSummary)
	}
}

// DESIGN §5: “a call whose parser threw is run through handleIngest again with
// POST /trigger-events/:id/reingest (new events, same call)”.
func reingests(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "mended", `{}`)
	failed := b.ingest(t, s, `{"n":[1,2]}`)
	if failed.Status != trigger.StatusFailed {
		t.Fatalf("the first ingest: %+v", failed)
	}
	first, err := b.Manager.Reingest(t.Context(), tenant, failed.CallID)
	if err != nil || len(first.EventIDs) != 2 || first.Status != trigger.StatusReceived || first.CallID != failed.CallID {
		t.Fatalf("reingest: %+v, %v", first, err)
	}
	for i, id := range first.EventIDs {
		got := b.Event(t, id)
		if got.CallID != failed.CallID || string(got.Normalized) != strconv.Itoa(i+1) || string(got.Call.Body) != `{"n":[1,2]}` {
			t.Errorf("event %d: %+v %s", i, got.EventSummary, got.Normalized)
		}
	}
	again, err := b.Other.Reingest(t.Context(), tenant, failed.CallID)
	if err != nil || cmp.Diff(first.EventIDs, again.EventIDs) != "" || again.Reason != trigger.ReasonDuplicate {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	if events := b.drain(t, b.Manager, 10); len(events) != 1 || events[0].ID != first.EventIDs[0] {
		t.Errorf("claimed %+v", events)
	}
}

func reingestRefuses(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "mended", `{}`)
	failed := b.ingest(t, s, `{"n":[1]}`)
	whole := b.ingest(t, b.subscribe(t, "plain", `{}`), `{}`)
	b.mark(t, b.drain(t, b.Manager, 1)[0], &trigger.StepError{Code: "plan_error"}) // a dead letter, which is requeued
	for name, c := range map[string]struct {
		tenant, id string
		want       error
	}{
		"a dead letter":    {tenant, whole.CallID, trigger.ErrNotReingestable},
		"an unknown event": {tenant, "evt_none", trigger.ErrUnknownEvent},
		"another tenant's": {"other", failed.CallID, trigger.ErrUnknownEvent},
	} {
		if _, err := b.Manager.Reingest(t.Context(), c.tenant, c.id); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := b.Manager.Unsubscribe(t.Context(), tenant, s.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Manager.Reingest(t.Context(), tenant, failed.CallID); !errors.Is(err, trigger.ErrNotReingestable) {
		t.Errorf("of a deleted subscription: %v", err)
	}
}

// DESIGN §6: `{ events, response?: { status, headers, body } }`.
func ingestResponds(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "parsed", `{}`)
	result := b.ingest(t, s, `{"result":{"events":[],"response":{"status":202,"headers":{"X-A":"b"},"body":"hello"}}}`)
	want := &trigger.Response{Status: 202, Header: []trigger.Field{{Name: "X-A", Value: "b"}}, Body: []byte("hello")}
	if diff := cmp.Diff(want, result.Response); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
	if got := b.Event(t, result.CallID); got.Status != trigger.StatusIgnored || got.Reason != trigger.ReasonHandshake {
		t.Errorf("stored %+v", got.EventSummary)
	}
}

// “The stored copy of the call has credential headers masked; the ingest parser
// sees the unmasked call.”
func ingestMasks(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "parsed", `{}`)
	body := `{"x":"é"}`
	result := b.ingest(t, s, body)
	got := b.Event(t, result.EventIDs[0])
	seen := decode[struct {
		SubscriptionID string
		Raw            struct {
			Method, Path, RawBody, RawBodyBase64, RawQuery string
			Headers, Query                                 map[string]string
			Body                                           json.RawMessage
		}
	}](t, got.Normalized)
	if seen.SubscriptionID != s.ID.Reveal() || seen.Raw.Method != http.MethodPost || seen.Raw.RawBody != body || string(seen.Raw.Body) != body {
		t.Errorf("the parser saw %+v", seen)
	}
	if seen.Raw.Headers["authorization"] != "Bearer canary-h" || seen.Raw.Query["token"] != "canary-q" || seen.Raw.Query["a"] != "1" {
		t.Errorf("the parser saw headers %v, query %v", seen.Raw.Headers, seen.Raw.Query)
	}
	stored := fmt.Sprintf("%+v", got.Call)
	if strings.Contains(stored, "canary") || !strings.Contains(stored, "[redacted]") || string(got.Call.Body) != body {
		t.Errorf("the stored call is %s", stored)
	}
}

// “A call to a webhook whose app is archived or disabled is stored, then marked
// ignored. The subscription is never destroyed on that account.”
func ingestIgnores(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "plain", `{}`)
	for state, reason := range map[trigger.AppState]trigger.Reason{
		trigger.AppArchived: trigger.ReasonAppArchived, trigger.AppDisabled: trigger.ReasonAppDisabled,
	} {
		b.SetApp(t, state)
		result := b.ingest(t, s, `{}`)
		if got := b.Event(t, result.CallID); got.Status != trigger.StatusIgnored || got.Reason != reason || string(got.Call.Body) != `{}` {
			t.Errorf("%s: stored %+v", state, got.EventSummary)
		}
	}
	b.SetApp(t, trigger.AppActive)
	if result := b.ingest(t, s, `{}`); result.Status != trigger.StatusReceived {
		t.Errorf("active again: %+v", result)
	}
}

// “Multiple dispatchers running concurrently MUST NOT return the same event
// twice.”
func drainDisjoint(t *testing.T, b *Bundle) {
	const subscriptions, each = 6, 5
	for range subscriptions {
		s := b.subscribe(t, "plain", `{}`)
		for range each {
			b.ingest(t, s, `{}`)
		}
	}
	var mu sync.Mutex
	seen := map[string]int{}
	total := func() int { mu.Lock(); defer mu.Unlock(); return len(seen) }
	var wg sync.WaitGroup
	for i := range 4 {
		m := []*manager.TriggerManager{b.Manager, b.Other}[i%2]
		wg.Go(func() {
			for idle := 0; total() < subscriptions*each && idle < 500; idle++ {
				for _, event := range b.drain(t, m, 3) {
					mu.Lock()
					seen[event.ID]++
					mu.Unlock()
					b.mark(t, event, nil)
					idle = 0
				}
			}
		})
	}
	wg.Wait()
	if len(seen) != subscriptions*each {
		t.Errorf("%d events were claimed, want %d", len(seen), subscriptions*each)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was claimed %d times", id, n)
		}
	}
}

// “FIFO by receivedAt among events that are due.” “an event still waiting out
// its wait … does not hold back newer due events.”
func drainFIFO(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "plain", `{}`)
	var want []string
	for range 3 {
		want = append(want, b.ingest(t, s, `{}`).EventIDs[0])
	}
	first := b.drain(t, b.Manager, 10)[0]
	b.mark(t, first, &trigger.StepError{Code: "network", Retryable: true})
	second := b.drain(t, b.Manager, 10)[0]
	if first.ID != want[0] || second.ID != want[1] {
		t.Errorf("claimed %s, %s, want %v", first.ID, second.ID, want[:2])
	}
	b.mark(t, second, nil)
	b.Elapse(t)
	if third := b.drain(t, b.Manager, 10)[0]; third.ID != want[0] {
		t.Errorf("with its wait over, %s came before the oldest due event %s", third.ID, want[0])
	}
}

// “When false, ingest still persists the event (audit) but the dispatcher skips
// it.”
func drainDisabled(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "plain", `{}`)
	if _, err := b.Manager.SetEnabled(t.Context(), tenant, s.ID, false); err != nil {
		t.Fatal(err)
	}
	id := b.ingest(t, s, `{}`).EventIDs[0]
	if events := b.drain(t, b.Manager, 10); len(events) != 0 {
		t.Fatalf("claimed %+v", events)
	}
	if got := b.Event(t, id).Status; got != trigger.StatusReceived {
		t.Errorf("while disabled it is %s", got)
	}
	if _, err := b.Manager.SetEnabled(t.Context(), tenant, s.ID, true); err != nil {
		t.Fatal(err)
	}
	if events := b.drain(t, b.Manager, 10); len(events) != 1 || events[0].ID != id {
		t.Errorf("after enabling: %+v", events)
	}
}

// “An event gets 5 attempts in total.” “5 s before attempt 2, 10 s before
// attempt 3, 20 s before attempt 4, 40 s before attempt 5.” “After the 5th
// failed attempt, the event moves to failed.”
func markRetries(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "plain", `{}`)
	id := b.ingest(t, s, `{}`).EventIDs[0]
	for attempt := 1; attempt <= 5; attempt++ {
		events := b.drain(t, b.Manager, 10)
		if len(events) != 1 || events[0].Attempts != attempt-1 {
			t.Fatalf("attempt %d: %+v", attempt, events)
		}
		b.mark(t, events[0], &trigger.StepError{Code: "network", Message: "no route", Retryable: true})
		if attempt == 5 {
			break
		}
		got := b.Event(t, id)
		wait := got.NextAttemptAt.Sub(got.AttemptLog[attempt-1].EndedAt).Round(time.Second)
		if want := 5 * time.Second << (attempt - 1); wait != want {
			t.Errorf("wait before attempt %d is %v, want %v", attempt+1, wait, want)
		}
		b.Elapse(t)
	}
	if got := b.Event(t, id); got.Status != trigger.StatusFailed || len(got.AttemptLog) != 5 {
		t.Errorf("in the end %s after %d attempts", got.Status, len(got.AttemptLog))
	}
}

// “Errors from the workflow engine (e.g. plan_error, invalid_variables) are
// non-retryable and skip straight to failed.”
func markNonRetryable(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "plain", `{}`)
	id := b.ingest(t, s, `{}`).EventIDs[0]
	b.mark(t, b.drain(t, b.Manager, 1)[0], &trigger.StepError{Code: "plan_error"})
	if got := b.Event(t, id); got.Status != trigger.StatusFailed || got.Attempts != 1 {
		t.Errorf("%s after %d attempts", got.Status, got.Attempts)
	}
}

// “For parseOutput, call is the stored, masked TriggerCall for a webhook-type
// row.”
func parseOutput(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "output", `{}`)
	b.ingest(t, s, `{"n":1}`)
	payload, parsed, failure := b.Manager.ParseOutput(t.Context(), b.drain(t, b.Manager, 1)[0])
	if failure != nil || !parsed {
		t.Fatalf("parsed %v, %v", parsed, failure)
	}
	got := decode[struct {
		Parsed         bool
		SubscriptionID string
		Normalized     json.RawMessage
		Call           struct {
			Method  string
			Headers map[string]string
			Body    json.RawMessage
		}
	}](t, payload)
	if !got.Parsed || got.SubscriptionID != s.ID.Reveal() || string(got.Normalized) != `{"n":1}` || string(got.Call.Body) != `{"n":1}` {
		t.Errorf("parseOutput saw %s", payload)
	}
	if got.Call.Headers["authorization"] != "[redacted]" || strings.Contains(string(payload), "canary") {
		t.Errorf("parseOutput saw an unmasked call: %s", payload)
	}
}

// w6w contract §1.5: “its throw is a retryable delivery failure”.
func parseOutputThrows(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "output", `{}`)
	b.ingest(t, s, `{"throw":"record not there yet"}`)
	_, _, failure := b.Manager.ParseOutput(t.Context(), b.drain(t, b.Manager, 1)[0])
	if failure == nil || !failure.Retryable || failure.Code != "hook_threw" || !strings.Contains(failure.Message, "record not there yet") {
		t.Errorf("failure %+v", failure)
	}
}

// “with no parseOutput, the event is the stored normalized value.”
func parseOutputAbsent(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "plain", `{}`)
	b.ingest(t, s, `{"n":1.0}`)
	payload, parsed, failure := b.Manager.ParseOutput(t.Context(), b.drain(t, b.Manager, 1)[0])
	if failure != nil || parsed || string(payload) != `{"n":1.0}` {
		t.Errorf("%s %v %v", payload, parsed, failure)
	}
}

// polls makes every check that is due and gives how many there were.
func (b *Bundle) polls(t *testing.T, m *manager.TriggerManager) int {
	t.Helper()
	due, err := m.DuePolls(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, poll := range due {
		m.Poll(t.Context(), poll)
	}
	return len(due)
}

func (b *Bundle) state(t *testing.T, s *trigger.Subscription) string {
	t.Helper()
	got, err := b.Manager.GetSubscription(t.Context(), tenant, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	return string(got.State)
}

// “nextState is persisted atomically with the events it accompanies.” “call is
// … the polled event for a poll-type row.”
func pollMoves(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "polled", `{}`)
	if n := b.polls(t, b.Manager); n != 1 {
		t.Fatalf("%d checks were due, want 1", n)
	}
	if got := b.state(t, s); got != `{"cursor":3}` {
		t.Errorf("state %s", got)
	}
	events := b.drain(t, b.Manager, 10)
	payload, _, failure := b.Manager.ParseOutput(t.Context(), events[0])
	if want := `{"call":{"n":1},"normalized":{"n":1}}`; failure != nil || string(payload) != want {
		t.Errorf("parseOutput gave %s, %v, want %s", payload, failure, want)
	}
	if n := b.Rows(t, s.ID); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
	if _, err := b.Manager.SetEnabled(t.Context(), tenant, s.ID, true); err != nil { // an edit
		t.Fatal(err)
	}
	b.ElapsePolls(t)
	b.polls(t, b.Other)
	if got := b.state(t, s); got != `{"cursor":6}` {
		t.Errorf("state %s after the second check", got)
	}
}

// “a retried check re-runs from the last persisted state”
func pollThrows(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "polled", `{"fail":3}`)
	b.polls(t, b.Manager)
	for range 2 {
		b.ElapsePolls(t)
		b.polls(t, b.Manager)
		if got := b.state(t, s); got != `{"cursor":3}` {
			t.Errorf("state %s after a check that threw", got)
		}
	}
	if n := b.Rows(t, s.ID); n != 3 {
		t.Errorf("%d rows, want the first check's 3", n)
	}
	if n := b.polls(t, b.Manager); n != 0 {
		t.Error("checked again at once after a failure")
	}
}

// “The host calls poll on the subscription's interval.”
func pollOnce(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "polled", `{}`)
	due, err := b.Manager.DuePolls(t.Context(), 10)
	if err != nil || len(due) != 1 {
		t.Fatalf("due %v, %v", due, err)
	}
	if due[0].Interval < 20*time.Second {
		t.Errorf("interval %v is below the vendor's floor", due[0].Interval)
	}
	b.ElapsePolls(t) // the check takes longer than its interval
	if n := b.polls(t, b.Other); n != 0 {
		t.Error("a check began while one was running")
	}
	b.Manager.Poll(t.Context(), due[0])
	b.Manager.Poll(t.Context(), due[0]) // its lease is over: nothing may move
	if got := b.state(t, s); got != `{"cursor":3}` {
		t.Errorf("state %s", got)
	}
}

// “a poll subscription is not run”
func pollSkipped(t *testing.T, b *Bundle) {
	s := b.subscribe(t, "polled", `{}`)
	if _, err := b.Manager.SetEnabled(t.Context(), tenant, s.ID, false); err != nil {
		t.Fatal(err)
	}
	if n := b.polls(t, b.Manager); n != 0 {
		t.Error("a disabled subscription was polled")
	}
	if _, err := b.Manager.SetEnabled(t.Context(), tenant, s.ID, true); err != nil {
		t.Fatal(err)
	}
	b.SetApp(t, trigger.AppArchived)
	if n := b.polls(t, b.Manager); n != 0 {
		t.Error("an archived app was polled")
	}
	b.SetApp(t, trigger.AppActive)
	if n := b.polls(t, b.Manager); n != 1 {
		t.Errorf("%d checks when all is well again, want 1", n)
	}
	if n := b.polls(t, b.Manager); n != 0 {
		t.Error("the pause was made up for")
	}
}

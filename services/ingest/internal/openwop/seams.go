package openwop

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// SeamLedger is what the test-only routes look at beside the rest.
type SeamLedger interface {
	Event(ctx context.Context, tenant, eventID string) (*trigger.EventDetail, error)
	EventSubscription(ctx context.Context, tenant, eventID string) (*trigger.Subscription, error)
	StateChanges(ctx context.Context, sid int64) ([]trigger.StateChange, error)
	// MoveSchedule puts a schedule's slot into the past.
	MoveSchedule(ctx context.Context, sid int64, ago time.Duration) error
}

const (
	seamPrefix = "/v1/host/sample"
	seamLimit  = 15 * time.Second // the suite gives up at 20
)

// mountSeams mounts the routes of OpenWOP's conformance suite
// (host-sample-test-seams.md). They drive the engine that everybody uses and
// control only what a caller controls: the key, and whether the run can start.
func (s *Surface) mountSeams(mux *http.ServeMux) {
	for pattern, handle := range map[string]handler{
		"GET " + seamPrefix + "/test/runs/{key}/events":  s.seamEvents,
		"POST " + seamPrefix + "/test/reset":             s.seamReset,
		"POST " + seamPrefix + "/trigger-bridge/deliver": s.seamDeliver,
		"POST " + seamPrefix + "/trigger-bridge/ingest":  s.seamIngest,
		"POST " + seamPrefix + "/deadletter/exhaust":     s.seamRunSink,
		"POST " + seamPrefix + "/scheduling/tick":        s.seamTick,
	} {
		mux.Handle(pattern, s.behindKey(apikey.WebhooksManage, handle))
	}
}

func (s *Surface) seamReset(w http.ResponseWriter, _ *http.Request, _ *apikey.Principal) error {
	writeJSON(w, http.StatusOK, object{"ok": true})
	return nil
}

// seamEvents shows a run's log, or what is recorded of a delivery that started
// none: its attempts and the change of state that they caused.
func (s *Surface) seamEvents(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	events, err := s.recordedEvents(r.Context(), who.Tenant, r.PathValue("key"))
	if err != nil {
		return err
	}
	query := r.URL.Query()
	out := []json.RawMessage{}
	for _, raw := range events {
		var event struct {
			Type        string `json:"type"`
			CausationID string `json:"causationId"`
		}
		if err := json.Unmarshal(raw, &event); err != nil {
			return err
		}
		if kind := query.Get("type"); kind != "" && kind != event.Type {
			continue
		}
		if cause := query.Get("causationId"); cause != "" && cause != event.CausationID {
			continue
		}
		out = append(out, raw)
	}
	writeJSON(w, http.StatusOK, object{"events": out})
	return nil
}

func (s *Surface) recordedEvents(ctx context.Context, tenant, key string) ([]json.RawMessage, error) {
	run, err := s.Ledger.Run(ctx, tenant, key)
	if err == nil {
		var log []json.RawMessage
		return log, json.Unmarshal(run.Log, &log)
	}
	if !errors.Is(err, trigger.ErrUnknownRun) {
		return nil, err
	}
	eventID := ident.Event + strings.TrimPrefix(key, ident.Run)
	subscription, err := s.Seams.EventSubscription(ctx, tenant, eventID)
	if errors.Is(err, trigger.ErrUnknownEvent) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.runlessEvents(ctx, tenant, key, eventID, subscription)
}

func (s *Surface) runlessEvents(ctx context.Context, tenant, key, eventID string, subscription *trigger.Subscription) ([]json.RawMessage, error) {
	detail, err := s.Seams.Event(ctx, tenant, eventID)
	if err != nil {
		return nil, err
	}
	dead, err := s.Ledger.Deliveries(ctx, subscription.SID, maxPage)
	if err != nil {
		return nil, err
	}
	changes, err := s.Seams.StateChanges(ctx, subscription.SID)
	if err != nil {
		return nil, err
	}
	dedupKey := eventID
	for _, d := range dead {
		if d.EventID == eventID {
			dedupKey = cmp.Or(d.DedupKey, eventID)
		}
	}
	var list []json.RawMessage
	add := func(id, kind string, at time.Time, payload any) {
		raw, _ := json.Marshal(object{ //nolint:errchkjson // words and numbers
			"eventId": id, "runId": key, "type": kind, "timestamp": iso(at), "sequence": len(list), "payload": payload,
		})
		list = append(list, raw)
	}
	for _, a := range detail.AttemptLog {
		add(a.ID, "trigger.delivery.attempted", a.EndedAt, attemptJSON{subscription.ID.Reveal(), dedupKey, a.Attempt, outcomeOf(a.Outcome)})
	}
	for i := range changes {
		if changes[i].EventID == eventID {
			add(changes[i].ID, "trigger.subscription.state.changed", changes[i].At, changeOf(subscription, &changes[i]))
		}
	}
	return list, nil
}

// yearly is a schedule that does not fire by itself while a test looks on.
const yearly = `{"cron":"0 0 1 1 *","timezone":"UTC"}`

// seamSubscription registers a subscription as a client would.
func (s *Surface) seamSubscription(ctx context.Context, who *apikey.Principal, source, workflow, params string, mode trigger.VerificationMode) (*trigger.Subscription, error) {
	request := manager.SubscribeRequest{
		AppID: trigger.BuiltinApp, TriggerKey: source, WorkflowID: workflow,
		OpenWOP: &trigger.OpenWOP{DedupEnabled: true, Verification: mode}, Retry: &trigger.RetryPolicy{MaxAttempts: 3, Backoff: trigger.BackoffNone},
	}
	switch source {
	case trigger.BuiltinWebhook:
		request.OpenWOP.Secret = newSecret()
	case trigger.BuiltinSchedule:
		request.Params = json.RawMessage(params)
	}
	return s.Manager.Subscribe(ctx, who.Tenant, request)
}

// seamDeliver delivers to a subscription of its own.
func (s *Surface) seamDeliver(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	body, err := readObject(w, r, "scenario", "dedupKey", "source")
	if err != nil {
		return err
	}
	scenario, err1 := text(body, "scenario", "")
	key, err2 := text(body, "dedupKey", manager.OpaqueKey(ident.New(ident.Event)))
	source, err3 := text(body, "source", trigger.BuiltinWebhook)
	if err := cmp.Or(err1, err2, err3); err != nil {
		return err
	}
	if !slices.Contains([]string{trigger.BuiltinWebhook, trigger.BuiltinQueue, trigger.BuiltinSchedule}, source) {
		return invalid("source is not one that this host has")
	}
	ctx, cancel := context.WithTimeout(r.Context(), seamLimit)
	defer cancel()
	workflow, times := noop, 1
	switch scenario {
	case "dedup":
		times = 2
	case "exhaust":
		workflow = SeamWorkflow
	case "deliver":
	default:
		return invalid("scenario must be dedup, exhaust or deliver")
	}
	subscription, err := s.seamSubscription(ctx, who, source, workflow, yearly, trigger.VerifyNone)
	if err != nil {
		return err
	}
	eventID, err := s.seamPost(ctx, subscription, key, times)
	if err != nil {
		return err
	}
	return s.seamOutcome(ctx, w, subscription, eventID)
}

// seamPost hands the event in, as often as a sender would that got no answer.
// A schedule without repeats is fired by the scheduler.
func (s *Surface) seamPost(ctx context.Context, subscription *trigger.Subscription, key string, times int) (string, error) {
	if subscription.Source == trigger.SourceSchedule && times == 1 {
		return s.seamFire(ctx, subscription, 0)
	}
	var first string
	for range times {
		result, err := s.Manager.Deliver(ctx, subscription.ID, func(subscription *trigger.Subscription) (*manager.Post, error) {
			call := &trigger.Call{Source: subscription.Source, Method: http.MethodPost, Body: []byte(`{"seam":true}`)}
			post := &manager.Post{Call: call, Key: key, Event: call.Body}
			if subscription.Source == trigger.SourceWebhook {
				post.Event = manager.WebhookParts(call, nil)
			}
			return post, nil
		})
		if err != nil {
			return "", err
		}
		first = cmp.Or(first, result.EventIDs[0])
		if _, ok := s.hub.wait(ctx, first); !ok {
			return "", trigger.ErrUnavailable
		}
	}
	return first, nil
}

// seamFire has the scheduler fire a slot of the past and gives its event.
func (s *Surface) seamFire(ctx context.Context, subscription *trigger.Subscription, ago time.Duration) (string, error) {
	if err := s.Seams.MoveSchedule(ctx, subscription.SID, ago); err != nil {
		return "", err
	}
	for {
		deliveries, err := s.Ledger.Deliveries(ctx, subscription.SID, 1)
		if err != nil {
			return "", err
		}
		if len(deliveries) > 0 {
			eventID := deliveries[0].EventID
			if _, ok := s.hub.wait(ctx, eventID); !ok {
				return "", trigger.ErrUnavailable
			}
			return eventID, nil
		}
		select {
		case <-ctx.Done():
			return "", trigger.ErrUnavailable
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// seamOutcome says what came of an event: how many deliveries there were in all,
// and the run, or the id under which a delivery without one can be read.
func (s *Surface) seamOutcome(ctx context.Context, w http.ResponseWriter, subscription *trigger.Subscription, eventID string) error {
	deliveries, err := s.Ledger.Deliveries(ctx, subscription.SID, maxPage)
	if err != nil {
		return err
	}
	out := object{"runId": ident.RunOfEvent(eventID), "subscriptionId": subscription.ID.Reveal(), "outcome": deliveries[0].Outcome}
	count := 0
	for _, d := range deliveries {
		if d.Outcome == trigger.AttemptDelivered {
			count++
			out["runId"] = d.RunID
		}
	}
	out["deliveredCount"] = count
	writeJSON(w, http.StatusOK, out)
	return nil
}

// seamIngest takes a post as an adapter would and shows what the run got.
func (s *Surface) seamIngest(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	body, err := readObject(w, r, "source", "verification", "attachmentUrl", "webhook", "stream", "change", "form", "email")
	if err != nil {
		return err
	}
	if source, err := text(body, "source", ""); err != nil || source != trigger.BuiltinWebhook {
		return cmp.Or(err, invalid("source is not one that this host has"))
	}
	mode, err := readMode(body["verification"])
	if err != nil {
		return err
	}
	var sent struct {
		Method  string            `json:"method"`
		Headers map[string]string `json:"headers"`
		Body    json.RawMessage   `json:"body"`
	}
	if raw, ok := body["webhook"]; ok && json.Unmarshal(raw, &sent) != nil {
		return invalid("webhook must be {method, headers, body}")
	}
	ctx, cancel := context.WithTimeout(r.Context(), seamLimit)
	defer cancel()
	subscription, err := s.seamSubscription(ctx, who, trigger.BuiltinWebhook, noop, "", mode)
	if err != nil {
		return err
	}
	call := &trigger.Call{Source: trigger.SourceWebhook, Method: cmp.Or(sent.Method, http.MethodPost), Body: sent.Body}
	for name, value := range sent.Headers {
		call.Header = append(call.Header, trigger.Field{Name: strings.ToLower(name), Value: value})
	}
	sign(call, subscription.OpenWOP.Secret, time.Now())
	result, err := s.take(ctx, subscription.ID, call)
	if err != nil {
		return err
	}
	outcome, err := s.await(ctx, result.EventIDs[0])
	if err != nil {
		return err
	}
	run, err := s.Ledger.Run(ctx, who.Tenant, outcome.RunID)
	if err != nil {
		return err
	}
	return showIngested(w, run)
}

func showIngested(w http.ResponseWriter, run *trigger.Run) error {
	var log []struct {
		Type    string          `json:"type"`
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(run.Log, &log); err != nil {
		return err
	}
	var attempted json.RawMessage
	for _, event := range log {
		if event.Type == "trigger.delivery.attempted" {
			attempted = event.Payload
		}
	}
	writeJSON(w, http.StatusOK, object{"triggerEvent": run.Event, "deliveryEvent": attempted})
	return nil
}

// sign signs a call as a sender does that keeps to Standard Webhooks.
func sign(call *trigger.Call, key trigger.IngestSecret, now time.Time) {
	id, at := ident.New("msg_"), strconv.FormatInt(now.Unix(), 10)
	secretKey, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(key.Reveal(), "whsec_")) // this host made it
	mac := hmac.New(sha256.New, secretKey)
	_, _ = mac.Write([]byte(id + "." + at + "."))
	_, _ = mac.Write(call.Body)
	call.Header = append(call.Header, trigger.Field{Name: "webhook-id", Value: id}, trigger.Field{Name: "webhook-timestamp", Value: at},
		trigger.Field{Name: "webhook-signature", Value: "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))})
}

// seamTick has a schedule of its own fire, for one slot or after a window that
// was missed.
func (s *Surface) seamTick(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	body, err := readObject(w, r, "scenario", "missedTicks")
	if err != nil {
		return err
	}
	scenario, err := text(body, "scenario", "")
	if err != nil {
		return err
	}
	params, ago := yearly, time.Duration(0)
	switch scenario {
	case "single-tick":
	case "missed-window":
		missed := 5
		if raw, ok := body["missedTicks"]; ok && (json.Unmarshal(raw, &missed) != nil || missed < 1 || missed > 1000) {
			return invalid("missedTicks must be a whole number from 1 to 1000")
		}
		params, ago = `{"cron":"0 * * * *","timezone":"UTC"}`, time.Duration(missed)*time.Hour
	default:
		return invalid("scenario must be single-tick or missed-window")
	}
	ctx, cancel := context.WithTimeout(r.Context(), seamLimit)
	defer cancel()
	subscription, err := s.seamSubscription(ctx, who, trigger.BuiltinSchedule, noop, params, trigger.VerifyNone)
	if err != nil {
		return err
	}
	if _, err := s.seamFire(ctx, subscription, ago); err != nil {
		return err
	}
	deliveries, err := s.Ledger.Deliveries(ctx, subscription.SID, maxPage)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, object{"runsFired": len(deliveries)})
	return s.Manager.Unsubscribe(ctx, who.Tenant, subscription.ID)
}

// seamRunSink asks for a run that cannot start, by the way that POST /v1/runs
// goes, and shows what the run sink has of it (RFC 0053).
func (s *Surface) seamRunSink(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	body, err := readObject(w, r, "scenario")
	if err != nil {
		return err
	}
	scenario, err := text(body, "scenario", "")
	if err != nil {
		return err
	}
	run, err := s.startRun(r.Context(), who.Tenant, SeamWorkflow, json.RawMessage(`{}`))
	if err != nil {
		return err
	}
	kept, err := s.Ledger.Run(r.Context(), who.Tenant, run.ID)
	if err != nil {
		return err
	}
	switch scenario {
	case "exhaust-retries":
		var log []json.RawMessage
		if err := json.Unmarshal(kept.Log, &log); err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, object{"event": log[len(log)-1]})
	case "fork-after-dead-letter":
		eligible := kept.Event != nil && kept.FinishedAt != nil && time.Since(*kept.FinishedAt) < trigger.DeadLetterRetention
		writeJSON(w, http.StatusOK, object{"forkEligible": eligible})
	default:
		return invalid("scenario must be exhaust-retries or fork-after-dead-letter")
	}
	return nil
}

package manager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/triggercall"
	"github.com/tocsin-dev/tocsin/internal/vendors"
)

// ingestTries bounds how often a call is decided anew because its subscription
// changed under it.
const ingestTries = 4

// Ingest takes one call of a subscription (RFC §ingest, amendment §Processing
// order): ingest parser, then store. It returns after the commit, and every
// call that it answers without an error has a row. Errors:
// trigger.ErrUnknownSubscription, trigger.ErrBackPressure,
// trigger.ErrUnavailable.
func (m *TriggerManager) Ingest(ctx context.Context, id trigger.SubscriptionID, call *trigger.Call) (trigger.IngestResult, error) {
	for range ingestTries {
		result, err := m.ingest(ctx, id, call)
		if !errors.Is(err, trigger.ErrConflict) || call.Tick != nil { // somebody else's tick is not ours to try again
			return result, err
		}
	}
	return trigger.IngestResult{}, trigger.ErrUnavailable
}

func (m *TriggerManager) ingest(ctx context.Context, id trigger.SubscriptionID, call *trigger.Call) (trigger.IngestResult, error) {
	s, err := m.store.SubscriptionForCall(ctx, id)
	if err != nil {
		return trigger.IngestResult{}, err
	}
	if s.Surface == trigger.SurfaceOpenWOP && call.Tick == nil {
		return trigger.IngestResult{}, trigger.ErrUnknownSubscription // its door asks for a signature: Deliver
	}
	record := &trigger.CallRecord{
		Subscription: s, Call: call, Tick: call.Tick,
		MaskedQuery: triggercall.MaskQuery(call.RawQuery), MaskedHeader: triggercall.MaskHeader(call.Header),
	}
	verdict, err := m.parse(ctx, record)
	if err != nil {
		return trigger.IngestResult{}, err
	}
	if s.Surface == trigger.SurfaceOpenWOP {
		record.DedupKey = OpaqueKey(s.ID.Reveal(), call.Tick.Slot.UTC().Format(time.RFC3339Nano))
	}
	if verdict.unwritten {
		return trigger.IngestResult{Status: record.Status, Reason: record.Reason, Response: verdict.response, Unwritten: true}, nil
	}
	var saved *trigger.SavedCall
	err = m.insist(ctx, verdict.patience, func() (err error) {
		saved, err = m.store.SaveCall(ctx, record)
		return err
	})
	if err != nil {
		return trigger.IngestResult{}, err
	}
	m.confirmLater(record.Subscription, verdict.confirm)
	return trigger.IngestResult{
		CallID: saved.CallID, EventIDs: saved.EventIDs, Status: saved.Status, Reason: saved.Reason, Response: verdict.response, Err: record.Err,
	}, nil
}

// parse decides about a call, the host's own checks before the ingest parser,
// and notes in the record what came of it: events, or why there are none. Its
// error means that nothing is to be stored.
func (m *TriggerManager) parse(ctx context.Context, record *trigger.CallRecord) (verdict, error) {
	s := record.Subscription
	app, err := m.apps.App(s.AppID)
	if err == nil && app.State != trigger.AppActive && app.State != "" {
		record.Status, record.Reason = trigger.StatusIgnored, trigger.ReasonAppDisabled
		if app.State == trigger.AppArchived {
			record.Reason = trigger.ReasonAppArchived
		}
		return verdict{}, nil
	}
	def, err := m.apps.Trigger(s.AppID, s.TriggerKey)
	if err != nil {
		// The call is kept: with the app back, it can be ingested again.
		record.Fail(&trigger.StepError{Code: codeOf(err), Message: "the app or its trigger is not loaded", Phase: "resolution"}, "")
		return verdict{}, nil
	}
	record.AppVersion = def.AppVersion
	policy, err := m.policy(def, s)
	if err != nil {
		return verdict{}, err
	}
	v, done, err := m.guard(ctx, policy, record)
	if done || err != nil {
		return v, err
	}
	if !def.Has(trigger.HookHandleIngest) {
		record.Events = []trigger.EventRecord{{Normalized: bodyEvent(policy, record.Call)}}
	} else if v.response, err = m.parser(ctx, def, policy, record, v.patience); err != nil {
		return verdict{}, err
	}
	name(policy, record)
	v.response = ack(policy, v.response)
	return v, nil
}

// parser runs handleIngest.
func (m *TriggerManager) parser(
	ctx context.Context, def *trigger.Definition, policy *vendors.Policy, record *trigger.CallRecord, patience time.Duration,
) (*trigger.Response, error) {
	s := record.Subscription
	var result hook.Result
	err := m.insist(ctx, patience, func() (err error) {
		result, err = m.invoke(ctx, def, s.Tenant, s.ConnectionID, trigger.HookHandleIngest, m.handleIngest(record, policy))
		if hook.CodeOf(err) == hook.CodeOverloaded {
			return trigger.ErrBackPressure
		}
		return err
	})
	if errors.Is(err, trigger.ErrBackPressure) || errors.Is(err, trigger.ErrUnavailable) {
		return nil, err
	}
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err() // the caller has gone; nothing was promised
	}
	if err != nil {
		record.Fail(stepError(err, "execute"))
		return nil, nil
	}
	return readEvents(record, result.Output), nil
}

func (m *TriggerManager) handleIngest(record *trigger.CallRecord, policy *vendors.Policy) hook.Call {
	s := record.Subscription
	body := record.Call.Body
	if body == nil {
		body = []byte{}
	}
	return hook.Call{
		RawBody: body,
		Input: object(
			"raw", hookView(policy, record.Call, m.hostURL),
			"params", orNull(s.Params), "state", orNull(s.State), "subscriptionId", quote(s.ID.Reveal()),
		),
	}
}

// hookView shows the body as the event of a trigger without a parser would be.
func hookView(policy *vendors.Policy, call *trigger.Call, hostURL string) json.RawMessage {
	event, ok := policy.Event(call)
	if !ok {
		return triggercall.HookView(call, hostURL)
	}
	if event == nil {
		event = call.Body
	}
	return triggercall.HookViewWith(call, hostURL, event)
}

// readEvents takes handleIngest's result: an array of events, or
// {events, response?} (DESIGN §6).
func readEvents(record *trigger.CallRecord, output json.RawMessage) *trigger.Response {
	var events []json.RawMessage
	var response *trigger.Response
	var err error
	switch first(output) {
	case '[':
		err = json.Unmarshal(output, &events)
	case '{':
		var answer struct {
			Events   *[]json.RawMessage `json:"events"`
			Response *hookResponse      `json:"response"`
		}
		if err = json.Unmarshal(output, &answer); err == nil && answer.Events == nil {
			err = errors.New("an object needs an array `events`")
		}
		if err == nil {
			events = *answer.Events
			response, err = answer.Response.read()
		}
	default:
		err = errors.New("want an array of events or {events, response}")
	}
	if err != nil {
		record.Fail(&trigger.StepError{Code: hook.CodeReturnedInvalid, Message: "handleIngest: " + err.Error(), Phase: "output"}, "")
		return nil
	}
	for _, event := range events {
		record.Events = append(record.Events, trigger.EventRecord{Normalized: event})
	}
	if len(events) == 0 {
		record.Status, record.Reason = trigger.StatusIgnored, trigger.ReasonEmpty
		if response != nil {
			record.Reason = trigger.ReasonHandshake
		}
	}
	return response
}

func first(text json.RawMessage) byte {
	text = bytes.TrimLeft(text, " \t\r\n")
	if len(text) == 0 {
		return 0
	}
	return text[0]
}

// hookResponse is the answer a hook asks for.
type hookResponse struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
}

func (r *hookResponse) read() (*trigger.Response, error) {
	if r == nil {
		return nil, nil
	}
	response := &trigger.Response{Status: r.Status}
	if response.Status == 0 {
		response.Status = 200
	}
	if response.Status < 200 || response.Status > 599 {
		return nil, errors.New("response.status must lie between 200 and 599")
	}
	for name, value := range r.Headers {
		response.Header = append(response.Header, trigger.Field{Name: name, Value: value})
	}
	switch first(r.Body) {
	case 0, 'n': // absent or null
	case '"':
		var text string
		if err := json.Unmarshal(r.Body, &text); err != nil {
			return nil, err
		}
		response.Body = []byte(text)
	default: // any other JSON value is answered as it stands
		response.Body = r.Body
		response.Header = append([]trigger.Field{{Name: "Content-Type", Value: "application/json"}}, response.Header...)
	}
	return response, nil
}

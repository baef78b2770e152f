package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/handshake"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/triggercall"
	"github.com/tocsin-dev/tocsin/internal/vendors"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

// verdict is what a call gets beside its rows.
type verdict struct {
	response  *trigger.Response // in place of the default; nil keeps that
	confirm   string            // a URL to GET once the call is stored
	unwritten bool              // one of too many: it is answered, and no row is written
	patience  time.Duration     // how long to wait for room before the call is refused
}

// policy is what the host does with a subscription's calls before any hook; nil
// for most. One that no longer compiles lets nothing through: a call must never
// run unverified.
func (m *TriggerManager) policy(def *trigger.Definition, s *trigger.Subscription) (*vendors.Policy, error) {
	policy, err := m.policies.Get(def.Host, s.Host)
	if err != nil {
		m.log.Error("subscription.policy_unreadable", append(fields(s), zap.Error(err))...)
		return nil, fmt.Errorf("the trigger's host-side data: %w", trigger.ErrUnavailable)
	}
	return policy, nil
}

// guard answers handshakes and verifies, before any hook (DESIGN §6). done means
// that the record is complete: the call is no event.
func (m *TriggerManager) guard(ctx context.Context, policy *vendors.Policy, record *trigger.CallRecord) (v verdict, done bool, err error) {
	if policy == nil || record.Of != "" || record.Call.Source != trigger.SourceWebhook {
		return verdict{}, false, nil // nothing to do, done when it came, or sent by the operator
	}
	maskMore(policy.Vendor, record)
	if policy.Verify != nil {
		if d, ok := m.decide(policy, record, false); ok {
			v, err := m.handshake(ctx, record, d)
			v.unwritten = !m.strangers.allow(record.Subscription.SID)
			return v, true, err
		}
		if v, refused, err := m.verify(ctx, policy, record); refused || err != nil {
			return v, refused, err
		}
	}
	if d, ok := m.decide(policy, record, true); ok {
		v, err := m.handshake(ctx, record, d)
		return v, true, err
	}
	return verdict{patience: patience(policy)}, false, nil
}

func (m *TriggerManager) decide(policy *vendors.Policy, record *trigger.CallRecord, verified bool) (handshake.Decision, bool) {
	if policy.Handshake == nil {
		return handshake.Decision{}, false
	}
	return policy.Handshake.Decide(handshake.Input{Call: record.Call, Secrets: secretsOf(record.Subscription), Verified: verified})
}

func secretsOf(s *trigger.Subscription) verify.Secrets {
	return verify.Secrets{Params: s.Params, State: s.State, Stored: secret.Text(s.HandshakeSecret.Reveal())}
}

// handshake notes a handshake in the record: it is ignored and starts no run. A
// secret that it brought is kept before anything is answered, and the first one
// wins.
func (m *TriggerManager) handshake(ctx context.Context, record *trigger.CallRecord, d handshake.Decision) (verdict, error) {
	if d.Refused != "" {
		record.Verification = object("ok", json.RawMessage("false"), "scheme", quote("handshake"), "reason", quote(string(d.Refused)))
		refuse(record)
		return verdict{response: d.Response}, nil
	}
	if d.Store != "" {
		if err := m.keepSecret(ctx, record, d.Store); err != nil {
			return verdict{}, err
		}
	}
	record.Status, record.Reason = trigger.StatusIgnored, trigger.ReasonHandshake
	if len(record.Call.Body) > maxHandshakeBody {
		record.Call = withoutPayload(record.Call)
	}
	return verdict{response: d.Response, confirm: d.Confirm}, nil
}

func (m *TriggerManager) keepSecret(ctx context.Context, record *trigger.CallRecord, value secret.Text) error {
	version, err := m.store.KeepHandshakeSecret(ctx, record.Subscription, value.Reveal())
	if err != nil {
		return err
	}
	changed := *record.Subscription // others hold the one that was read
	changed.Version, changed.HandshakeSecret = version, trigger.IngestSecret(value.Reveal())
	record.Subscription = &changed
	m.log.Info("subscription.secret_kept", fields(&changed)...)
	return nil
}

// verify checks the call's signature. refused means that the record is complete.
func (m *TriggerManager) verify(ctx context.Context, policy *vendors.Policy, record *trigger.CallRecord) (v verdict, refused bool, err error) {
	s := record.Subscription
	result, err := policy.Verify.Verify(ctx, verify.Input{
		Call: record.Call, URL: m.publicURL(record.Call), Secrets: secretsOf(s), Now: time.Now(), Keys: m.keys,
	})
	if errors.Is(err, verify.ErrKeysUnavailable) {
		m.log.Warn("call.keys_unavailable", append(fields(s), zap.Error(err))...)
		return verdict{}, false, fmt.Errorf("%w: %w", trigger.ErrUnavailable, err)
	}
	if err != nil {
		return verdict{}, false, err
	}
	if result.Reason == verify.ReasonNoSecret && s.Lifecycle == trigger.LifecycleReserved {
		// onSubscribe has yet to return the secret; the vendor comes again.
		return verdict{}, false, fmt.Errorf("the secret is not there yet: %w", trigger.ErrUnavailable)
	}
	if record.Verification, err = json.Marshal(result); err != nil {
		return verdict{}, false, err
	}
	if result.OK {
		return verdict{}, false, nil
	}
	refuse(record)
	return verdict{response: unauthorized(), unwritten: !m.strangers.allow(s.SID)}, true, nil
}

// publicURL is the URL that the vendor was given: never what a stranger's Host
// header says (vendors contract §4).
func (m *TriggerManager) publicURL(call *trigger.Call) string {
	url := m.hostURL + call.Path
	if call.RawQuery != "" {
		url += "?" + call.RawQuery
	}
	return url
}

// unauthorized says nothing of what is wrong, which the sender may be trying to
// find out.
func unauthorized() *trigger.Response {
	return &trigger.Response{
		Status: statusUnauthorized, Header: []trigger.Field{{Name: "Content-Type", Value: "application/json"}},
		Body: []byte(`{"error":{"code":"verification_failed","message":"the call could not be verified"}}`),
	}
}

// refuse makes the call one failed row that can never run. What strangers may
// have written is small: no payload, and the beginning of the header.
func refuse(record *trigger.CallRecord) {
	record.Events, record.Status, record.Reason = nil, trigger.StatusFailed, trigger.ReasonVerificationFailed
	record.Call = withoutPayload(record.Call)
	record.MaskedQuery = record.MaskedQuery[:min(len(record.MaskedQuery), maxRefusedQuery)]
	if len(record.MaskedHeader) > maxRefusedHeader {
		record.MaskedHeader = triggercall.MaskHeader(few(record.Call.Header))
	}
}

func withoutPayload(call *trigger.Call) *trigger.Call {
	small := *call
	small.Body = nil
	return &small
}

// few keeps the fields that say what the call claimed to be.
func few(header []trigger.Field) []trigger.Field {
	var kept []trigger.Field
	for _, f := range header {
		switch f.Name {
		case "host", "user-agent", "content-type", "content-length":
			f.Value = f.Value[:min(len(f.Value), 256)]
			kept = append(kept, f)
		}
	}
	return kept
}

// maskMore masks what the vendor has beyond others.
func maskMore(vendor *vendors.Vendor, record *trigger.CallRecord) {
	if vendor == nil {
		return
	}
	if len(vendor.MaskQuery) > 0 {
		record.MaskedQuery = triggercall.MaskQuery(record.Call.RawQuery, vendor.MaskQuery...)
	}
	if len(vendor.MaskHeader) > 0 {
		record.MaskedHeader = triggercall.MaskHeader(record.Call.Header, vendor.MaskHeader...)
	}
}

// bodyEvent is the call's body as an event; nil is the bytes as they stand. A
// preset knows where JSON hides that the content type does not tell of.
func bodyEvent(policy *vendors.Policy, call *trigger.Call) json.RawMessage {
	if event, ok := policy.Event(call); ok {
		return event
	}
	return triggercall.BodyEvent(call)
}

// shownBody is bodyEvent in full.
func shownBody(policy *vendors.Policy, call *trigger.Call) json.RawMessage {
	if body := bodyEvent(policy, call); body != nil {
		return body
	}
	return call.Body
}

// name gives the events their dedup keys. It comes after verification, so that
// nobody can use up a key with a call that is not the vendor's.
func name(policy *vendors.Policy, record *trigger.CallRecord) {
	if policy == nil || policy.Dedup == nil || record.Of != "" || record.Call.Source != trigger.SourceWebhook || len(record.Events) == 0 {
		return
	}
	events := make([]json.RawMessage, len(record.Events))
	for i := range record.Events {
		events[i] = record.Events[i].Normalized
	}
	for i, key := range policy.Dedup.Keys(record.Call, shownBody(policy, record.Call), events) {
		if key != "" {
			record.Events[i].DedupKey, record.Events[i].DedupWindow = key, policy.Dedup.Window()
		}
	}
}

// ack is the vendor's own word for an accepted call (class 10), where the hook
// has none.
func ack(policy *vendors.Policy, response *trigger.Response) *trigger.Response {
	if response != nil || policy == nil || policy.Handshake == nil {
		return response
	}
	return policy.Handshake.Ack()
}

// BodyMask gives what hides a vendor's credentials in the bodies of a
// subscription's calls, for views. It never fails: without the app its triggers'
// vendor is not known, and the subscription's own data still is.
func (m *TriggerManager) BodyMask(s *trigger.Subscription) func(json.RawMessage) json.RawMessage {
	var ofTrigger json.RawMessage
	if def, err := m.apps.Trigger(s.AppID, s.TriggerKey); err == nil {
		ofTrigger = def.Host
	}
	policy, err := m.policies.Get(ofTrigger, s.Host)
	if err != nil || policy == nil {
		return func(body json.RawMessage) json.RawMessage { return body }
	}
	return func(body json.RawMessage) json.RawMessage { return policy.MaskBody(body) }
}

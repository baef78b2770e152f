package manager

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/triggercall"
)

// Post is a post to an OpenWOP subscription, as its adapter judged it.
type Post struct {
	Call *trigger.Call
	// Key is the opaque dedup key; "" lets everything in.
	Key string
	// Event is what is stored: the members of the TriggerEvent that are known
	// now, or the payload of a source that has none.
	Event json.RawMessage
	// Verification is stored with the call.
	Verification json.RawMessage
	// Refused posts are recorded as dead-lettered deliveries and start nothing.
	Refused bool
}

// dedupWindow is for how long a repeat is known: past the 24 hours that RFC 0083
// asks for, and past senders' own retries.
const dedupWindow = 72 * time.Hour

// OpaqueKey makes a dedup key that gives away nothing of what it was made of
// (trigger-bridge §C-1).
func OpaqueKey(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		_, _ = h.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return "dk_" + hex.EncodeToString(h.Sum(nil)[:20])
}

// OpenWOPSubscription finds a live subscription of that surface by its id alone.
func (m *TriggerManager) OpenWOPSubscription(ctx context.Context, id trigger.SubscriptionID) (*trigger.Subscription, error) {
	s, err := m.store.SubscriptionForCall(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.Surface != trigger.SurfaceOpenWOP || s.Lifecycle != trigger.LifecycleLive || s.OpenWOP == nil {
		return nil, trigger.ErrUnknownSubscription
	}
	return s, nil
}

// Deliver takes a post to an OpenWOP subscription. judge sees the subscription
// and is asked anew when it changed meanwhile; its error is given back and
// nothing is stored.
func (m *TriggerManager) Deliver(ctx context.Context, id trigger.SubscriptionID, judge func(*trigger.Subscription) (*Post, error)) (trigger.IngestResult, error) {
	for range ingestTries {
		s, err := m.OpenWOPSubscription(ctx, id)
		if err != nil {
			return trigger.IngestResult{}, err
		}
		post, err := judge(s)
		if err != nil {
			return trigger.IngestResult{}, err
		}
		saved, err := m.store.SaveCall(ctx, post.record(s))
		if errors.Is(err, trigger.ErrConflict) {
			continue
		}
		if err != nil {
			return trigger.IngestResult{}, err
		}
		return trigger.IngestResult{CallID: saved.CallID, EventIDs: saved.EventIDs, Status: saved.Status, Reason: saved.Reason}, nil
	}
	return trigger.IngestResult{}, trigger.ErrUnavailable
}

func (p *Post) record(s *trigger.Subscription) *trigger.CallRecord {
	record := &trigger.CallRecord{
		Subscription: s, Call: p.Call, Verification: p.Verification, DedupKey: p.Key,
		MaskedQuery: triggercall.MaskQuery(p.Call.RawQuery), MaskedHeader: triggercall.MaskHeader(p.Call.Header),
	}
	if p.Refused {
		record.Status, record.Reason = trigger.StatusFailed, trigger.ReasonVerificationFailed
		return record
	}
	event := trigger.EventRecord{Normalized: p.Event}
	if p.Key != "" {
		event.DedupKey, event.DedupWindow = p.Key, dedupWindow
	}
	record.Events = []trigger.EventRecord{event}
	return record
}

// WebhookParts are the members of a TriggerEvent that a post itself has
// (trigger-event.schema.json). verified is nil when nobody looked.
func WebhookParts(call *trigger.Call, verified *bool) json.RawMessage {
	body := triggercall.BodyEvent(call)
	if body == nil || call.HeaderValue("content-type") == "" && json.Valid(call.Body) {
		body = call.Body // JSON as it was sent
	}
	if len(body) == 0 {
		body = json.RawMessage("null")
	}
	webhook := object("method", quote(call.Method), "headers", allowedHeaders(call.Header), "body", body)
	if verified == nil {
		return object("webhook", webhook)
	}
	return object("verified", json.RawMessage(strconv.FormatBool(*verified)), "webhook", webhook)
}

// allowedHeaders is what a run may see of a post's header: names that say what
// the event is. Everything else stays out, credentials first of all.
func allowedHeaders(header []trigger.Field) json.RawMessage {
	seen := map[string]string{}
	for _, f := range header {
		switch f.Name {
		case "content-type", "content-language", "user-agent", "date", "webhook-id", "webhook-timestamp", "traceparent",
			"x-event-type", "x-event-id", "x-event-key", "x-request-id", "x-correlation-id",
			"x-github-event", "x-github-delivery", "x-gitlab-event", "x-shopify-topic":
			seen[f.Name] = f.Value
		}
	}
	text, _ := json.Marshal(seen) //nolint:errchkjson // texts
	return text
}

// triggerEvent completes the TriggerEvent of an attempt: its id is the
// delivery's. It is the run's input and never on an event log.
func triggerEvent(event *trigger.PendingEvent) json.RawMessage {
	head := []any{
		"source", quote(string(trigger.SourceWebhook)), "subscriptionId", quote(event.Subscription.Reveal()),
		"deliveryId", quote(event.AttemptID), "receivedAt", quote(event.ReceivedAt.UTC().Format(time.RFC3339Nano)),
		"contentTrust", quote("untrusted"),
	}
	if event.DedupKey != "" {
		head = append(head, "dedupKey", quote(event.DedupKey))
	}
	out := object(head...)
	return append(append(out[:len(out)-1:len(out)-1], ','), event.Normalized[1:]...)
}

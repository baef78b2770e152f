package openwop

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// IngestPath is the path of a subscription's ingest URL, less its id.
const IngestPath = "/openwop/ingest/"

// subscriptionJSON is trigger-subscription.schema.json; it is closed.
type subscriptionJSON struct {
	ID           string                `json:"subscriptionId"`
	Source       string                `json:"source"`
	State        trigger.DeliveryState `json:"state"`
	DedupEnabled bool                  `json:"dedupEnabled"`
	RetryPolicy  retryJSON             `json:"retryPolicy"`
	Fingerprint  string                `json:"secretFingerprint,omitempty"`
}

type retryJSON struct {
	MaxAttempts int             `json:"maxAttempts"`
	Backoff     trigger.Backoff `json:"backoff"`
}

// bindingJSON is how a source is bound; the secret is in it this once.
type bindingJSON struct {
	IngestURL   string `json:"ingestUrl,omitempty"`
	Fingerprint string `json:"secretFingerprint,omitempty"`
	Secret      string `json:"signingSecret,omitempty"`
}

func subscriptionOf(s *trigger.Subscription) subscriptionJSON {
	policy := trigger.DefaultPolicy()
	if s.Retry != nil {
		policy = *s.Retry
	}
	out := subscriptionJSON{
		ID: s.ID.Reveal(), Source: sourceOf(s), State: s.Delivery, RetryPolicy: retryJSON{policy.MaxAttempts, policy.Backoff},
	}
	if s.OpenWOP != nil {
		out.DedupEnabled, out.Fingerprint = s.OpenWOP.DedupEnabled, s.OpenWOP.Fingerprint
	}
	return out
}

// sourceOf names a source in OpenWOP's words: the closest one to a poll is the
// schedule (RFC 0083 §E).
func sourceOf(s *trigger.Subscription) string {
	if s.Source == trigger.SourcePoll {
		return string(trigger.SourceSchedule)
	}
	return string(s.Source)
}

// register creates a subscription (RFC 0099 §F.2, RFC 0230 §B).
func (s *Surface) register(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	request, err := readRegistration(w, r)
	if err != nil {
		return err
	}
	subscription, err := s.Manager.Subscribe(r.Context(), who.Tenant, *request)
	if err != nil {
		return err
	}
	s.Log.Info("openwop.registered", obs.Subscription(subscription.ID), obs.Tenant(who.Tenant), zap.String(obs.KeySource, string(subscription.Source)))
	out := struct {
		Subscription subscriptionJSON `json:"subscription"`
		Binding      bindingJSON      `json:"binding"`
	}{Subscription: subscriptionOf(subscription)}
	if subscription.Source == trigger.SourceWebhook {
		out.Binding = bindingJSON{
			IngestURL: s.HostURL + IngestPath + subscription.ID.Reveal(), Fingerprint: subscription.OpenWOP.Fingerprint,
			Secret: subscription.OpenWOP.Secret.Reveal(),
		}
	}
	w.Header().Set("Location", "/v1/trigger-subscriptions/"+subscription.ID.Reveal())
	writeJSON(w, http.StatusCreated, out)
	return nil
}

// readRegistration reads trigger-subscription-registration.schema.json, which is
// closed. A schedule is registered here, too: its cron, at, timezone and
// missedFirePolicy are inputMapping.schedule (docs/openwop.md).
func readRegistration(w http.ResponseWriter, r *http.Request) (*manager.SubscribeRequest, error) {
	body, err := readObject(w, r, "source", "workflowId", "dedupEnabled", "retryPolicy", "verification", "inputMapping")
	if err != nil {
		return nil, err
	}
	request := &manager.SubscribeRequest{AppID: trigger.BuiltinApp, OpenWOP: &trigger.OpenWOP{DedupEnabled: true}}
	if request.WorkflowID, err = text(body, "workflowId", ""); err != nil || !plain(request.WorkflowID) {
		return nil, cmp.Or(err, invalid("workflowId is required: at most 256 bytes, no control characters"))
	}
	if raw, ok := body["dedupEnabled"]; ok && json.Unmarshal(raw, &request.OpenWOP.DedupEnabled) != nil || string(body["dedupEnabled"]) == "null" {
		return nil, invalid("dedupEnabled must be true or false")
	}
	if request.Retry, err = readPolicy(body["retryPolicy"]); err != nil {
		return nil, err
	}
	if request.OpenWOP.Verification, err = readMode(body["verification"]); err != nil {
		return nil, err
	}
	if raw, ok := body["inputMapping"]; ok {
		if len(raw) == 0 || raw[0] != '{' {
			return nil, invalid("inputMapping must be an object")
		}
		request.OpenWOP.InputMapping = raw
	}
	return request, readSource(body, request)
}

func readSource(body map[string]json.RawMessage, request *manager.SubscribeRequest) error {
	source, err := text(body, "source", "")
	if err != nil {
		return err
	}
	switch source {
	case trigger.BuiltinWebhook:
		request.TriggerKey, request.OpenWOP.Secret = trigger.BuiltinWebhook, newSecret()
		return nil
	case trigger.BuiltinSchedule:
		var mapping struct {
			Schedule json.RawMessage `json:"schedule"`
		}
		_ = json.Unmarshal(request.OpenWOP.InputMapping, &mapping) // an object, or absent
		if len(mapping.Schedule) == 0 || mapping.Schedule[0] != '{' {
			return invalid("a schedule needs inputMapping.schedule: {cron or at, timezone, missedFirePolicy}")
		}
		request.TriggerKey, request.Params = trigger.BuiltinSchedule, mapping.Schedule
		return nil
	}
	return invalid("source must be one that discovery lists: webhook or schedule")
}

// newSecret draws a Standard Webhooks key of 32 bytes.
func newSecret() trigger.IngestSecret {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails: crypto/rand aborts the process instead
	return trigger.IngestSecret("whsec_" + base64.StdEncoding.EncodeToString(key))
}

func readPolicy(raw json.RawMessage) (*trigger.RetryPolicy, error) {
	policy := trigger.DefaultPolicy()
	if raw == nil {
		return &policy, nil
	}
	object, err := parseObject(raw, "retryPolicy", "maxAttempts", "backoff")
	if err != nil {
		return nil, err
	}
	if raw, ok := object["maxAttempts"]; ok {
		attempts, err := strconv.Atoi(string(raw))
		if err != nil || attempts < 1 || attempts > trigger.MaxPolicyAttempts {
			return nil, invalid("retryPolicy.maxAttempts must be a whole number from 1 to " + strconv.Itoa(trigger.MaxPolicyAttempts))
		}
		policy.MaxAttempts = attempts
	}
	backoff, err := text(object, "backoff", string(policy.Backoff))
	if err != nil {
		return nil, err
	}
	switch policy.Backoff = trigger.Backoff(backoff); policy.Backoff {
	case trigger.BackoffNone, trigger.BackoffFixed, trigger.BackoffExponential:
		return &policy, nil
	}
	return nil, invalid("retryPolicy.backoff must be none, fixed or exponential")
}

func readMode(raw json.RawMessage) (trigger.VerificationMode, error) {
	if raw == nil {
		return trigger.VerifyRequired, nil
	}
	object, err := parseObject(raw, "verification", "mode")
	if err != nil {
		return "", err
	}
	mode, err := text(object, "mode", string(trigger.VerifyRequired))
	if err != nil {
		return "", err
	}
	switch mode := trigger.VerificationMode(mode); mode {
	case trigger.VerifyRequired, trigger.VerifyBestEffort, trigger.VerifyNone:
		return mode, nil
	}
	return "", invalid("verification.mode must be required, best-effort or none")
}

// list shows the tenant's subscriptions, of both surfaces, newest first.
func (s *Surface) list(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	page := trigger.Page{Limit: trigger.MaxPage, Cursor: r.URL.Query().Get("cursor")}
	found, next, err := s.Manager.ListSubscriptionsForWorkflow(r.Context(), who.Tenant, "", page)
	if err != nil {
		return err
	}
	out := struct {
		Subscriptions []subscriptionJSON `json:"subscriptions"`
		NextCursor    string             `json:"nextCursor,omitempty"`
	}{make([]subscriptionJSON, len(found)), next}
	for i, subscription := range found {
		out.Subscriptions[i] = subscriptionOf(subscription)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// deliveryJSON is a line of a subscription's delivery inspection.
type deliveryJSON struct {
	DeliveryID     string `json:"deliveryId"`
	SubscriptionID string `json:"subscriptionId"`
	DedupKey       string `json:"dedupKey"`
	Attempt        int    `json:"attempt"`
	Outcome        string `json:"outcome"`
	RunID          string `json:"runId,omitempty"`
	At             string `json:"at"`
}

const shownDeliveries = 50

// get shows a subscription with its newest deliveries, and never its secret.
func (s *Surface) get(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	subscription, err := s.find(r, who)
	if err != nil {
		return err
	}
	deliveries, err := s.Ledger.Deliveries(r.Context(), subscription.SID, shownDeliveries)
	if err != nil {
		return err
	}
	out := struct {
		Subscription subscriptionJSON `json:"subscription"`
		Deliveries   []deliveryJSON   `json:"deliveries"`
	}{subscriptionOf(subscription), make([]deliveryJSON, len(deliveries))}
	for i, d := range deliveries {
		out.Deliveries[i] = deliveryJSON{
			d.AttemptID, subscription.ID.Reveal(), cmp.Or(d.DedupKey, d.EventID), d.Attempt, outcomeOf(d.Outcome), d.RunID, iso(d.At),
		}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// outcomeOf says an outcome in OpenWOP's words: an attempt whose dispatcher was
// lost is made again.
func outcomeOf(outcome string) string {
	if outcome == trigger.AttemptLost {
		return trigger.AttemptRetrying
	}
	return outcome
}

func (s *Surface) find(r *http.Request, who *apikey.Principal) (*trigger.Subscription, error) {
	id, err := subscriptionID(r)
	if err != nil {
		return nil, err
	}
	return s.Manager.GetSubscription(r.Context(), who.Tenant, id)
}

// change pauses and resumes (RFC 0083 §B): the operator's word, and what brings
// a failed or dead-lettered subscription back.
func (s *Surface) change(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	id, err := subscriptionID(r)
	if err != nil {
		return err
	}
	body, err := readObject(w, r, "state")
	if err != nil {
		return err
	}
	state, err := text(body, "state", "")
	if err != nil {
		return err
	}
	if state != string(trigger.DeliveryPaused) && state != string(trigger.DeliveryActive) {
		return invalid("state must be paused or active")
	}
	subscription, err := s.Manager.SetEnabled(r.Context(), who.Tenant, id, state == string(trigger.DeliveryActive))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		Subscription subscriptionJSON `json:"subscription"`
	}{subscriptionOf(subscription)})
	return nil
}

func iso(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

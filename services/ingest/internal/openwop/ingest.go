package openwop

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

// Outcomes of the posts metric that are no error code.
const (
	outcomeDelivered = "delivered"
	outcomeDuplicate = "duplicate"
)

// webhookID is the grammar of a post's id (RFC 0230 §C).
var webhookID = regexp.MustCompile(`^[A-Za-z0-9_-]{16,128}$`)

// errRefused is a post whose signature does not hold.
var errRefused = &problem{http.StatusUnauthorized, "signature_invalid", "the signature does not hold for this subscription, these bytes and this time", nil}

// OwnsIngest says whether a path on the public listener is a post's.
func OwnsIngest(path string) bool { return strings.HasPrefix(path, IngestPath) }

// IngestHandler serves posts (RFC 0230). It asks for no key: the signature
// authenticates. The order of its checks lets an unauthenticated sender learn
// nothing of what was delivered: unknown id, size, state, form of the headers,
// signature, de-duplication.
func (s *Surface) IngestHandler() http.Handler {
	return s.recovering(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outcome, err := s.ingest(w, r)
		if err != nil {
			outcome = problemOf(err).Code
			s.answerError(w, r, err)
		}
		s.posts.WithLabelValues(outcome).Inc()
	}))
}

func (s *Surface) ingest(w http.ResponseWriter, r *http.Request) (string, error) {
	id := trigger.SubscriptionID(strings.TrimPrefix(r.URL.Path, IngestPath))
	if !plain(id.Reveal()) {
		return "", notFound()
	}
	if _, err := s.Manager.OpenWOPSubscription(r.Context(), id); err != nil {
		return "", err
	}
	if r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch {
		w.Header().Set("Allow", "POST, PUT, PATCH")
		return "", &problem{http.StatusMethodNotAllowed, "method_not_allowed", "posts come by POST, PUT or PATCH", nil}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.MaxBody))
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return "", err
		}
		return "", invalid("the body ended early")
	}
	call := &trigger.Call{
		Source: trigger.SourceWebhook, Method: r.Method, Path: r.URL.EscapedPath(), RawQuery: r.URL.RawQuery, Header: headerOf(r), Body: body,
	}
	return s.deliver(r.Context(), w, id, call)
}

// headerOf lists the header in lower case, sorted by name.
func headerOf(r *http.Request) []trigger.Field {
	var fields []trigger.Field
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, value := range r.Header[name] {
			fields = append(fields, trigger.Field{Name: strings.ToLower(name), Value: value})
		}
	}
	return fields
}

// deliver stores a post, waits for its run and answers.
func (s *Surface) deliver(ctx context.Context, w http.ResponseWriter, id trigger.SubscriptionID, call *trigger.Call) (string, error) {
	result, err := s.take(ctx, id, call)
	if err != nil {
		return "", err
	}
	s.Log.Info("openwop.post", obs.Subscription(id), obs.Events(result.EventIDs), obs.Status(result.Status), obs.Reason(result.Reason), zap.Int(obs.KeyBytes, len(call.Body)))
	if result.Status == trigger.StatusFailed {
		return "", errRefused
	}
	outcome, err := s.await(ctx, result.EventIDs[0])
	if err != nil {
		return "", err
	}
	status, word := http.StatusAccepted, outcomeDelivered
	if result.Reason == trigger.ReasonDuplicate {
		status, word = http.StatusOK, outcomeDuplicate
	}
	writeJSON(w, status, object{"outcome": word, "runId": outcome.RunID})
	return word, nil
}

// take judges and stores a post.
func (s *Surface) take(ctx context.Context, id trigger.SubscriptionID, call *trigger.Call) (trigger.IngestResult, error) {
	return s.Manager.Deliver(ctx, id, func(subscription *trigger.Subscription) (*manager.Post, error) {
		return s.judge(ctx, subscription, call)
	})
}

// await waits, bounded, until the event's run is there: 202 means that it
// exists. Past the bound the event stays, and a retry is a duplicate that gets
// the same run.
func (s *Surface) await(ctx context.Context, eventID string) (trigger.EventOutcome, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Wait)
	defer cancel()
	outcome, ok := s.hub.wait(ctx, eventID)
	switch {
	case !ok:
		return outcome, &problem{http.StatusServiceUnavailable, "delivery_pending", "the event is stored and its run has not started yet; a retry gets that run", map[string]any{"retryAfter": 5}}
	case outcome.Status != trigger.StatusDispatched:
		return outcome, &problem{http.StatusConflict, "delivery_dead_lettered", "the delivery ended without a run; an operator has to look", nil}
	}
	return outcome, nil
}

// judge holds a post against its subscription.
func (s *Surface) judge(ctx context.Context, subscription *trigger.Subscription, call *trigger.Call) (*manager.Post, error) {
	own := subscription.OpenWOP
	if subscription.Source != trigger.SourceWebhook {
		return nil, notFound()
	}
	if !subscription.Enabled() {
		return nil, &problem{http.StatusConflict, "subscription_not_active", "the subscription takes nothing in this state", nil}
	}
	id, err := postID(call, own)
	if err != nil {
		return nil, err
	}
	post := &manager.Post{Call: call}
	if own.DedupEnabled {
		post.Key = manager.OpaqueKey(subscription.ID.Reveal(), id)
	}
	if own.Verification == trigger.VerifyNone {
		post.Event = manager.WebhookParts(call, nil)
		return post, nil
	}
	verdict, err := s.verifier.Verify(ctx, verify.Input{
		Call: call, URL: s.HostURL + call.Path, Secrets: verify.Secrets{Stored: secret.Text(own.Secret.Reveal())}, Now: time.Now(),
	})
	if err != nil {
		return nil, err
	}
	post.Verification, _ = json.Marshal(verdict) //nolint:errchkjson // words and numbers
	if !verdict.OK && own.Verification == trigger.VerifyRequired {
		if !s.refusals.record(subscription.ID) {
			return nil, errRefused
		}
		post.Refused = true
		return post, nil
	}
	post.Event = manager.WebhookParts(call, &verdict.OK)
	return post, nil
}

// postID reads webhook-id: what dedup and a signature cannot do without.
func postID(call *trigger.Call, own *trigger.OpenWOP) (string, error) {
	var ids []string
	for _, field := range call.Header {
		if field.Name == "webhook-id" {
			ids = append(ids, field.Value)
		}
	}
	if len(ids) == 0 && !own.DedupEnabled && own.Verification != trigger.VerifyRequired {
		return "", nil
	}
	if len(ids) != 1 || !webhookID.MatchString(ids[0]) {
		return "", invalid("webhook-id is required, once: 16 to 128 of A–Z, a–z, 0–9, _ and -")
	}
	return ids[0], nil
}

const (
	refusalsKept   = 60 // recorded a minute and subscription
	refusalsWindow = time.Minute
)

// refusals bounds how many refused posts are recorded, so that strangers cannot
// fill the ledger. Past it they are refused all the same.
type refusals struct {
	mu    sync.Mutex
	since time.Time
	count map[trigger.SubscriptionID]int
}

func newRefusals() *refusals { return &refusals{count: map[trigger.SubscriptionID]int{}} }

func (r *refusals) record(id trigger.SubscriptionID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.since) > refusalsWindow {
		r.since = now
		clear(r.count)
	}
	r.count[id]++
	return r.count[id] <= refusalsKept
}

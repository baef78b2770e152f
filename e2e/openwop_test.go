package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/e2e/rig"
)

// The assertions of OpenWOP's public scenarios for openwop-trigger-bridge,
// strict, through HTTP against the real programs, on both witness paths: the
// test seams, and what a client can see. Beyond the suite, runs are counted.
func TestOpenWOPTriggerBridge(t *testing.T) { //nolint:tparallel // the suite asks that its files run one after the other
	t.Parallel()

	b := startBridge(t, rig.Options{})
	for _, c := range []struct { //nolint:paralleltest // likewise
		name string
		run  func(*testing.T, *bridge)
	}{
		{"discovery is honest, valid and cacheable", bridgeDiscovery},
		{"the API says who may do what", bridgeAuthentication},
		{"a registration is read as it was written, and never its secret", bridgeRegistration},
		{"a registration's Idempotency-Key gives the same answer", bridgeIdempotency},
		{"1 a repeat is the prior run", bridgeDedup},
		{"2 exhaustion dead-letters, a refusal changes nothing", bridgeDeadLetter},
		{"3 a timestamp off by ten minutes is refused", bridgeTimestamp},
		{"5 run.started is caused by the attempt", bridgeCausation},
		{"6 a refused post is a dead letter without content", bridgeRefused},
		{"7 changes of state have no content", bridgeStateChanges},
		{"dead letters page, and cursors are bound", bridgePaging},
		{"the four modes of a post", bridgeModes},
		{"pause, resume and the states between", bridgeStates},
		{"the ingestion seam shows what a run gets", bridgeIngestion},
		{"sources that are not there are refused", bridgeUnknownSources},
		{"the run sink keeps what could not start", bridgeRunSink},
		{"ticks fire once", bridgeTicks},
		{"runs are started by hand, polled and streamed", bridgeRuns},
		{"the answers of the ingest URL", bridgeIngestAnswers},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := *b
			own.t = t
			c.run(t, &own)
		})
	}
}

// C:discovery, C:lib/profiles: openwop-core and isTriggerBridge.
func bridgeDiscovery(t *testing.T, b *bridge) {
	a := b.do(http.MethodGet, "/.well-known/openwop", nil).want(t, http.StatusOK)
	b.valid("capabilities.schema.json", a.text)
	if a.header.Get("Cache-Control") == "" || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("header %v", a.header)
	}
	etag := a.header.Get("ETag")
	b.do(http.MethodGet, "/.well-known/openwop", nil, "If-None-Match", etag).want(t, http.StatusNotModified)
	if !strings.HasPrefix(a.string("protocolVersion"), "1.") || a.at("capabilities") != nil {
		t.Errorf("no openwop-core: %s", a.text)
	}
	for _, path := range [][]string{{"triggerBridge", "supported"}, {"deadLetter", "supported"}, {"webhooks", "durable"}, {"scheduling", "supported"}, {"scheduling", "cron"}} {
		if a.at(path...) != true {
			t.Errorf("%v is %v", path, a.at(path...))
		}
	}
	if a.at("webhooks", "supported") != nil || a.at("queueBus") != nil || a.at("multiAgent") != nil {
		t.Errorf("claims what is not there: %s", a.text)
	}
	want := map[string]any{
		"externalSources": []any{"webhook"}, "maxBodyBytes": float64(1 << 20), "verification": []any{"webhook-signature"},
		"registrationEndpoint": true, "inboundSigning": []any{"standard-webhooks-1"},
	}
	if diff := cmp.Diff(want, a.at("triggerBridge", "ingestion")); diff != "" {
		t.Errorf("ingestion: %s", diff)
	}
	if diff := cmp.Diff([]any{"conformance-noop"}, a.at("fixtures")); diff != "" {
		t.Errorf("fixtures: %s", diff)
	}
	openAPI := b.do(http.MethodGet, "/v1/openapi.json", nil).want(t, http.StatusOK)
	if !strings.HasPrefix(openAPI.string("openapi"), "3.1") {
		t.Errorf("openapi %v", openAPI.at("openapi"))
	}
}

func bridgeAuthentication(t *testing.T, b *bridge) {
	for _, header := range [][]string{nil, {"Authorization", "Bearer tk_0000000000_nothing"}, {"Authorization", "Basic eDp5"}} {
		a := b.do(http.MethodGet, "/v1/trigger-subscriptions", nil, header...).want(t, http.StatusUnauthorized)
		if a.string("error") != "unauthenticated" || !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%v: %s %v", header, a.text, a.header)
		}
	}
	reader := b.as("readers", "runs:read")
	for _, c := range [][2]string{{http.MethodGet, "/v1/trigger-subscriptions"}, {http.MethodPost, "/v1/trigger-subscriptions"}, {http.MethodPost, "/v1/runs"}} {
		if a := reader.call(c[0], c[1], map[string]any{}).want(t, http.StatusForbidden); a.string("error") != "forbidden" || a.string("details", "scopeRequired") == "" {
			t.Errorf("%v: %s", c, a.text)
		}
	}
	reader.call(http.MethodGet, "/v1/runs/run_none", nil).want(t, http.StatusNotFound)
	if a := b.call(http.MethodGet, "/v1/nothing", nil).want(t, http.StatusNotFound); a.string("error") != "not_found" {
		t.Error(a.text)
	}
}

// Test 4 of trigger-bridge-delivery: the secret is shown once.
func bridgeRegistration(t *testing.T, b *bridge) {
	r := b.register("none", map[string]any{"dedupEnabled": false, "retryPolicy": map[string]any{"maxAttempts": 2, "backoff": "fixed"}, "inputMapping": map[string]any{"x": 1}})
	one := b.call(http.MethodGet, "/v1/trigger-subscriptions/"+r.id, nil).want(t, http.StatusOK)
	record, _ := one.at("subscription").(map[string]any)
	fingerprint, _ := record["secretFingerprint"].(string)
	want := map[string]any{
		"subscriptionId": r.id, "source": "webhook", "state": "active", "dedupEnabled": false,
		"retryPolicy": map[string]any{"maxAttempts": 2., "backoff": "fixed"}, "secretFingerprint": fingerprint,
	}
	if diff := cmp.Diff(want, record); diff != "" || len(fingerprint) < 8 || strings.Contains(r.secret, fingerprint) {
		t.Errorf("record: %s", diff)
	}
	list := b.call(http.MethodGet, "/v1/trigger-subscriptions", nil).want(t, http.StatusOK)
	if !strings.Contains(list.text, r.id) {
		t.Errorf("the list lacks it: %s", list.text)
	}
	for _, a := range []*answer{one, list} {
		for _, leak := range []string{"signingSecret", "whsec_", strings.TrimPrefix(r.secret, "whsec_")} {
			if strings.Contains(a.text, leak) {
				t.Errorf("%q in %s", leak, a.text)
			}
		}
	}
	for _, body := range []map[string]any{
		{},
		{"source": "webhook"},
		{"workflowId": "w"},
		{"source": "email", "workflowId": "w"},
		{"source": "stream", "workflowId": "w"},
		{"source": "webhook", "workflowId": ""},
		{"source": "webhook", "workflowId": "w", "tenantId": "x"},
		{"source": "webhook", "workflowId": "w", "Source": "webhook"},
		{"source": "webhook", "workflowId": "w", "retryPolicy": map[string]any{"maxAttempts": 0}},
		{"source": "webhook", "workflowId": "w", "retryPolicy": map[string]any{"backoff": "wild"}},
		{"source": "webhook", "workflowId": "w", "verification": map[string]any{"mode": "maybe"}},
		{"source": "webhook", "workflowId": "w", "verification": map[string]any{"mode": "none", "more": 1}},
		{"source": "webhook", "workflowId": "w", "dedupEnabled": "yes"},
		{"source": "webhook", "workflowId": "w", "inputMapping": []int{}},
		{"source": "schedule", "workflowId": "w"},
		{"source": "schedule", "workflowId": "w", "inputMapping": map[string]any{"schedule": map[string]any{"cron": "never"}}},
	} {
		if a := b.call(http.MethodPost, "/v1/trigger-subscriptions", body).want(t, http.StatusBadRequest); a.string("error") != "validation_error" {
			t.Errorf("%v: %s", body, a.text)
		}
	}
	far := map[string]any{"source": "schedule", "workflowId": "w", "inputMapping": map[string]any{"schedule": map[string]any{"at": "2199-01-01T00:00:00Z"}}}
	if a := b.call(http.MethodPost, "/v1/trigger-subscriptions", far).want(t, http.StatusBadRequest); a.string("error") != "schedule_horizon_exceeded" || a.string("details", "maxFutureHorizon") == "" {
		t.Error(a.text)
	}
}

// OpenWOP idempotency, Layer 1.
func bridgeIdempotency(t *testing.T, b *bridge) {
	body := map[string]any{"source": "webhook", "workflowId": "conformance-noop"}
	post := func(key string, body map[string]any) *answer {
		return b.call(http.MethodPost, "/v1/trigger-subscriptions", body, "Idempotency-Key", key)
	}
	key := newMessageID()
	first := post(key, body).want(t, http.StatusCreated)
	again := post(key, body).want(t, http.StatusCreated)
	if again.text != first.text || again.header.Get("openwop-Idempotent-Replay") != "true" || first.header.Get("openwop-Idempotent-Replay") != "" {
		t.Errorf("replay: %s\nafter %s", again.text, first.text)
	}
	other := post(key, map[string]any{"source": "webhook", "workflowId": "another"}).want(t, http.StatusConflict)
	if other.string("error") != "idempotency_key_mismatch" {
		t.Error(other.text)
	}
	bad := newMessageID()
	post(bad, map[string]any{"source": "webhook"}).want(t, http.StatusBadRequest)
	post(bad, body).want(t, http.StatusCreated) // a 400 is not kept
	post(strings.Repeat("k", 256), body).want(t, http.StatusBadRequest)
	if a := b.as("elsewhere", "webhooks:manage").call(http.MethodPost, "/v1/trigger-subscriptions", body, "Idempotency-Key", key).want(t, http.StatusCreated); a.text == first.text {
		t.Error("the key is shared across tenants")
	}
	stored := b.system.Count("SELECT count(*) FROM idempotency_keys WHERE position($1::bytea in key) > 0 OR position('whsec_'::bytea in response) > 0", []byte(key))
	if stored != 0 {
		t.Error("a key or a secret is stored in clear")
	}
	start, results := make(chan struct{}), make(chan *answer, 4)
	racing := newMessageID()
	for range 4 {
		go func() {
			<-start
			results <- post(racing, body)
		}()
	}
	close(start)
	ids := map[string]bool{}
	for range 4 {
		switch a := <-results; {
		case a.status == http.StatusCreated:
			ids[a.string("subscription", "subscriptionId")] = true
		case a.status != http.StatusConflict || a.string("error") != "idempotency_in_flight":
			t.Errorf("%d %s", a.status, a.text)
		}
	}
	if len(ids) != 1 {
		t.Errorf("%d subscriptions were made", len(ids))
	}
}

func (b *bridge) deliver(body map[string]any) *answer {
	b.t.Helper()
	return b.call(http.MethodPost, "/v1/host/sample/trigger-bridge/deliver", body)
}

func bridgeDedup(t *testing.T, b *bridge) {
	for _, source := range []string{"queue", "webhook", "schedule"} {
		key := "openwop-conformance-queue-" + newMessageID()
		a := b.deliver(map[string]any{"scenario": "dedup", "dedupKey": key, "source": source}).want(t, http.StatusOK)
		delivered := 0
		for _, e := range b.seamEvents(a.string("runId"), attempted) {
			if e.Payload["dedupKey"] == key && e.Payload["outcome"] == "delivered" {
				delivered++
			}
		}
		if delivered != 1 || a.at("deliveredCount") != 1. || b.runsOf(a.string("subscriptionId")) != 1 {
			t.Errorf("%s: %d delivered attempts, %d runs: %s", source, delivered, b.runsOf(a.string("subscriptionId")), a.text)
		}
	}
	b.call(http.MethodPost, "/v1/host/sample/test/reset", map[string]any{}).want(t, http.StatusOK)

	r, id := b.register("none", nil), newMessageID()
	first := b.post(r, id, []byte(`{"n":1}`), 0).want(t, http.StatusAccepted)
	again := b.post(r, id, []byte(`{"n":1}`), time.Second).want(t, http.StatusOK)
	if first.string("runId") == "" || first.string("outcome") != "delivered" || again.string("outcome") != "duplicate" || again.string("runId") != first.string("runId") {
		t.Errorf("%s then %s", first.text, again.text)
	}
	if n := b.runsOf(r.id); n != 1 {
		t.Errorf("%d runs", n)
	}
	keys := b.system.Count("SELECT count(*) FROM trigger_events WHERE dedup_key LIKE '%' || $1 || '%'", id)
	if keys != 0 {
		t.Error("a dedup key shows the sender's id")
	}
}

func bridgeDeadLetter(t *testing.T, b *bridge) {
	a := b.deliver(map[string]any{"scenario": "exhaust", "source": "webhook"}).want(t, http.StatusOK)
	carrier := a.string("runId")
	attempts := b.seamEvents(carrier, attempted)
	var outcomes []any
	for i, e := range attempts {
		outcomes = append(outcomes, e.Payload["outcome"])
		if e.Payload["attempt"] != float64(i+1) || e.Payload["runId"] != nil {
			t.Errorf("attempt %d: %v", i, e.Payload)
		}
	}
	if diff := cmp.Diff([]any{"retrying", "retrying", "dead-lettered"}, outcomes); diff != "" {
		t.Errorf("attempts: %s", diff)
	}
	changes := b.seamEvents(carrier, changed)
	if len(changes) != 1 || changes[0].Payload["fromState"] != "active" || changes[0].Payload["toState"] != "dead-lettered" || changes[0].Payload["reason"] != "retry-exhausted" {
		t.Errorf("changes: %v", changes)
	}
	if n := b.runsOf(a.string("subscriptionId")); n != 0 || b.state(a.string("subscriptionId")) != "dead-lettered" {
		t.Errorf("%d runs, state %s", n, b.state(a.string("subscriptionId")))
	}
	page := b.call(http.MethodGet, "/v1/trigger-subscriptions/"+a.string("subscriptionId")+"/dead-letters", nil).want(t, http.StatusOK)
	b.valid("trigger-dead-letter-page.schema.json", page.text)
	list, _ := page.json["deliveries"].([]any)
	if len(list) != 1 {
		t.Fatalf("dead letters: %s", page.text)
	}
	record, _ := list[0].(map[string]any)
	last := attempts[len(attempts)-1]
	if record["attemptEventId"] != last.EventID || record["reason"] != "retries_exhausted" || cmp.Diff(record["attempt"], any(last.Payload)) != "" ||
		cmp.Diff(record["stateChange"], any(changes[0].Payload)) != "" {
		t.Errorf("the record disagrees with the event: %v, %v", record, last)
	}

	r := b.register("required", nil)
	if refused := b.badPost(r, []byte(`{}`)).want(t, http.StatusUnauthorized); refused.string("runId") != "" {
		t.Error(refused.text)
	}
	if state := b.state(r.id); state != "active" {
		t.Errorf("a sender moved the state to %s", state)
	}
	b.post(r, newMessageID(), []byte(`{}`), 0).want(t, http.StatusAccepted)
}

func bridgeTimestamp(t *testing.T, b *bridge) {
	r := b.register("required", nil)
	for _, skew := range []time.Duration{-600 * time.Second, 600 * time.Second} {
		if a := b.post(r, newMessageID(), []byte(`{}`), skew).want(t, http.StatusUnauthorized); a.string("error") != "signature_invalid" || a.string("runId") != "" {
			t.Errorf("%v: %s", skew, a.text)
		}
	}
	if state := b.state(r.id); state != "active" {
		t.Errorf("state %s", state)
	}
	b.post(r, newMessageID(), []byte(`{}`), 0).want(t, http.StatusAccepted)
	if n := b.runsOf(r.id); n != 1 {
		t.Errorf("%d runs", n)
	}
}

func bridgeCausation(t *testing.T, b *bridge) {
	for _, source := range []string{"schedule", "webhook", "queue"} {
		a := b.deliver(map[string]any{"scenario": "deliver", "source": source}).want(t, http.StatusOK)
		attempts, started := b.seamEvents(a.string("runId"), attempted), b.seamEvents(a.string("runId"), "run.started")
		if len(attempts) != 1 || len(started) != 1 || attempts[0].Payload["outcome"] != "delivered" || started[0].CausationID == "" || started[0].CausationID != attempts[0].EventID {
			t.Errorf("%s: %v, %v", source, attempts, started)
		}
	}
	r := b.register("none", nil)
	run := b.post(r, newMessageID(), []byte(`{"n":1}`), 0).want(t, http.StatusAccepted).string("runId")
	poll := b.call(http.MethodGet, "/v1/runs/"+run+"/events/poll", nil).want(t, http.StatusOK)
	started, attempts := b.events(poll, "run.started"), b.events(poll, attempted)
	if len(started) != 1 || len(attempts) != 1 || started[0].CausationID != attempts[0].EventID || attempts[0].Payload["runId"] != run || poll.at("isComplete") != true {
		t.Errorf("poll: %s", poll.text)
	}
	one := b.call(http.MethodGet, "/v1/trigger-subscriptions/"+r.id, nil).want(t, http.StatusOK)
	deliveries, _ := one.json["deliveries"].([]any)
	if len(deliveries) != 1 || deliveries[0].(map[string]any)["deliveryId"] != attempts[0].EventID { //nolint:errcheck,forcetypeassert // a test
		t.Errorf("deliveries: %s", one.text)
	}
	b.call(http.MethodGet, "/v1/runs/"+run+"/ancestry", nil).want(t, http.StatusNotFound)
}

func bridgeRefused(t *testing.T, b *bridge) {
	r, canary := b.register("required", nil), "canary-"+newMessageID()
	if a := b.badPost(r, []byte(`{"c":"`+canary+`"}`), "X-Canary", canary).want(t, http.StatusUnauthorized); a.string("error") != "signature_invalid" {
		t.Error(a.text)
	}
	page := b.call(http.MethodGet, "/v1/trigger-subscriptions/"+r.id+"/dead-letters", nil).want(t, http.StatusOK)
	b.valid("trigger-dead-letter-page.schema.json", page.text)
	list, _ := page.json["deliveries"].([]any)
	if len(list) != 1 {
		t.Fatalf("dead letters: %s", page.text)
	}
	record := answer{json: list[0].(map[string]any)} //nolint:errcheck,forcetypeassert // a test
	if record.string("reason") != "verification_failed" || record.string("subscriptionId") != r.id || record.string("attempt", "outcome") != "dead-lettered" ||
		record.string("attempt", "subscriptionId") != r.id || record.at("stateChange") != nil {
		t.Errorf("record: %s", page.text)
	}
	dead, err1 := time.Parse(time.RFC3339, record.string("deadLetteredAt"))
	expires, err2 := time.Parse(time.RFC3339, record.string("expiresAt"))
	if err1 != nil || err2 != nil || expires.Sub(dead) != 7*24*time.Hour || time.Since(dead).Abs() > time.Minute {
		t.Errorf("times: %s", page.text)
	}
	for _, leak := range []string{canary, strings.Repeat("A", 43), r.secret, strings.TrimPrefix(r.secret, "whsec_")} {
		if strings.Contains(page.text, leak) {
			t.Errorf("%q in %s", leak, page.text)
		}
	}
}

func bridgeStateChanges(t *testing.T, b *bridge) {
	for _, source := range []string{"webhook", "queue", "schedule"} {
		a := b.deliver(map[string]any{"scenario": "exhaust", "source": source}).want(t, http.StatusOK)
		changes := b.seamEvents(a.string("runId"), changed)
		if len(changes) < 1 || changes[len(changes)-1].Payload["source"] != source {
			t.Errorf("%s: %v", source, changes)
		}
	}
	if a := b.call(http.MethodGet, "/v1/host/sample/test/runs/__probe__/events", nil).want(t, http.StatusOK); strings.TrimSpace(a.text) != `{"events":[]}` {
		t.Errorf("the probe: %s", a.text)
	}
}

// trigger-dead-letter-read.test.ts
func bridgePaging(t *testing.T, b *bridge) {
	r, other := b.register("required", nil), b.register("required", nil)
	for range 3 {
		b.badPost(r, []byte(`{}`)).want(t, http.StatusUnauthorized)
	}
	b.badPost(other, []byte(`{}`)).want(t, http.StatusUnauthorized)
	path := "/v1/trigger-subscriptions/" + r.id + "/dead-letters"
	var seen []string
	cursor, first := "", ""
	for {
		page := b.call(http.MethodGet, path+"?limit=1&cursor="+cursor, nil).want(t, http.StatusOK)
		b.valid("trigger-dead-letter-page.schema.json", page.text)
		list, _ := page.json["deliveries"].([]any)
		if len(list) != 1 {
			t.Fatalf("page: %s", page.text)
		}
		seen = append(seen, list[0].(map[string]any)["deadLetteredAt"].(string)) //nolint:errcheck,forcetypeassert // a test
		if cursor = page.string("nextCursor"); cursor == "" {
			break
		}
		first = cursor
	}
	if len(seen) != 3 || !slices.IsSortedFunc(seen, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("not newest first: %v", seen)
	}
	b.call(http.MethodGet, path+"?limit=101", nil).want(t, http.StatusOK)
	for _, query := range []string{"limit=0", "limit=x", "cursor=nonsense", "cursor=" + strings.Repeat("A", 3000)} {
		b.call(http.MethodGet, path+"?"+query, nil).want(t, http.StatusBadRequest)
	}
	if a := b.call(http.MethodGet, "/v1/trigger-subscriptions/"+other.id+"/dead-letters?cursor="+first, nil).want(t, http.StatusBadRequest); a.string("error") != "validation_error" {
		t.Error(a.text)
	}
	stranger := b.as("tenant-b", "webhooks:manage")
	foreign, unknown := stranger.call(http.MethodGet, path, nil).want(t, http.StatusNotFound), stranger.call(http.MethodGet, "/v1/trigger-subscriptions/"+r.id+"-never-minted/dead-letters", nil)
	if foreign.text != unknown.text || foreign.status != unknown.status || strings.Contains(foreign.text, "verification_failed") {
		t.Errorf("%s and %s", foreign.text, unknown.text)
	}
	// "retention exact": past seven days it is not shown.
	if _, err := b.system.Pool.Exec(t.Context(), `UPDATE trigger_attempts AS a SET ended_at = a.ended_at - interval '7 days' FROM subscriptions AS s WHERE s.sid = a.sid AND s.id = $1`, r.id); err != nil {
		t.Fatal(err)
	}
	if a := b.call(http.MethodGet, path, nil).want(t, http.StatusOK); strings.TrimSpace(a.text) != `{"deliveries":[]}` {
		t.Errorf("past its retention: %s", a.text)
	}
}

func bridgeModes(t *testing.T, b *bridge) {
	for _, c := range []struct {
		mode     string
		good     bool
		status   int
		verified any
	}{
		{"required", true, 202, true},
		{"required", false, 401, nil},
		{"best-effort", true, 202, true},
		{"best-effort", false, 202, false},
		{"none", true, 202, nil},
		{"none", false, 202, nil},
	} {
		r := b.register(c.mode, nil)
		body := []byte(`{"big":12345678901234567890,"n":"\u0000"}`)
		send := func() *answer { return b.badPost(r, body, "X-Event-Type", "made") }
		if c.good {
			send = func() *answer { return b.post(r, newMessageID(), body, 0, "X-Event-Type", "made") }
		}
		a := send().want(t, c.status)
		if c.status != http.StatusAccepted {
			continue
		}
		_, run := b.system.API(http.MethodGet, "/runs/"+a.string("runId"), nil)
		seen, _ := run["run"].(map[string]any)
		text, _ := json.Marshal(seen["event"])
		b.valid("trigger-event.schema.json", string(text))
		got, _ := seen["event"].(map[string]any)
		webhook, _ := got["webhook"].(map[string]any)
		headers, _ := webhook["headers"].(map[string]any)
		if got["verified"] != c.verified || got["contentTrust"] != "untrusted" || got["subscriptionId"] != r.id || got["deliveryId"] != seen["causationId"] ||
			!strings.Contains(string(text), "12345678901234567890") || headers["x-event-type"] != "made" || headers["webhook-signature"] != nil {
			t.Errorf("%s: TriggerEvent %s", c.mode, text)
		}
	}
}

// docs/openwop.md: every legal transition of an operator, and no other.
func bridgeStates(t *testing.T, b *bridge) {
	r := b.register("none", nil)
	path := "/v1/trigger-subscriptions/" + r.id
	set := func(state string) *answer { return b.call(http.MethodPatch, path, map[string]any{"state": state}) }
	if a := set("paused").want(t, http.StatusOK); a.string("subscription", "state") != "paused" {
		t.Error(a.text)
	}
	if a := b.post(r, newMessageID(), []byte(`{}`), 0).want(t, http.StatusConflict); a.string("error") != "subscription_not_active" {
		t.Error(a.text)
	}
	set("paused").want(t, http.StatusOK)
	set("active").want(t, http.StatusOK)
	b.post(r, newMessageID(), []byte(`{}`), 0).want(t, http.StatusAccepted)
	for _, body := range []map[string]any{{}, {"state": "failed"}, {"state": "dead-lettered"}, {"state": 1}, {"state": "paused", "x": 1}} {
		b.call(http.MethodPatch, path, body).want(t, http.StatusBadRequest)
	}
	// The same row through the other API: enabled:false is paused.
	if status, _ := b.system.API(http.MethodPatch, "/subscriptions/"+r.id, map[string]any{"enabled": false}); status != http.StatusOK || b.state(r.id) != "paused" {
		t.Errorf("enabled:false is %s", b.state(r.id))
	}
	got := b.transitions(r.id)
	if diff := cmp.Diff([]string{"active>paused operator-paused", "paused>active ", "active>paused operator-paused"}, got); diff != "" {
		t.Errorf("recorded: %s", diff)
	}
	// The engine's word: dead-lettered keeps its events and comes back by the
	// operator alone.
	failing := b.register("none", map[string]any{"workflowId": "openwop-seam-unavailable", "retryPolicy": map[string]any{"maxAttempts": 1, "backoff": "none"}})
	b.post(failing, newMessageID(), []byte(`{}`), 0).want(t, http.StatusConflict)
	if state := b.state(failing.id); state != "dead-lettered" {
		t.Fatalf("state %s", state)
	}
	b.post(failing, newMessageID(), []byte(`{}`), 0).want(t, http.StatusConflict)
	if a := b.call(http.MethodPatch, "/v1/trigger-subscriptions/"+failing.id, map[string]any{"state": "paused"}).want(t, http.StatusConflict); a.string("error") != "invalid_state_transition" {
		t.Error(a.text)
	}
	b.call(http.MethodPatch, "/v1/trigger-subscriptions/"+failing.id, map[string]any{"state": "active"}).want(t, http.StatusOK)
	if diff := cmp.Diff([]string{"active>dead-lettered retry-exhausted", "dead-lettered>active "}, b.transitions(failing.id)); diff != "" {
		t.Errorf("recorded: %s", diff)
	}
	// A w6w subscription keeps accepting: its dead letters are per event.
	w6w := b.system.Receiver("openwop-seam-unavailable")
	if a := b.system.Post(w6w, []byte(`{}`)); a.Status != http.StatusOK || b.state(w6w) != "active" {
		t.Errorf("w6w: %d, %s", a.Status, b.state(w6w))
	}
	// Its door is not the w6w one: no post goes round the signature.
	if a := b.system.Post(r.id, []byte(`{}`)); a.Status != http.StatusNotFound {
		t.Errorf("the callback URL answers %d", a.Status)
	}
}

func (b *bridge) transitions(id string) []string {
	b.t.Helper()
	rows, err := b.system.Pool.Query(b.t.Context(), `SELECT c.from_state || '>' || c.to_state || ' ' || coalesce(c.reason, '')
		FROM subscription_changes AS c JOIN subscriptions AS s ON s.sid = c.sid WHERE s.id = $1 ORDER BY c.changed_at`, id)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			b.t.Fatal(err)
		}
		list = append(list, one)
	}
	return list
}

// trigger-ingestion.test.ts
func bridgeIngestion(t *testing.T, b *bridge) {
	const path = "/v1/host/sample/trigger-bridge/ingest"
	a := b.call(http.MethodPost, path, map[string]any{"source": "email", "verification": map[string]any{"mode": "none"}, "attachmentUrl": "http://169.254.169.254/latest/meta-data/"})
	if a.at("triggerEvent", "email", "attachments") != nil {
		t.Errorf("fetched an attachment: %s", a.text)
	}
	a = b.call(http.MethodPost, path, map[string]any{
		"source": "webhook", "verification": map[string]any{"mode": "none"},
		"webhook": map[string]any{"method": "POST", "headers": map[string]any{"Authorization": "Bearer canary"}, "body": map[string]any{"x": 1}},
	}).want(t, http.StatusOK)
	b.validValue("trigger-event.schema.json", a.at("triggerEvent"))
	b.validValue("run-event-payloads.schema.json#/$defs/triggerDeliveryAttempted", a.at("deliveryEvent"))
	if strings.Contains(a.text, "canary") || strings.Contains(strings.ToLower(a.text), "authorization") {
		t.Errorf("leaks: %s", a.text)
	}
	if diff := cmp.Diff(map[string]any{"x": 1.}, a.at("triggerEvent", "webhook", "body")); diff != "" {
		t.Errorf("body: %s", diff)
	}
}

// trigger-stream-cdc-sources.test.ts
func bridgeUnknownSources(t *testing.T, b *bridge) {
	for _, source := range []string{"stream", "change", "email", "form"} {
		b.call(http.MethodPost, "/v1/host/sample/trigger-bridge/ingest", map[string]any{"source": source, "verification": map[string]any{"mode": "none"}}).want(t, http.StatusBadRequest)
		if a := b.deliver(map[string]any{"scenario": "dedup", "dedupKey": "events:3:7", "source": source}).want(t, http.StatusBadRequest); a.at("outcome") != nil {
			t.Error(a.text)
		}
	}
}

// deadletter-retry-exhaustion
func bridgeRunSink(t *testing.T, b *bridge) {
	const path = "/v1/host/sample/deadletter/exhaust"
	a := b.call(http.MethodPost, path, map[string]any{"scenario": "exhaust-retries"}).want(t, http.StatusOK)
	b.validValue("run-event.schema.json", a.at("event"))
	b.validValue("run-event-payloads.schema.json#/$defs/runDeadLettered", a.at("event", "payload"))
	if attempts, _ := a.at("event", "payload", "attempts").(float64); a.string("event", "type") != "run.dead_lettered" || attempts < 1 {
		t.Error(a.text)
	}
	run := b.call(http.MethodGet, "/v1/runs/"+a.string("event", "payload", "runId"), nil).want(t, http.StatusOK)
	b.valid("run-snapshot.schema.json", run.text)
	if run.string("status") != "failed" {
		t.Error(run.text)
	}
	if a := b.call(http.MethodPost, path, map[string]any{"scenario": "fork-after-dead-letter"}).want(t, http.StatusOK); a.at("forkEligible") != true {
		t.Error(a.text)
	}
}

// scheduling-cron-fires-once
func bridgeTicks(t *testing.T, b *bridge) {
	const path = "/v1/host/sample/scheduling/tick"
	if a := b.call(http.MethodPost, path, map[string]any{"scenario": "single-tick"}).want(t, http.StatusOK); a.at("runsFired") != 1. {
		t.Error(a.text)
	}
	a := b.call(http.MethodPost, path, map[string]any{"scenario": "missed-window", "missedTicks": 5}).want(t, http.StatusOK)
	if fired, ok := a.at("runsFired").(float64); !ok || fired > 1 {
		t.Error(a.text)
	}
}

func bridgeRuns(t *testing.T, b *bridge) {
	a := b.call(http.MethodPost, "/v1/runs", map[string]any{"workflowId": "conformance-noop", "inputs": map[string]any{"a": 1}}).want(t, http.StatusCreated)
	run := a.string("runId")
	snapshot := b.call(http.MethodGet, "/v1/runs/"+run, nil).want(t, http.StatusOK)
	b.valid("run-snapshot.schema.json", snapshot.text)
	if snapshot.string("status") != "completed" || snapshot.string("workflowId") != "conformance-noop" {
		t.Error(snapshot.text)
	}
	poll := b.call(http.MethodGet, "/v1/runs/"+run+"/events/poll?timeout=1", nil).want(t, http.StatusOK)
	if all := b.events(poll, "run.started", "run.completed"); len(all) != 2 || all[0].CausationID != "" {
		t.Error(poll.text)
	}
	rest := b.call(http.MethodGet, "/v1/runs/"+run+"/events/poll?lastSequence=0", nil).want(t, http.StatusOK)
	if all := b.events(rest, "run.started", "run.completed"); len(all) != 1 || all[0].Type != "run.completed" {
		t.Error(rest.text)
	}
	b.call(http.MethodGet, "/v1/runs/"+run+"/events/poll?timeout=61", nil).want(t, http.StatusBadRequest)
	b.call(http.MethodGet, "/v1/runs/run_none/events/poll", nil).want(t, http.StatusNotFound)
	b.as("other-tenant", "runs:read").call(http.MethodGet, "/v1/runs/"+run, nil).want(t, http.StatusNotFound)
	for last, want := range map[string]int{"": 2, "0": 1, "1": 0} {
		stream := b.call(http.MethodGet, a.string("eventsUrl"), nil, "Last-Event-ID", last).want(t, http.StatusOK)
		if got := strings.Count(stream.text, "data: {"); got != want || !strings.HasPrefix(stream.header.Get("Content-Type"), "text/event-stream") {
			t.Errorf("after %q: %d events, want %d: %s", last, got, want, stream.text)
		}
	}
	for _, body := range []map[string]any{{}, {"workflowId": ""}, {"workflowId": "w", "x": 1}, {"workflowId": "w", "callbackUrl": "https://x"}} {
		b.call(http.MethodPost, "/v1/runs", body).want(t, http.StatusBadRequest)
	}
	b.call(http.MethodPost, "/v1/runs", map[string]any{"workflowId": "w", "tenantId": "another"}).want(t, http.StatusForbidden)
}

func bridgeIngestAnswers(t *testing.T, b *bridge) {
	r := b.register("required", nil)
	for name, c := range map[string]struct {
		url, id string
		body    []byte
		status  int
		code    string
	}{
		"unknown id":     {b.system.PublicURL + "/openwop/ingest/sub_none", newMessageID(), []byte(`{}`), 404, "not_found"},
		"too large":      {r.url, newMessageID(), make([]byte, 1<<20+1), 413, "payload_too_large"},
		"malformed id":   {r.url, "short", []byte(`{}`), 400, "validation_error"},
		"too long an id": {r.url, strings.Repeat("a", 129), []byte(`{}`), 400, "validation_error"},
	} {
		if a := b.post(registration{r.id, c.url, r.secret}, c.id, c.body, 0).want(t, c.status); a.string("error") != c.code {
			t.Errorf("%s: %s", name, a.text)
		}
	}
	if a := b.do(http.MethodPost, r.url, []byte(`{}`)).want(t, http.StatusBadRequest); a.string("error") != "validation_error" {
		t.Errorf("without headers: %s", a.text)
	}
	if a := b.do(http.MethodPost, r.url, []byte(`{}`), "webhook-id", newMessageID()).want(t, http.StatusUnauthorized); a.string("error") != "signature_invalid" {
		t.Errorf("without a signature: %s", a.text)
	}
	b.do(http.MethodGet, r.url, nil).want(t, http.StatusMethodNotAllowed)
}

// 202 only with a run that exists; past the bound 503, and the retry is a
// duplicate that returns the same run.
func TestOpenWOPAPostWaitsForItsRun(t *testing.T) {
	t.Parallel()

	b := startBridge(t, rig.Options{Dispatchers: -1, Env: map[string]string{"OPENWOP_POST_WAIT": "300ms"}})
	r, id, body := b.register("required", nil), newMessageID(), []byte(`{"n":1}`)
	pending := b.post(r, id, body, 0).want(t, http.StatusServiceUnavailable)
	if pending.header.Get("Retry-After") == "" || pending.string("runId") != "" {
		t.Errorf("%s %v", pending.text, pending.header)
	}
	b.post(r, id, body, 0).want(t, http.StatusServiceUnavailable)
	b.system.StartDispatcher(nil)
	var done *answer
	rig.Eventually(t, 10*time.Second, "the retry is answered", func() bool {
		done = b.post(r, id, body, 0)
		return done.status == http.StatusOK
	})
	if done.string("outcome") != "duplicate" || b.runsOf(r.id) != 1 {
		t.Errorf("%s, %d runs", done.text, b.runsOf(r.id))
	}
	b.call(http.MethodGet, "/v1/runs/"+done.string("runId"), nil).want(t, http.StatusOK)

	// In flight at once: one run, one 202 at most, the same id for all.
	id = newMessageID()
	answers := make(chan *answer, 8)
	for range 8 {
		go func() { answers <- b.post(r, id, body, 0) }()
	}
	runs, accepted := map[string]bool{}, 0
	for range 8 {
		a := <-answers
		if a.status == http.StatusAccepted {
			accepted++
		}
		runs[a.string("runId")] = true
	}
	if len(runs) != 1 || accepted != 1 || b.runsOf(r.id) != 2 {
		t.Errorf("runs %v, %d accepted", runs, accepted)
	}
}

// A canary in body, headers, signature and secret is nowhere but in the run's
// input: not on event logs, dead letters, logs or metrics.
func TestOpenWOPLeaksNothing(t *testing.T) {
	t.Parallel()

	b := startBridge(t, rig.Options{})
	canary := "canary" + strings.ReplaceAll(newMessageID(), "_", "")
	header := []string{"X-Canary", canary, "Authorization", "Bearer " + canary, "Cookie", "c=" + canary, "X-Api-Key", canary}
	body := []byte(`{"c":"` + canary + `"}`)
	good, failing := b.register("required", nil), b.register("none", map[string]any{"workflowId": "openwop-seam-unavailable", "retryPolicy": map[string]any{"maxAttempts": 1}})
	run := b.post(good, newMessageID()+canary, body, 0, header...).want(t, http.StatusAccepted).string("runId")
	b.badPost(good, body, header...).want(t, http.StatusUnauthorized)
	b.post(failing, newMessageID()+canary, body, 0, header...).want(t, http.StatusConflict)

	seen := map[string]string{
		"poll":   b.call(http.MethodGet, "/v1/runs/"+run+"/events/poll", nil).text,
		"stream": b.call(http.MethodGet, "/v1/runs/"+run+"/events", nil).text,
		"run":    b.call(http.MethodGet, "/v1/runs/"+run, nil).text,
		"list":   b.call(http.MethodGet, "/v1/trigger-subscriptions", nil).text,
	}
	for _, r := range []registration{good, failing} {
		seen["dead letters of "+r.id] = b.call(http.MethodGet, "/v1/trigger-subscriptions/"+r.id+"/dead-letters", nil).text
		seen["subscription "+r.id] = b.call(http.MethodGet, "/v1/trigger-subscriptions/"+r.id, nil).text
	}
	for _, p := range append([]*rig.Process{b.system.Ingest}, b.system.Dispatchers...) {
		seen["log of "+p.Name] = strings.Join(p.Lines(), "\n")
		seen["metrics of "+p.Name] = metricsOf(t, p.URL)
	}
	secrets := []string{canary, "whsec_"}
	for _, r := range []registration{good, failing} {
		secrets = append(secrets, r.secret, strings.TrimPrefix(r.secret, "whsec_"))
	}
	for where, text := range seen {
		for _, leak := range secrets {
			if strings.Contains(text, leak) {
				t.Errorf("%q is in %s", leak, where)
			}
		}
		if strings.HasPrefix(where, "log of") && strings.Contains(text, good.id) {
			t.Errorf("a whole subscription id is in %s", where)
		}
	}
}

func metricsOf(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("metrics: %d %v", response.StatusCode, err)
	}
	return string(text)
}

// Two tenants make 200 randomised requests across each other's ids: nothing
// leaks, and what is another's looks like what is not there.
func TestOpenWOPTenantsAreApart(t *testing.T) {
	t.Parallel()

	b := startBridge(t, rig.Options{})
	tenants := []*bridge{b.as("tenant-one", "webhooks:manage,runs:read,runs:create"), b.as("tenant-two", "webhooks:manage,runs:read,runs:create")}
	marks := make([][]string, 2)
	subscriptions, runs := make([]registration, 2), make([]string, 2)
	for i, tenant := range tenants {
		subscriptions[i] = tenant.register("required", nil)
		runs[i] = tenant.post(subscriptions[i], newMessageID(), []byte(`{}`), 0).want(t, http.StatusAccepted).string("runId")
		tenant.badPost(subscriptions[i], []byte(`{}`)).want(t, http.StatusUnauthorized)
		marks[i] = []string{subscriptions[i].id, runs[i]}
	}
	random := newMessageID()
	for n := range 200 {
		i := int(random[4+n%20]+byte(n/20)) % 2
		me, other := tenants[i], 1-i
		subscription, run := "/v1/trigger-subscriptions/"+subscriptions[other].id, "/v1/runs/"+runs[other]
		var foreign, unknown *answer
		pair := func(method, path, unknownPath string, body any) {
			foreign, unknown = me.call(method, path, body), me.call(method, unknownPath, body)
		}
		switch (n + i) % 7 {
		case 0:
			pair(http.MethodGet, subscription, "/v1/trigger-subscriptions/sub_none", nil)
		case 1:
			pair(http.MethodPatch, subscription, "/v1/trigger-subscriptions/sub_none", map[string]any{"state": "paused"})
		case 2:
			pair(http.MethodGet, subscription+"/dead-letters?limit=1", "/v1/trigger-subscriptions/sub_none/dead-letters?limit=1", nil)
		case 3:
			pair(http.MethodGet, run, "/v1/runs/run_none", nil)
		case 4:
			pair(http.MethodGet, run+"/events/poll?timeout=1", "/v1/runs/run_none/events/poll?timeout=1", nil)
		case 5:
			pair(http.MethodGet, run+"/events", "/v1/runs/run_none/events", nil)
		case 6:
			list := me.call(http.MethodGet, "/v1/trigger-subscriptions", nil).want(t, http.StatusOK)
			for _, mark := range marks[other] {
				if strings.Contains(list.text, mark) {
					t.Fatalf("the list shows another tenant's: %s", list.text)
				}
			}
			continue
		}
		if foreign.status != http.StatusNotFound || foreign.text != unknown.text || fmt.Sprint(headerNames(foreign)) != fmt.Sprint(headerNames(unknown)) {
			t.Fatalf("request %d: %d %s, unknown %d %s", n, foreign.status, foreign.text, unknown.status, unknown.text)
		}
	}
	for i, tenant := range tenants {
		if state := tenant.state(subscriptions[i].id); state != "active" {
			t.Errorf("a stranger made it %s", state)
		}
	}
}

func headerNames(a *answer) []string {
	var names []string
	for name := range a.header {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

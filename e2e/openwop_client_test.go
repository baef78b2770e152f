package e2e_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tocsin-dev/tocsin/e2e/rig"
)

// bridge is a client of a host's OpenWOP surface.
type bridge struct {
	t       *testing.T
	system  *rig.System
	key     string
	schemas *schemas
}

const bridgeID = "https://openwop.dev/spec/v1/"

func startBridge(t *testing.T, o rig.Options) *bridge {
	t.Helper()
	env := map[string]string{"OPENWOP_TEST_SEAMS": "1"}
	maps.Copy(env, o.Env)
	o.Env = env
	system := rig.Start(t, o)
	return &bridge{t, system, system.Key, loadSchemas(t)}
}

// as is the same host with another tenant's key.
func (b *bridge) as(tenant, scopes string) *bridge {
	b.t.Helper()
	var made struct {
		Key string `json:"key"`
	}
	text := b.system.CLI("keys", "create", "--tenant", tenant, "--scopes", scopes, "--json")
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Key == "" {
		b.t.Fatalf("keys create: %v in %s", err, text)
	}
	other := *b
	other.key = made.Key
	return &other
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
	json   map[string]any
}

func (a *answer) string(path ...string) string {
	value, _ := a.at(path...).(string)
	return value
}

func (a *answer) at(path ...string) any {
	var value any = a.json
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

// do makes a request; header holds names and values in turn.
func (b *bridge) do(method, url string, body []byte, header ...string) *answer {
	b.t.Helper()
	if strings.HasPrefix(url, "/") {
		url = b.system.APIURL + url
	}
	request, err := http.NewRequestWithContext(b.t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Add(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	a := &answer{status: response.StatusCode, header: response.Header, text: string(text)}
	_ = json.Unmarshal(text, &a.json)
	if a.status >= 400 {
		b.valid("error-envelope.schema.json", a.text)
	}
	return a
}

// call makes a request with the key.
func (b *bridge) call(method, path string, body any, header ...string) *answer {
	b.t.Helper()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			b.t.Fatal(err)
		}
	}
	return b.do(method, path, text, append([]string{"Authorization", "Bearer " + b.key, "Content-Type", "application/json"}, header...)...)
}

// want ends the test when the status is another.
func (a *answer) want(t *testing.T, status int) *answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.text)
	}
	return a
}

// registration is a webhook subscription of the suite.
type registration struct {
	id, url, secret string
}

func (b *bridge) register(mode string, extra map[string]any) registration {
	b.t.Helper()
	body := map[string]any{"source": "webhook", "workflowId": "conformance-noop", "verification": map[string]any{"mode": mode}}
	maps.Copy(body, extra)
	text, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	b.valid("trigger-subscription-registration.schema.json", string(text))
	a := b.call(http.MethodPost, "/v1/trigger-subscriptions", body).want(b.t, http.StatusCreated)
	b.validValue("trigger-subscription.schema.json", a.at("subscription"))
	if len(a.json) != 2 {
		b.t.Fatalf("a third member: %s", a.text)
	}
	r := registration{a.string("subscription", "subscriptionId"), a.string("binding", "ingestUrl"), a.string("binding", "signingSecret")}
	if r.id == "" || !strings.HasPrefix(r.url, b.system.PublicURL+"/") || !strings.HasPrefix(r.secret, "whsec_") {
		b.t.Fatalf("binding: %s", a.text)
	}
	return r
}

func newMessageID() string {
	var random [12]byte
	_, _ = rand.Read(random[:])
	return "msg_" + hex.EncodeToString(random[:])
}

// signature signs as Standard Webhooks does.
func signature(secret, id, timestamp string, body []byte) string {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(id + "." + timestamp + "."))
	_, _ = mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// post sends a signed post, skewed by so much, without any key.
func (b *bridge) post(r registration, id string, body []byte, skew time.Duration, header ...string) *answer {
	b.t.Helper()
	at := strconv.FormatInt(time.Now().Add(skew).Unix(), 10)
	return b.do(http.MethodPost, r.url, body, append([]string{
		"Content-Type", "application/json", "webhook-id", id, "webhook-timestamp", at, "webhook-signature", signature(r.secret, id, at, body),
	}, header...)...)
}

// badPost sends a post whose signature does not hold.
func (b *bridge) badPost(r registration, body []byte, header ...string) *answer {
	b.t.Helper()
	return b.do(http.MethodPost, r.url, body, append([]string{
		"Content-Type", "application/json", "webhook-id", newMessageID(), "webhook-timestamp", strconv.FormatInt(time.Now().Unix(), 10),
		"webhook-signature", "v1," + strings.Repeat("A", 43) + "=",
	}, header...)...)
}

func (b *bridge) state(id string) string {
	b.t.Helper()
	a := b.call(http.MethodGet, "/v1/trigger-subscriptions/"+id, nil).want(b.t, http.StatusOK)
	b.validValue("trigger-subscription.schema.json", a.at("subscription"))
	return a.string("subscription", "state")
}

// event is an event of a log.
type event struct {
	EventID     string         `json:"eventId"`
	Type        string         `json:"type"`
	CausationID string         `json:"causationId"`
	Sequence    float64        `json:"sequence"`
	Payload     map[string]any `json:"payload"`
}

// events reads a list of events and holds each against the schema, and its
// payload against the closed table of its type.
func (b *bridge) events(a *answer, kinds ...string) []event {
	b.t.Helper()
	list, _ := a.json["events"].([]any)
	var found []event
	for _, one := range list {
		b.validValue("run-event.schema.json", one)
		text, _ := json.Marshal(one)
		var e event
		if err := json.Unmarshal(text, &e); err != nil {
			b.t.Fatal(err)
		}
		b.contentFree(e)
		for _, kind := range kinds {
			if e.Type == kind {
				found = append(found, e)
			}
		}
	}
	return found
}

// contentFree holds a payload against the members that the contract lists.
func (b *bridge) contentFree(e event) {
	b.t.Helper()
	closed := map[string][]string{
		attempted: {"subscriptionId", "dedupKey", "attempt", "outcome", "runId"},
		changed:   {"subscriptionId", "source", "fromState", "toState", "reason"},
	}
	definition := map[string]string{attempted: "triggerDeliveryAttempted", changed: "triggerSubscriptionStateChanged", "run.started": "runStarted"}[e.Type]
	if definition != "" {
		b.validValue("run-event-payloads.schema.json#/$defs/"+definition, e.Payload)
	}
	allowed, ok := closed[e.Type]
	for name := range e.Payload {
		if ok && !strings.Contains(" "+strings.Join(allowed, " ")+" ", " "+name+" ") {
			b.t.Errorf("%s carries %q", e.Type, name)
		}
	}
}

const (
	attempted = "trigger.delivery.attempted"
	changed   = "trigger.subscription.state.changed"
)

// seamEvents reads the event-log seam.
func (b *bridge) seamEvents(key, kind string) []event {
	b.t.Helper()
	a := b.call(http.MethodGet, "/v1/host/sample/test/runs/"+key+"/events?type="+kind, nil).want(b.t, http.StatusOK)
	return b.events(a, kind)
}

// runsOf counts the runs that a subscription's events have started.
func (b *bridge) runsOf(subscription string) int {
	return b.system.Count("SELECT count(*) FROM runs AS r JOIN subscriptions AS s ON s.sid = r.sid WHERE s.id = $1", subscription)
}

// schemas are the published ones.
type schemas struct {
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

func loadSchemas(t *testing.T) *schemas {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.UseRegexpEngine(compilePattern)
	files, err := filepath.Glob(filepath.Join("testdata", "openwop", "*.schema.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no schemas: %v", err)
	}
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(file)
		_ = file.Close()
		if err != nil {
			t.Fatal(err)
		}
		object, _ := doc.(map[string]any)
		id, _ := object["$id"].(string)
		if err := compiler.AddResource(id, doc); err != nil {
			t.Fatal(err)
		}
	}
	return &schemas{compiler, map[string]*jsonschema.Schema{}}
}

// notFirst is the one lookahead of the schemas, which Go's expressions lack: the
// first segment of a vendor's event type is none of these.
const notFirst = `^(?!(?:openwop|core|community|vendor|private|local)\.)`

type pattern struct {
	*regexp.Regexp
	reserved *regexp.Regexp // nil: none
}

func (p pattern) MatchString(text string) bool {
	return p.Regexp.MatchString(text) && (p.reserved == nil || !p.reserved.MatchString(text))
}

func compilePattern(text string) (jsonschema.Regexp, error) {
	rest, looksAhead := strings.CutPrefix(text, notFirst)
	p := pattern{}
	if looksAhead {
		text, p.reserved = "^"+rest, regexp.MustCompile(`^(?:openwop|core|community|vendor|private|local)\.`)
	}
	var err error
	p.Regexp, err = regexp.Compile(text)
	return p, err
}

// valid holds a JSON text against a schema.
func (b *bridge) valid(schema, text string) {
	b.t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		b.t.Errorf("%s: not JSON: %s", schema, text)
		return
	}
	compiled := b.schemas.compiled[schema]
	if compiled == nil {
		if compiled, err = b.schemas.compiler.Compile(bridgeID + schema); err != nil {
			b.t.Fatal(err)
		}
		b.schemas.compiled[schema] = compiled
	}
	if err := compiled.Validate(value); err != nil {
		b.t.Errorf("%s: %v\nin %s", schema, err, text)
	}
}

func (b *bridge) validValue(schema string, value any) {
	b.t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		b.t.Fatal(err)
	}
	b.valid(schema, string(text))
}

package handshake_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/handshake"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

func parse(t *testing.T, spec string) *handshake.Handshake {
	t.Helper()
	h, err := handshake.Parse(json.RawMessage(spec))
	if err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	return h
}

func call(method, query, body string, header ...string) *trigger.Call {
	c := &trigger.Call{Method: method, RawQuery: query, Body: []byte(body)}
	for i := 0; i+1 < len(header); i += 2 {
		c.Header = append(c.Header, trigger.Field{Name: header[i], Value: header[i+1]})
	}
	return c
}

func headerOf(r *trigger.Response, name string) string {
	for _, f := range r.Header {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// C10: Slack's challenge is answered when its signature holds, and an event
// with a field of that name is an event.
func TestSlackChallengeAndAnEventThatLooksLikeOne(t *testing.T) {
	t.Parallel()

	const (
		secret    = "8f742231b10e8888abcd99yyyzzz85a5"
		challenge = `{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}`
		event     = `{"token":"x","type":"event_callback","event_id":"Ev0001","challenge":"not-a-handshake","event":{"type":"app_mention"}}`
	)
	if len(challenge) != 106 || len(event) != 118 {
		t.Fatalf("the case has 106 and 118 bytes, these have %d and %d", len(challenge), len(event))
	}
	v, err := verify.New(verify.Spec{Preset: "slack", Secret: verify.Literal(secret)})
	if err != nil {
		t.Fatal(err)
	}
	h := parse(t, `{"preset":"slack"}`)
	for name, c := range map[string]struct {
		body, signature, time string
		verified, answered    bool
	}{
		"the challenge":         {challenge, "v0=3ad6f2681f0ee520f1c44e2c49b45fb05544081dd06bc19c6cb0144b1f14fd85", "1700000000", true, true},
		"the event":             {event, "v0=4178948d408a371b94824431c11437bf3f84cd57c83316d7df9aaea393bcb749", "1700000000", true, false},
		"a wrong signature":     {challenge, "v0=4178948d408a371b94824431c11437bf3f84cd57c83316d7df9aaea393bcb749", "1700000000", false, false},
		"a stale time":          {challenge, "v0=3ad6f2681f0ee520f1c44e2c49b45fb05544081dd06bc19c6cb0144b1f14fd85", "1699999000", false, false},
		"no signature whatever": {challenge, "", "1700000000", false, false},
	} {
		in := call("POST", "", c.body, "content-type", "application/json", "x-slack-signature", c.signature, "x-slack-request-timestamp", c.time)
		if _, ok := h.Decide(handshake.Input{Call: in}); ok {
			t.Errorf("%s: answered before verification", name)
		}
		result, err := v.Verify(t.Context(), verify.Input{Call: in, Now: time.Unix(1700000000, 0)})
		if err != nil {
			t.Fatal(err)
		}
		if result.OK != c.verified {
			t.Errorf("%s: %+v, want ok=%t", name, result, c.verified)
		}
		decision, ok := h.Decide(handshake.Input{Call: in, Verified: result.OK})
		if ok != c.answered {
			t.Errorf("%s: answered=%t, want %t", name, ok, c.answered)
		}
		if ok && (string(decision.Response.Body) != "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P" || decision.Response.Status != 200) {
			t.Errorf("%s: %+v", name, decision.Response)
		}
	}
}

// want is what a call should be taken for.
type want struct {
	class   handshake.Class // "" is an event
	refused handshake.Refusal
	status  int
	body    string
}

func TestPresets(t *testing.T) {
	t.Parallel()

	params := verify.Secrets{Params: json.RawMessage(`{"secret":"zoom-secret-token","verifyToken":"tok"}`)}
	crc := verify.Secrets{Params: json.RawMessage(`{"secret":"Convoy"}`)}
	for name, c := range map[string]struct {
		preset  string
		call    *trigger.Call
		secrets verify.Secrets
		want    want
	}{
		"meta":                     {"meta", call("GET", "hub.mode=subscribe&hub.verify_token=tok&hub.challenge=a%20%3Cb%3E%2525", ""), params, want{"query-echo", "", 200, "a <b>%25"}},
		"meta, wrong token":        {"meta", call("GET", "hub.mode=subscribe&hub.verify_token=x&hub.challenge=a", ""), params, want{"query-echo", "handshake_token", 403, ""}},
		"meta, no token":           {"meta", call("GET", "hub.mode=subscribe&hub.challenge=a", ""), params, want{"query-echo", "handshake_token", 403, ""}},
		"meta, token twice":        {"meta", call("GET", "hub.mode=subscribe&hub.verify_token=tok&hub.verify_token=tok&hub.challenge=a", ""), params, want{"query-echo", "handshake_token", 403, ""}},
		"meta, none configured":    {"meta", call("GET", "hub.mode=subscribe&hub.verify_token=&hub.challenge=a", ""), verify.Secrets{}, want{"query-echo", "handshake_token", 403, ""}},
		"meta, unsubscribe":        {"meta", call("GET", "hub.mode=unsubscribe&hub.verify_token=tok&hub.challenge=a", ""), params, want{}},
		"meta, no challenge":       {"meta", call("GET", "hub.mode=subscribe&hub.verify_token=tok", ""), params, want{}},
		"meta, challenge twice":    {"meta", call("GET", "hub.mode=subscribe&hub.verify_token=tok&hub.challenge=a&hub.challenge=b", ""), params, want{"query-echo", "handshake_challenge", 400, ""}},
		"meta, a POST":             {"meta", call("POST", "hub.mode=subscribe&hub.verify_token=tok&hub.challenge=a", "{}"), params, want{}},
		"meta, overlong":           {"meta", call("GET", "hub.mode=subscribe&hub.verify_token=tok&hub.challenge="+strings.Repeat("a", 5000), ""), params, want{"query-echo", "handshake_challenge", 400, ""}},
		"websub, no token set":     {"websub", call("GET", "hub.mode=subscribe&hub.topic=t&hub.challenge=a", ""), verify.Secrets{}, want{"query-echo", "", 200, "a"}},
		"websub, token set":        {"websub", call("GET", "hub.mode=subscribe&hub.topic=t&hub.challenge=a", ""), params, want{"query-echo", "handshake_token", 403, ""}},
		"dropbox":                  {"dropbox", call("GET", "challenge=abc", ""), params, want{"query-echo", "", 200, "abc"}},
		"graph":                    {"msgraph", call("POST", "validationToken=Validation%3A+a%2Bb%20c%2525", ""), params, want{"post-query-echo", "", 200, "Validation: a+b c%25"}},
		"graph, an event":          {"msgraph", call("POST", "", `{"value":[]}`), params, want{}},
		"twitch":                   {"twitch", call("POST", "", `{"challenge":"p-k-3"}`, "twitch-eventsub-message-type", "webhook_callback_verification"), params, want{"body-echo", "", 200, "p-k-3"}},
		"twitch, a notification":   {"twitch", call("POST", "", `{"challenge":"p-k-3"}`, "twitch-eventsub-message-type", "notification"), params, want{}},
		"statsig":                  {"statsig", call("POST", "", `{"data":{"event":"url_verification","verification_code":"c\"1"}}`), params, want{"body-echo", "", 200, `{"verification_code":"c\"1"}`}},
		"event grid":               {"eventgrid", call("POST", "", `[{"eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","data":{"validationCode":"512d"}}]`), params, want{"body-echo", "", 200, `{"validationResponse":"512d"}`}},
		"event grid, an event":     {"eventgrid", call("POST", "", `[{"eventType":"x","data":{"validationCode":"512d"}}]`), params, want{}},
		"event grid, no code":      {"eventgrid", call("POST", "", `[{"eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","data":{}}]`), params, want{"body-echo", "handshake_challenge", 400, ""}},
		"cloudevents":              {"cloudevents", call("OPTIONS", "", "", "webhook-request-origin", "eventemitter.example.com"), params, want{"options", "", 200, ""}},
		"cloudevents, a CORS call": {"cloudevents", call("OPTIONS", "", "", "origin", "https://example.com"), params, want{}},
		"cloudevents, line break":  {"cloudevents", call("OPTIONS", "", "", "webhook-request-origin", "a\r\nset-cookie: x"), params, want{"options", "handshake_challenge", 400, ""}},
		"monday":                   {"monday", call("POST", "", `{"challenge":"c1"}`), params, want{"body-echo", "", 200, `{"challenge":"c1"}`}},
		"monday, an event":         {"monday", call("POST", "", `{"challenge":"c1","event":{}}`), params, want{}},
		"okta":                     {"okta", call("GET", "", "", "x-okta-verification-challenge", "c1"), params, want{"body-echo", "", 200, `{"verification":"c1"}`}},
		"okta, a GET":              {"okta", call("GET", "", ""), params, want{}},
		"zoom-crc":                 {"zoom", call("POST", "", `{"payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"},"event":"endpoint.url_validation"}`), params, want{"computed", "", 200, `{"plainToken":"qgg8vlvZRS6UYooatFL8Aw","encryptedToken":"d9e0d764a78494688ba3f2d5c0ed4ca311394b4834d959759213424d2df961e3"}`}},
		"zoom, no secret":          {"zoom", call("POST", "", `{"payload":{"plainToken":"q"},"event":"endpoint.url_validation"}`), verify.Secrets{}, want{"computed", "handshake_secret", 403, ""}},
		"x-crc-1":                  {"x", call("GET", "crc_token=uzwcfYtzr9", ""), crc, want{"computed", "", 200, `{"response_token":"sha256=HXvxTdsfShG6k2zC9NVANwFquJBdOugRYHax2vNiiOo="}`}},
		"x, a forged event":        {"x", call("GET", "crc_token=%7B%22for_user_id%22%3A%221%22%7D", ""), crc, want{"computed", "handshake_challenge", 400, ""}},
		"x, a GET":                 {"x", call("GET", "a=b", ""), crc, want{}},
		"discord, interactions":    {"discord", call("POST", "", `{"type":1,"id":"1"}`), params, want{"ping", "", 200, `{"type":1}`}},
		"discord, webhook events":  {"discord", call("POST", "", `{"version":1,"type":0}`), params, want{"ping", "", 204, ""}},
		"discord, an event":        {"discord", call("POST", "", `{"version":1,"type":1,"event":{"type":"X"}}`), params, want{}},
		"discord, a command":       {"discord", call("POST", "", `{"type":2}`), params, want{}},
		"discord, 1 as text":       {"discord", call("POST", "", `{"type":10}`), params, want{}},
		"trello":                   {"trello", call("HEAD", "", ""), params, want{"probe", "", 200, ""}},
		"trello, a GET":            {"trello", call("GET", "", ""), params, want{}},
		"ringcentral":              {"ringcentral", call("POST", "", "", "validation-token", "v1"), params, want{"header-echo", "", 200, ""}},
		"github":                   {"github", call("POST", "", "{}", "x-github-event", "ping"), params, want{"ping", "", 200, ""}},
		"github, a push":           {"github", call("POST", "", "{}", "x-github-event", "push"), params, want{}},
		"xero":                     {"xero", call("POST", "", `{"events": [ ],"entropy":"E"}`), params, want{"ping", "", 200, ""}},
		"woocommerce":              {"woocommerce", call("POST", "", `webhook_id=9`, "content-type", "application/x-www-form-urlencoded"), params, want{"ping", "", 200, ""}},
		"woocommerce, signed":      {"woocommerce", call("POST", "", `webhook_id=9`, "content-type", "application/x-www-form-urlencoded", "x-wc-webhook-signature", "x"), params, want{}},
		"sns, unsubscribed":        {"sns", call("POST", "", `{"Type":"UnsubscribeConfirmation"}`), params, want{"ping", "", 200, ""}},
		"salesforce":               {"salesforce", call("POST", "", `<x/>`), params, want{}},
	} {
		h := parse(t, `{"preset":"`+c.preset+`"}`)
		got, ok := h.Decide(handshake.Input{Call: c.call, Secrets: c.secrets, Verified: true})
		if ok != (c.want.class != "") || got.Class != c.want.class || got.Refused != c.want.refused {
			t.Errorf("%s: %+v, %t, want %+v", name, got, ok, c.want)
			continue
		}
		if ok {
			checkResponse(t, name, got, c.want)
		}
	}
}

func checkResponse(t *testing.T, name string, got handshake.Decision, want want) {
	t.Helper()
	if got.Response.Status != want.status || string(got.Response.Body) != want.body {
		t.Errorf("%s: %d %q, want %d %q", name, got.Response.Status, got.Response.Body, want.status, want.body)
	}
	if headerOf(got.Response, "X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s: no nosniff", name)
	}
	kind := headerOf(got.Response, "Content-Type")
	if len(got.Response.Body) > 0 && kind != "text/plain; charset=utf-8" && kind != "application/json" {
		t.Errorf("%s: content type %q", name, kind)
	}
}

// Everything that is signed waits for its signature.
func TestSignedHandshakesWaitForVerification(t *testing.T) {
	t.Parallel()

	for preset, c := range map[string]*trigger.Call{
		"slack":   call("POST", "", `{"type":"url_verification","challenge":"c"}`),
		"twitch":  call("POST", "", `{"challenge":"c"}`, "twitch-eventsub-message-type", "webhook_callback_verification"),
		"zoom":    call("POST", "", `{"payload":{"plainToken":"q"},"event":"endpoint.url_validation"}`),
		"discord": call("POST", "", `{"type":1}`),
		"sns":     call("POST", "", `{"Type":"SubscriptionConfirmation","SubscribeURL":"https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription"}`),
		"github":  call("POST", "", `{}`, "x-github-event", "ping"),
		"asana":   call("POST", "", `{"events":[]}`),
		"xero":    call("POST", "", `{"events":[]}`),
	} {
		h := parse(t, `{"preset":"`+preset+`"}`)
		if got, ok := h.Decide(handshake.Input{Call: c}); ok {
			t.Errorf("%s: %+v before verification", preset, got)
		}
		if _, ok := h.Decide(handshake.Input{Call: c, Verified: true}); !ok {
			t.Errorf("%s: nothing after verification", preset)
		}
	}
}

// C11, input 2: nothing is fetched but from SNS.
func TestConfirmationsGoToSNSAlone(t *testing.T) {
	t.Parallel()

	h := parse(t, `{"preset":"sns"}`)
	confirm := func(url string) *trigger.Call {
		body, err := json.Marshal(map[string]string{"Type": "SubscriptionConfirmation", "SubscribeURL": url, "TopicArn": "arn:T"})
		if err != nil {
			t.Fatal(err)
		}
		return call("POST", "", string(body), "content-type", "text/plain; charset=UTF-8")
	}
	const good = "https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription&TopicArn=arn:T&Token=t"
	for _, url := range []string{
		"http://169.254.169.254/latest/meta-data/",
		"https://sns.us-west-2.amazonaws.com.example.net/?Action=ConfirmSubscription",
		"https://user@example.net/",
		"file:///etc/passwd",
		"http://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription",
		"https://sns.us-west-2.amazonaws.com:443/",
		"https://a:b@sns.us-west-2.amazonaws.com/",
		"https://sns.us-west-2.amazonaws.com@example.net/",
		"https://example.net/https://sns.us-west-2.amazonaws.com/",
		"https://[::1]/", "https://localhost/", "https://sns.localhost/", "gopher://sns.us-west-2.amazonaws.com/",
		"https:sns.us-west-2.amazonaws.com", "https:///sns.us-west-2.amazonaws.com/", strings.Repeat("x", 5000),
	} {
		got, ok := h.Decide(handshake.Input{Call: confirm(url), Verified: true})
		if !ok || got.Confirm != "" || got.Refused == "" || got.Response.Status < 400 {
			t.Errorf("%.60q: %+v, %t", url, got, ok)
		}
	}
	got, ok := h.Decide(handshake.Input{Call: confirm(good), Verified: true})
	if !ok || got.Confirm != good || got.Refused != "" || got.Response.Status != 200 {
		t.Errorf("%+v, %t", got, ok)
	}
	other := verify.Secrets{Params: json.RawMessage(`{"topicArn":"arn:U"}`)}
	if got, _ := h.Decide(handshake.Input{Call: confirm(good), Verified: true, Secrets: other}); got.Confirm != "" || got.Refused != handshake.RefusedTopic {
		t.Errorf("another topic: %+v", got)
	}
}

// Class 7: whoever comes first sets the secret, and nobody swaps it.
func TestTheFirstSecretStays(t *testing.T) {
	t.Parallel()

	h := parse(t, `{"preset":"asana"}`)
	first := call("POST", "", "{}", "x-hook-secret", "s1")
	got, ok := h.Decide(handshake.Input{Call: first})
	if !ok || got.Store.Reveal() != "s1" || headerOf(got.Response, "X-Hook-Secret") != "s1" {
		t.Fatalf("%+v, %t", got, ok)
	}
	got, _ = h.Decide(handshake.Input{Call: first, Secrets: verify.Secrets{Stored: "s1"}})
	if got.Store != "" || got.Refused != "" || headerOf(got.Response, "X-Hook-Secret") != "s1" {
		t.Errorf("the same again: %+v", got)
	}
	got, _ = h.Decide(handshake.Input{Call: call("POST", "", "{}", "x-hook-secret", "s2"), Secrets: verify.Secrets{Stored: "s1"}})
	if got.Store != "" || got.Refused != handshake.RefusedSecret || headerOf(got.Response, "X-Hook-Secret") != "" || got.Response.Status != 403 {
		t.Errorf("another: %+v", got)
	}
	for _, bad := range []string{"", "a\nb", "é", strings.Repeat("a", 5000)} {
		got, _ = h.Decide(handshake.Input{Call: call("POST", "", "{}", "x-hook-secret", bad)})
		if got.Store != "" || got.Response != nil && headerOf(got.Response, "X-Hook-Secret") != "" {
			t.Errorf("%.20q: %+v", bad, got)
		}
	}
	twice := call("POST", "", "{}", "x-hook-secret", "s1", "x-hook-secret", "s2")
	if got, _ := h.Decide(handshake.Input{Call: twice}); got.Store != "" {
		t.Errorf("twice: %+v", got)
	}
}

func TestAcks(t *testing.T) {
	t.Parallel()

	for preset, want := range map[string]string{"salesforce": "<Ack>true</Ack>", "twilio": "<Response/>"} {
		got := parse(t, `{"preset":"`+preset+`"}`).Ack()
		if got == nil || !bytes.Contains(got.Body, []byte(want)) || got.Status != 200 || !strings.HasPrefix(headerOf(got, "Content-Type"), "text/xml") {
			t.Errorf("%s: %+v", preset, got)
		}
	}
	if got := parse(t, `{"preset":"slack"}`).Ack(); got != nil {
		t.Errorf("slack: %+v", got)
	}
}

func TestRulesOfOnesOwn(t *testing.T) {
	t.Parallel()

	h := parse(t, `[
		{"class":"body-echo","when":[{"body":"/kind","equals":"hello"}],"from":{"body":"/word"},"reply":{"json":"{\"echo\":{challenge},\"n\":1}","status":201}},
		{"class":"confirm","when":[{"body":"/kind","equals":"confirm"}],"from":{"body":"/url"},"hosts":["a.example.com","*.b.example.com"]},
		{"class":"options","from":{"header":"WebHook-Request-Origin"},"origins":["good.example.com"]},
		{"class":"ack","reply":{"body":"ok","contentType":"text/plain","status":202}}
	]`)
	got, ok := h.Decide(handshake.Input{Call: call("POST", "", `{"kind":"hello","word":"<\u2028>"}`)})
	if !ok || string(got.Response.Body) != `{"echo":"<\u2028>","n":1}` || got.Response.Status != 201 {
		t.Errorf("%+v %s", got, got.Response.Body)
	}
	for url, allowed := range map[string]bool{
		"https://a.example.com/x": true, "https://c.b.example.com/": true, "https://d.c.b.example.com/": true,
		"https://b.example.com/": false, "https://xa.example.com/": false, "https://a.example.com.evil.net/": false, "https://evilb.example.com/": false,
	} {
		got, _ := h.Decide(handshake.Input{Call: call("POST", "", `{"kind":"confirm","url":"`+url+`"}`)})
		if (got.Confirm == url) != allowed || (got.Refused == "") != allowed {
			t.Errorf("%s: %+v", url, got)
		}
	}
	if got, _ := h.Decide(handshake.Input{Call: call("OPTIONS", "", "", "webhook-request-origin", "evil.example.com")}); got.Refused != handshake.RefusedOrigin {
		t.Errorf("%+v", got)
	}
	got, _ = h.Decide(handshake.Input{Call: call("OPTIONS", "", "", "webhook-request-origin", "good.example.com", "webhook-request-rate", "120")})
	if headerOf(got.Response, "WebHook-Allowed-Origin") != "good.example.com" || headerOf(got.Response, "WebHook-Allowed-Rate") != "*" {
		t.Errorf("%+v", got.Response)
	}
	if ack := h.Ack(); ack == nil || ack.Status != 202 || string(ack.Body) != "ok" {
		t.Errorf("%+v", ack)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()

	for _, spec := range []string{
		``, `"slack"`, `{}`, `{"preset":"nope"}`, `{"class":"nope"}`, `{"preset":"slack","class":"ping"}`, `{"nope":1}`,
		`{"class":"body-echo","from":{"body":"/challenge"}}`, // no discriminator
		`{"class":"body-echo","when":[{"body":"/t","equals":"x"}]}`,
		`{"class":"body-echo","when":[{"body":"t","equals":"x"}],"from":{"body":"/c"}}`,
		`{"class":"body-echo","when":[{"equals":"x"}],"from":{"body":"/c"}}`,
		`{"class":"body-echo","when":[{"body":"/t","header":"X"}],"from":{"body":"/c"}}`,
		`{"class":"ping"}`, `{"class":"ping","when":[{"body":"/t"}],"reply":{"status":500}}`,
		`{"class":"computed","from":{"query":"c"},"reply":{"json":"{\"a\":{challenge}}"}}`,
		`{"class":"computed","from":{"query":"c"},"reply":{"json":"{\"a\":{hmac}"}}`,
		`{"class":"computed","from":{"query":"c"},"reply":{"json":"{\"a\":{hmac}}","encoding":"rot13"}}`,
		`{"class":"header-echo","from":{"header":"X"}}`,
		`{"class":"confirm","when":[{"body":"/t"}],"from":{"body":"/u"}}`,
		`{"class":"confirm","when":[{"body":"/t"}],"from":{"body":"/u"},"hosts":["*"]}`,
		`{"class":"confirm","when":[{"body":"/t"}],"from":{"body":"/u"},"hosts":["*.com/"]}`,
		`{"class":"confirm","when":[{"body":"/t"}],"from":{"body":"/u"},"hosts":["10.0.0.1"]}`,
		`{"class":"confirm","when":[{"body":"/t"}],"from":{"body":"/u"},"hosts":["localhost"]}`,
	} {
		if _, err := handshake.Parse(json.RawMessage(spec)); err == nil {
			t.Errorf("%s is taken", spec)
		}
	}
}

// FuzzDecide asks every preset about anything. Nothing panics; nothing is
// echoed that is refused; nothing is fetched but from SNS; no header can be
// split.
func FuzzDecide(f *testing.F) {
	var all []*handshake.Handshake
	for _, preset := range handshake.Presets() {
		h, err := handshake.Parse(json.RawMessage(`{"preset":"` + preset + `"}`))
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, h)
	}
	f.Add("GET", "hub.mode=subscribe&hub.verify_token=tok&hub.challenge=x", "", "x-hook-secret", "s")
	f.Add("POST", "validationToken=%zz", `{"type":"url_verification","challenge":"x","Type":"SubscriptionConfirmation","SubscribeURL":"https://sns.aaa.amazonaws.com/"}`, "webhook-request-origin", "a\r\nb")
	f.Add("OPTIONS", "", `[{"eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","data":{"validationCode":"1"}}]`, "webhook-request-origin", "x")
	f.Add("HEAD", "crc_token=x", `{"data":{"event":"url_verification","verification_code":7}}`, "content-type", "application/x-www-form-urlencoded")
	f.Fuzz(func(t *testing.T, method, query, body, header, value string) {
		in := handshake.Input{Call: call(method, query, body, header, value), Secrets: verify.Secrets{Params: json.RawMessage(`{"secret":"s","verifyToken":"tok"}`)}}
		for _, in.Verified = range []bool{false, true} {
			for _, h := range all {
				got, ok := h.Decide(in)
				if !ok {
					continue
				}
				if got.Response == nil || got.Response.Status < 200 || got.Response.Status > 499 {
					t.Fatalf("%+v", got)
				}
				if got.Refused != "" && (len(got.Response.Body) > 0 || got.Confirm != "" || got.Store != "") {
					t.Errorf("refused, yet %+v", got)
				}
				if got.Confirm != "" && !strings.HasPrefix(got.Confirm, "https://sns.") {
					t.Errorf("fetches %q", got.Confirm)
				}
				if slices.ContainsFunc(got.Response.Header, func(f trigger.Field) bool { return strings.ContainsAny(f.Value, "\r\n\x00") }) {
					t.Errorf("a split header: %+v", got.Response.Header)
				}
				if headerOf(got.Response, "Content-Type") == "application/json" && !json.Valid(got.Response.Body) {
					t.Errorf("not JSON: %q", got.Response.Body)
				}
			}
		}
	})
}

// FuzzParse reads anything as rules.
func FuzzParse(f *testing.F) {
	f.Add(`[{"class":"body-echo","when":[{"body":"/t","equals":"x"}],"from":{"body":"/c"},"token":{"query":"t"}}]`)
	f.Add(`{"preset":"meta","token":{"secret":{"param":"x"}}}`)
	f.Fuzz(func(_ *testing.T, spec string) {
		h, err := handshake.Parse(json.RawMessage(spec))
		if err != nil {
			return
		}
		h.Decide(handshake.Input{Call: call("POST", "a=b", `{"t":"x","c":"y"}`, "a", "b"), Verified: true})
		h.Ack()
	})
}

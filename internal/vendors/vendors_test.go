package vendors_test

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/dedup"
	"github.com/tocsin-dev/tocsin/internal/handshake"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/vendors"
	"github.com/tocsin-dev/tocsin/internal/vendors/sender"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

func TestTheTableIsWhole(t *testing.T) {
	t.Parallel()

	names := vendors.Names()
	for _, preset := range slices.Concat(verify.Presets(), handshake.Presets()) {
		if !slices.Contains(names, preset) {
			t.Errorf("preset %s has no vendor", preset)
		}
	}
	for _, name := range names {
		v, _ := vendors.Lookup(name)
		if v.Title == "" || v.Load == "" || v.Horizon < 24*time.Hour || !strings.HasPrefix(v.Docs, "https://") {
			t.Errorf("%s lacks something: %+v", name, v)
		}
		if v.Dedup != nil {
			if e, err := dedup.New(*v.Dedup, v.Horizon); err != nil || e.Window() < v.Horizon {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := vendors.Compile(json.RawMessage(`{"preset":"`+name+`"}`), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Vendors contract §4: the windows outlive the vendors' retries.
func TestWindowsOutliveRetries(t *testing.T) {
	t.Parallel()

	for name, least := range map[string]time.Duration{
		"stripe": 72 * time.Hour, "standard-webhooks": 27*time.Hour + 36*time.Minute, "svix": 27*time.Hour + 36*time.Minute,
		"hubspot": 24 * time.Hour, "telegram": 24 * time.Hour, "asana": 24 * time.Hour, "shopify": 24 * time.Hour, "slack": 24 * time.Hour,
	} {
		p := compile(t, `{"preset":"`+name+`"}`, "")
		if p.Dedup == nil || p.Dedup.Window() < least {
			t.Errorf("%s forgets before %s", name, least)
		}
	}
}

func compile(t *testing.T, ofTrigger, ofSubscription string) *vendors.Policy {
	t.Helper()
	p, err := vendors.Compile(json.RawMessage(ofTrigger), json.RawMessage(ofSubscription))
	if err != nil {
		t.Fatalf("%s %s: %v", ofTrigger, ofSubscription, err)
	}
	return p
}

// parts says what a policy does, in a word each.
func parts(p *vendors.Policy) string {
	if p == nil {
		return "nothing"
	}
	var found []string
	if p.Verify != nil {
		found = append(found, "verify:"+p.Verify.Preset())
	}
	if p.Handshake != nil {
		found = append(found, "handshake")
	}
	if p.Dedup != nil {
		found = append(found, "dedup:"+p.Dedup.Window().String())
	}
	return strings.Join(found, " ")
}

func TestCompileJoinsTriggerAndSubscription(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct{ ofTrigger, ofSubscription, want string }{
		"nothing":                  {"", "", "nothing"},
		"empty":                    {"{}", "", ""},
		"a name brings all three":  {`{"preset":"github"}`, "", "verify:github handshake dedup:24h0m0s"},
		"an object too":            {`{"preset":{"name":"stripe","secret":{"state":"/s"},"window":"100h"}}`, "", "verify:stripe dedup:100h0m0s"},
		"another name":             {`{"preset":"facebook"}`, "", "verify:meta handshake"},
		"verify off (C11)":         {`{"preset":"sns","verify":false}`, "", "handshake dedup:24h0m0s"},
		"all off":                  {`{"preset":"github","verify":false,"handshake":false,"dedup":false}`, "", ""},
		"verify alone":             {`{"verify":{"preset":"github","secret":{"param":"s"}}}`, "", "verify:github"},
		"another name for verify":  {`{"verify":{"preset":"hubspot-v3","secret":"s"}}`, "", "verify:hubspot"},
		"one's own dedup":          {`{"preset":"github","dedup":{"body":"/id","window":"48h"}}`, "", "verify:github handshake dedup:48h0m0s"},
		"the subscription's":       {`{"dedup":{"body":"/id"}}`, `{"dedup":{"body":"/id","window":"48h"}}`, "dedup:48h0m0s"},
		"the subscription's alone": {"", `{"preset":"telegram"}`, "verify:telegram dedup:24h0m0s"},
		"subscription, dedup off":  {`{"preset":"telegram"}`, `{"dedup":false}`, "verify:telegram"},
		"null is nothing said":     {`{"preset":"telegram"}`, `{"dedup":null}`, "verify:telegram dedup:24h0m0s"},
		"off and off":              {`{"preset":"github","verify":false}`, `{"verify":false,"handshake":false}`, "dedup:24h0m0s"},
	} {
		if got := parts(compile(t, c.ofTrigger, c.ofSubscription)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ ofTrigger, ofSubscription string }{
		{`{"preset":"nope"}`, ""},
		{`{"preset":7}`, ""},
		{`{"preset":{"name":"github","secrets":"s"}}`, ""},
		{`{"nope":1}`, ""},
		{`[]`, ""},
		{`{"verify":true}`, ""},
		{`{"verify":{"preset":"nope"}}`, ""},
		{`{"handshake":{"preset":"nope"}}`, ""},
		{`{"dedup":{"nope":1}}`, ""},
		{`{"dedup":{"header":"X","window":"1h"}}`, ""},
		{`{"preset":"stripe","dedup":{"body":"/id","window":"71h"}}`, ""},
		{`{"preset":{"name":"stripe","window":"71h"}}`, ""},
		{`{"preset":{"name":"salesforce","secret":"s"}}`, ""}, // it would look protected
		{`{"preset":"github"}`, `{"verify":false}`},           // a subscription cannot open what its trigger closes
		{`{"verify":{"preset":"github"}}`, `{"verify":false}`},
		{``, `{"preset":"nope"}`},
	} {
		if p, err := vendors.Compile(json.RawMessage(c.ofTrigger), json.RawMessage(c.ofSubscription)); err == nil {
			t.Errorf("%s %s is taken: %s", c.ofTrigger, c.ofSubscription, parts(p))
		}
	}
}

func TestErrorsHoldNoSecret(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		`{"preset":{"name":"github","secret":{"canary-7731":1}}}`, `{"preset":["canary-7731"]}`, `{"preset":{"name":["canary-7731"]}}`,
		`{"verify":"canary-7731"}`, `{"handshake":"canary-7731"}`, `{"handshake":{"preset":"meta","token":{"secret":["canary-7731",1]}}}`,
	} {
		if _, err := vendors.Compile(json.RawMessage(text), nil); err == nil || strings.Contains(err.Error(), "canary-7731") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestEventFindsJSONThatIsDeclaredAsSomethingElse(t *testing.T) {
	t.Parallel()

	const form, text = "application/x-www-form-urlencoded", "text/plain; charset=UTF-8"
	for name, c := range map[string]struct {
		preset, contentType, body, want string
		ok                              bool
	}{
		"github's form (C04)":  {"github", form, "payload=%7B%22zen%22%3A%22Keep+it+logically+awesome.%22%2C%22hook_id%22%3A1%7D", `{"zen":"Keep it logically awesome.","hook_id":1}`, true},
		"github's JSON":        {"github", "application/json", `{"a":1}`, "", false},
		"github, another form": {"github", form, "a=1", "", false},
		"github, no JSON":      {"github", form, "payload=%7B", "", false},
		"slack's block action": {"slack", form, "payload=%7B%22a%22%3A1.0%7D", `{"a":1.0}`, true},
		"slack's command":      {"slack", form, "command=%2Fring", "", false},
		"sns (C11)":            {"sns", text, `{"Type":"Notification"}`, "", true}, // the bytes as they stand
		"sns, raw text":        {"sns", text, `rung`, "", false},
		"sns, not UTF-8":       {"sns", text, "\"\xff\"", "", false},
		"another vendor":       {"stripe", text, `{"a":1}`, "", false},
	} {
		call := &trigger.Call{Method: "POST", Body: []byte(c.body), Header: []trigger.Field{{Name: "content-type", Value: c.contentType}}}
		got, ok := compile(t, `{"preset":"`+c.preset+`"}`, "").Event(call)
		if ok != c.ok || string(got) != c.want {
			t.Errorf("%s: %s, %t, want %s, %t", name, got, ok, c.want, c.ok)
		}
	}
	var none *vendors.Policy
	if _, ok := none.Event(&trigger.Call{}); ok || none.Load() != vendors.LoadRefuse {
		t.Error("without a policy nothing is special")
	}
}

func TestMaskBody(t *testing.T) {
	t.Parallel()

	quote := func(text string) string {
		b, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, c := range map[string]struct{ preset, view, want string }{
		"slack":                    {"slack", `{"token":"T","n":1.0,"response_url":"U","event":{"token":"kept"}}`, `{"token":"[redacted]","n":1.0,"response_url":"[redacted]","event":{"token":"kept"}}`},
		"slack, payload in a form": {"slack", `{"payload":["{\"token\":\"T\",\"n\":1}"],"x":["1"]}`, `{"payload":["{\"token\":\"[redacted]\",\"n\":1}"],"x":["1"]}`},
		"slack, twice":             {"slack", `{"token":"T","token":"T2"}`, `{"token":"[redacted]","token":"[redacted]"}`},
		"graph":                    {"msgraph", `{"value":[{"clientState":"a"},{"clientState":"b","id":1}]}`, `{"value":[{"clientState":"[redacted]"},{"clientState":"[redacted]","id":1}]}`},
		"mailgun, JSON":            {"mailgun", `{"signature":{"timestamp":"1","token":"t","signature":"s"}}`, `{"signature":{"timestamp":"1","token":"[redacted]","signature":"[redacted]"}}`},
		"mailgun, form":            {"mailgun", `{"timestamp":["1"],"token":["t"],"signature":["s"]}`, `{"timestamp":["1"],"token":["[redacted]"],"signature":["[redacted]"]}`},
		"sns, as text":             {"sns", quote(`{"Token":"t","SubscribeURL":"u","Message":"m"}`), quote(`{"Token":"[redacted]","SubscribeURL":"[redacted]","Message":"m"}`)},
		"salesforce": {
			"salesforce", quote(`<a><SessionId>s</SessionId><x:SessionId y="1">t</x:SessionId><SessionId/><Id>1</Id><SessionId><![CDATA[u]]></SessionId></a>`),
			quote(`<a><SessionId>[redacted]</SessionId><x:SessionId y="1">[redacted]</x:SessionId><SessionId/><Id>1</Id><SessionId>[redacted]</SessionId></a>`),
		},
		"nothing to mask": {"stripe", `{"token":"T"}`, `{"token":"T"}`},
		"not JSON":        {"slack", `{"token":`, `{"token":`},
		"null":            {"slack", `null`, `null`},
	} {
		got := compile(t, `{"preset":"`+c.preset+`"}`, "").MaskBody(json.RawMessage(c.view))
		var a, b any
		if string(got) != c.want && (json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(c.want), &b) != nil || !cmp.Equal(a, b)) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	var none *vendors.Policy
	if got := none.MaskBody(json.RawMessage(`{"a":{"b":"x"}}`), "/a/b"); string(got) != `{"a":{"b":"[redacted]"}}` {
		t.Errorf("places of one's own: %s", got)
	}
}

func TestCacheCompilesOnce(t *testing.T) {
	t.Parallel()

	var c vendors.Cache
	github := json.RawMessage(`{"preset":"github"}`)
	first, err := c.Get(github, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := c.Get(github, nil)
	other, _ := c.Get(github, json.RawMessage(`{"dedup":false}`))
	if first != again || first == other {
		t.Error("the same declaration is compiled twice, or another is taken for it")
	}
	if p, err := c.Get(nil, nil); p != nil || err != nil {
		t.Errorf("nothing declared: %v, %v", p, err)
	}
	for range 2 {
		if _, err := c.Get(json.RawMessage(`{"preset":"nope"}`), nil); err == nil {
			t.Error("an unknown preset is taken")
		}
	}
}

// BenchmarkPolicy is what a signed call costs before it is stored.
func BenchmarkPolicy(b *testing.B) {
	var c vendors.Cache
	body := []byte(`{"id":"evt_1","data":"` + strings.Repeat("x", 2000) + `"}`)
	request, err := sender.Build("github", sender.Options{Secret: "s", URL: callback, Time: now(), Body: body})
	if err != nil {
		b.Fatal(err)
	}
	call := &trigger.Call{Method: request.Method, Body: request.Body}
	for _, f := range request.Header {
		call.Header = append(call.Header, trigger.Field{Name: strings.ToLower(f.Name), Value: f.Value})
	}
	secrets := verify.Secrets{Params: json.RawMessage(`{"secret":"s"}`)}
	b.ReportAllocs()
	for b.Loop() {
		p, err := c.Get(json.RawMessage(`{"preset":"github"}`), nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, ok := p.Handshake.Decide(handshake.Input{Call: call, Secrets: secrets, Verified: true}); ok {
			b.Fatal("a handshake")
		}
		result, err := p.Verify.Verify(b.Context(), verify.Input{Call: call, Secrets: secrets, Now: now()})
		if err != nil || !result.OK {
			b.Fatal(result, err)
		}
		if keys := p.Dedup.Keys(call, body, []json.RawMessage{nil}); keys[0] == "" {
			b.Fatal("no key")
		}
	}
}

func FuzzMaskBody(f *testing.F) {
	f.Add("slack", `{"payload":["{\"token\":1}"]}`)
	f.Add("salesforce", `"<a:SessionId>x<"`)
	f.Add("msgraph", `{"value":[{"clientState":{}}]}`)
	f.Fuzz(func(t *testing.T, preset, view string) {
		p, err := vendors.Compile(json.RawMessage(`{"preset":"`+preset+`"}`), nil)
		if err != nil {
			return
		}
		got := p.MaskBody(json.RawMessage(view), "/a/*/b", "xml:c")
		if json.Valid([]byte(view)) && !json.Valid(got) {
			t.Errorf("%s became %s", view, got)
		}
	})
}

var update = flag.Bool("update", false, "write docs/vendors.md anew")

// TestDocumentationIsTheTable keeps docs/vendors.md what the table says. Run it
// with -update after a change.
func TestDocumentationIsTheTable(t *testing.T) {
	t.Parallel()

	const path = "../../docs/vendors.md"
	want := vendors.Markdown()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/vendors.md is not the table; run go test ./internal/vendors -update (-table +file):\n%s", diff)
	}
}

package dedup_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/dedup"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

func parse(t *testing.T, spec string) *dedup.Extractor {
	t.Helper()
	e, err := dedup.Parse(json.RawMessage(spec), 0)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// one gives the key of a call whose body is its event.
func one(t *testing.T, spec, body string, header ...trigger.Field) string {
	t.Helper()
	keys := parse(t, spec).Keys(&trigger.Call{Header: header}, json.RawMessage(body), []json.RawMessage{nil})
	if len(keys) != 1 {
		t.Fatalf("%d keys for one event", len(keys))
	}
	return keys[0]
}

func TestKeysThatAreEqualAndThatAreNot(t *testing.T) {
	t.Parallel()

	const big = "9007199254740993" // 2^53 + 1
	for name, c := range map[string]struct {
		spec, a, b string
		same       bool
	}{
		"the same id":                        {`{"body":"/id"}`, `{"id":"e1","v":1}`, `{"v":2, "id" : "e1"}`, true},
		"another id":                         {`{"body":"/id"}`, `{"id":"e1"}`, `{"id":"e2"}`, false},
		"numbers beyond 2^53":                {`{"body":"/update_id"}`, `{"update_id":` + big + `}`, `{"update_id":9007199254740992}`, false},
		"the same big number":                {`{"body":"/update_id"}`, `{"update_id":` + big + `}`, `{"update_id":` + big + `}`, true},
		"a number and its digits":            {`{"body":"/id"}`, `{"id":1}`, `{"id":"1"}`, false},
		"spellings of a number":              {`{"body":"/id"}`, `{"id":1}`, `{"id":1.0}`, false},
		"true and its word":                  {`{"body":"/id"}`, `{"id":true}`, `{"id":"true"}`, false},
		"spellings of a string":              {`{"body":"/id"}`, `{"id":"\u00e4"}`, `{"id":"ä"}`, true},
		"parts do not run into each other":   {`{"body":["/a","/b"]}`, `{"a":"x1","b":"y"}`, `{"a":"x","b":"1y"}`, false},
		"parts that look like a length":      {`{"body":["/a","/b"]}`, `{"a":"1:s1","b":"y"}`, `{"a":"1","b":"s1y"}`, false},
		"an event's own id, the body's data": {`{"event":"/id"}`, `{"id":"k"}`, `{"id":"k","x":1}`, true},
		"the last of two members":            {`{"body":"/id"}`, `{"id":"a","id":"b"}`, `{"id":"b"}`, true},
	} {
		a, b := one(t, c.spec, c.a), one(t, c.spec, c.b)
		if a == "" || b == "" {
			t.Errorf("%s: no key", name)
		}
		if (a == b) != c.same {
			t.Errorf("%s: %q and %q, want same=%t", name, a, b, c.same)
		}
	}
}

func TestWithoutAKeyNothingIsADuplicate(t *testing.T) {
	t.Parallel()

	for _, body := range []string{`{}`, `{"id":null}`, `{"id":""}`, `{"id":{}}`, `{"id":["x"]}`, `[]`, `null`, `"id"`, ``, `{"id":`} {
		if key := one(t, `{"body":"/id"}`, body); key != "" {
			t.Errorf("%s has the key %q", body, key)
		}
	}
	if key := one(t, `{"body":["/a","/b"]}`, `{"a":"x"}`); key != "" {
		t.Errorf("half a key is %q", key)
	}
	if key := one(t, `{"header":"X-Id"}`, `{}`, trigger.Field{Name: "x-id", Value: ""}, trigger.Field{Name: "x-other", Value: "1"}); key != "" {
		t.Errorf("an empty header is the key %q", key)
	}
}

func TestSeveralHeadersMakeOneKey(t *testing.T) {
	t.Parallel()

	const spec = `{"header":["ce-source","ce-id"]}`
	key := func(source, id string) string {
		return one(t, spec, `{}`, trigger.Field{Name: "ce-source", Value: source}, trigger.Field{Name: "ce-id", Value: id})
	}
	first, again := key("a", "1"), key("a", "1")
	if first == "" || first != again || first == key("b", "1") || first == key("a", "2") {
		t.Errorf("got %q, %q, %q, %q", first, again, key("b", "1"), key("a", "2"))
	}
	if key("a", "") != "" || key("", "1") != "" {
		t.Error("half a key is a key")
	}
	repeated := one(t, spec, `{}`, trigger.Field{Name: "ce-source", Value: "a"}, trigger.Field{Name: "ce-source", Value: "b"}, trigger.Field{Name: "ce-id", Value: "c"})
	other := one(t, spec, `{}`, trigger.Field{Name: "ce-source", Value: "a"}, trigger.Field{Name: "ce-id", Value: "b"}, trigger.Field{Name: "ce-id", Value: "c"})
	if repeated == other {
		t.Errorf("values run from one header into the next: %q", repeated)
	}
}

func TestHeaderNamesAreCaseInsensitive(t *testing.T) {
	t.Parallel()

	if key := one(t, `{"header":"X-GitHub-Delivery"}`, `{}`, trigger.Field{Name: "x-github-delivery", Value: "d1"}); key == "" {
		t.Error("no key")
	}
}

func TestAnyTakesTheFirstThatIsThere(t *testing.T) {
	t.Parallel()

	const spec = `{"any":[{"header":"I-Twilio-Idempotency-Token"},{"body":["/MessageSid/0","/MessageStatus/0"]}]}`
	const body = `{"MessageSid":["SM1"],"MessageStatus":["sent"]}`
	byHeader := one(t, spec, body, trigger.Field{Name: "i-twilio-idempotency-token", Value: "t"})
	if !strings.HasPrefix(byHeader, "header ") {
		t.Errorf("got %q, want the header's key", byHeader)
	}
	if byBody := one(t, spec, body); !strings.HasPrefix(byBody, "body ") {
		t.Errorf("got %q, want the body's key", byBody)
	}
}

func TestEventsOfOneCallHaveTheirOwnKeys(t *testing.T) {
	t.Parallel()

	events := []json.RawMessage{[]byte(`{"id":"k1","v":1}`), []byte(`{"id":"k1","v":2}`), []byte(`{"id":"k2"}`), []byte(`{"v":4}`)}
	call := &trigger.Call{Header: []trigger.Field{{Name: "x-id", Value: "d"}}}

	t.Run("by each event (C23)", func(t *testing.T) {
		t.Parallel()

		keys := parse(t, `{"event":"/id"}`).Keys(call, nil, events)
		if keys[0] != keys[1] || keys[0] == keys[2] || keys[3] != "" {
			t.Errorf("got %q", keys)
		}
	})
	t.Run("by the call", func(t *testing.T) {
		t.Parallel()

		keys := parse(t, `{"header":"X-Id"}`).Keys(call, nil, events)
		seen := map[string]bool{}
		for _, key := range keys {
			if key == "" || seen[key] {
				t.Errorf("%q is empty or twice in %q", key, keys)
			}
			seen[key] = true
		}
		if diff := cmp.Diff(keys, parse(t, `{"header":"X-Id"}`).Keys(call, nil, events)); diff != "" {
			t.Errorf("the repeat has other keys:\n%s", diff)
		}
	})
}

func TestWindow(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		window  string
		horizon time.Duration
		want    time.Duration
	}{
		{"", 0, 24 * time.Hour},
		{"", 72 * time.Hour, 72 * time.Hour},
		{"24h", 0, 24 * time.Hour},
		{"96h", 72 * time.Hour, 96 * time.Hour},
		{"744h", 0, 744 * time.Hour},
		{"23h59m", 0, 0},
		{"71h", 72 * time.Hour, 0},
		{"745h", 0, 0},
		{"3 days", 0, 0},
		{"-48h", 0, 0},
		{"72", 0, 0},
	} {
		e, err := dedup.New(dedup.Spec{Header: dedup.Texts{"X-Id"}, Window: c.window}, c.horizon)
		switch {
		case c.want == 0 && err == nil:
			t.Errorf("window %q with horizon %s is taken", c.window, c.horizon)
		case c.want != 0 && err != nil:
			t.Errorf("window %q with horizon %s: %v", c.window, c.horizon, err)
		case err == nil && e.Window() != c.want:
			t.Errorf("window %q is %s, want %s", c.window, e.Window(), c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()

	for _, spec := range []string{
		`{}`, `[]`, `"x"`, `null`, `{"header":"A","body":"/b"}`, `{"body":"id"}`, `{"body":[]}`, `{"any":[]}`, `{"nope":1}`,
		`{"any":[{"any":[{"header":"A"}]}]}`, `{"any":[{"header":"A"}],"header":"B"}`, `{"any":[{"header":"A","window":"48h"}]}`,
		`{"header":1}`, `{"header":""}`, `{"header":[]}`, `{"body":{"x":1}}`, `{"window":"48h"}`,
	} {
		if _, err := dedup.Parse(json.RawMessage(spec), 0); err == nil {
			t.Errorf("%s is taken", spec)
		}
	}
}

func FuzzKeys(f *testing.F) {
	f.Add(`{"any":[{"header":"x"},{"body":["/a","/b/0"]},{"event":"/id"}]}`, `{"a":1,"b":["x"]}`, `{"id":1}`)
	f.Fuzz(func(t *testing.T, spec, body, event string) {
		e, err := dedup.Parse(json.RawMessage(spec), 0)
		if err != nil {
			return
		}
		call := &trigger.Call{Header: []trigger.Field{{Name: "x", Value: body}}}
		keys := e.Keys(call, json.RawMessage(body), []json.RawMessage{nil, json.RawMessage(event)})
		if len(keys) != 2 {
			t.Errorf("%d keys for two events", len(keys))
		}
	})
}

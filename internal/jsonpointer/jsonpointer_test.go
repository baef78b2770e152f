package jsonpointer_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/jsonpointer"
)

func doc(t *testing.T, text string) jsonpointer.Doc {
	t.Helper()
	d, ok := jsonpointer.Read([]byte(text))
	if !ok {
		t.Fatalf("Read(%s) refused", text)
	}
	return d
}

func pointer(t *testing.T, text string) jsonpointer.Pointer {
	t.Helper()
	p, err := jsonpointer.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGetFindsValuesByteForByte(t *testing.T) {
	t.Parallel()

	text := ` {"a" : {"b":[10, {"c" :"x,]}\"{"} ,null]}, "m~n":1,"x/y":2, "":3,"big":9007199254740993.0, "d":1,"d":2,"\u0065":"esc","n":null} `
	for _, c := range []struct{ pointer, want string }{
		{"/a/b/0", "10"},
		{"/a/b/1", `{"c" :"x,]}\"{"}`},
		{"/a/b/1/c", `"x,]}\"{"`},
		{"/a/b/2", "null"},
		{"/a/b", `[10, {"c" :"x,]}\"{"} ,null]`},
		{"/m~0n", "1"},
		{"/x~1y", "2"},
		{"/", "3"},
		{"/big", "9007199254740993.0"},
		{"/d", "2"}, // the last one counts
		{"/e", `"esc"`},
		{"", strings.TrimSpace(text)},
	} {
		got, ok := doc(t, text).Get(pointer(t, c.pointer))
		if !ok || string(got) != c.want {
			t.Errorf("Get(%q) = %s, %t; want %s", c.pointer, got, ok, c.want)
		}
	}
	for _, missing := range []string{"/z", "/a/b/3", "/a/b/-", "/a/b/01", "/a/b/-1", "/a/b/0/q", "/a/b/c", "/n/x"} {
		if got, ok := doc(t, text).Get(pointer(t, missing)); ok {
			t.Errorf("Get(%q) = %s, want nothing", missing, got)
		}
	}
}

func TestParseRefusesWhatIsNoPointer(t *testing.T) {
	t.Parallel()

	for _, bad := range []string{"a", "a/b", "/~", "/~2", "/a~"} {
		if p, err := jsonpointer.Parse(bad); err == nil {
			t.Errorf("Parse(%q) = %q, want an error", bad, p)
		}
	}
}

func TestAllFollowsEveryElement(t *testing.T) {
	t.Parallel()

	d := doc(t, `{"v":[{"s":"a"},{"s":"b"},{"x":1},{"s":["c"]}]}`)
	var got []string
	for _, value := range d.All(pointer(t, "/v/*/s")) {
		got = append(got, string(value))
	}
	if diff := cmp.Diff([]string{`"a"`, `"b"`, `["c"]`}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := d.All(pointer(t, "/v/0/*")); got != nil {
		t.Errorf("a star on an object found %s", got)
	}
}

func TestRedactReplacesEveryPlaceAndNothingElse(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		text     string
		pointers []string
		want     string
	}{
		{`{ "a":[1.0,{"t":"x"} ]}`, []string{"/a/1/t"}, `{ "a":[1.0,{"t":0} ]}`},
		{`{"v":[{"s":"a"},{"s":"b"},3]}`, []string{"/v/*/s"}, `{"v":[{"s":0},{"s":0},3]}`},
		{`{"t":"a","t":"b"}`, []string{"/t"}, `{"t":0,"t":0}`},
		{`{"a":{"t":"b"},"c":1}`, []string{"/a/t", "/a", "/c", "/d"}, `{"a":0,"c":0}`},
		{`[]`, []string{"/*", "/0"}, `[]`},
		{`"x"`, []string{""}, `0`},
	} {
		var pointers []jsonpointer.Pointer
		for _, text := range c.pointers {
			pointers = append(pointers, pointer(t, text))
		}
		if got := doc(t, c.text).Redact(pointers, json.RawMessage("0")); string(got) != c.want {
			t.Errorf("Redact(%s, %q) = %s, want %s", c.text, c.pointers, got, c.want)
		}
	}
}

func TestTextKeepsNumbersAsSpelled(t *testing.T) {
	t.Parallel()

	for value, want := range map[string]string{
		"9007199254740993": "9007199254740993", "1.0": "1.0", "-1e3": "-1e3", `"1"`: "1", "true": "true", `"\u00e4"`: "ä",
	} {
		if got, ok := jsonpointer.Text(json.RawMessage(value)); !ok || got != want {
			t.Errorf("Text(%s) = %q, %t", value, got, ok)
		}
	}
	for _, value := range []string{"null", "{}", "[]", ""} {
		if got, ok := jsonpointer.Text(json.RawMessage(value)); ok {
			t.Errorf("Text(%s) = %q, want none", value, got)
		}
	}
}

func FuzzGetAgreesWithEncodingJSON(f *testing.F) {
	f.Add(`{"a":{"b":[1,2]}}`, "/a/b/1")
	f.Add(`[[[]]]`, "/0/0")
	f.Add(`{"a\n":1,"a\u000a":2}`, "/a\n")
	f.Fuzz(func(t *testing.T, text, at string) {
		p, err := jsonpointer.Parse(at)
		if err != nil {
			return
		}
		d, ok := jsonpointer.Read([]byte(text))
		if !ok {
			return
		}
		d.All(p)
		got, found := d.Get(p)
		want, expected := slow(json.RawMessage(strings.TrimPrefix(text, "\ufeff")), p)
		if found != expected || found && strings.TrimSpace(string(got)) != strings.TrimSpace(string(want)) {
			t.Errorf("Get(%q, %q) = %s, %t; encoding/json says %s, %t", text, at, got, found, want, expected)
		}
		if !json.Valid(d.Redact([]jsonpointer.Pointer{p, {"*"}}, json.RawMessage("0"))) {
			t.Errorf("Redact(%q, %q) broke the document", text, at)
		}
	})
}

// slow is Get by encoding/json, member by member.
func slow(value json.RawMessage, p jsonpointer.Pointer) (json.RawMessage, bool) {
	for _, step := range p {
		switch jsonpointer.Kind(value) {
		case '{':
			var object map[string]json.RawMessage
			if json.Unmarshal(value, &object) != nil {
				return nil, false
			}
			inner, ok := object[step]
			if !ok {
				return nil, false
			}
			value = inner
		case '[':
			var list []json.RawMessage
			if json.Unmarshal(value, &list) != nil {
				return nil, false
			}
			found := false
			for i, inner := range list {
				if index, _ := json.Marshal(i); string(index) == step {
					value, found = inner, true
					break
				}
			}
			if !found {
				return nil, false
			}
		default:
			return nil, false
		}
	}
	return value, true
}

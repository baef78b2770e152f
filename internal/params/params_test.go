package params_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/params"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// resolve gives the resolved JSON, or the bad params one a line.
func resolve(t *testing.T, declared, supplied string) string {
	t.Helper()
	resolved, err := params.Resolve(json.RawMessage(declared), json.RawMessage(supplied))
	return outcome(t, resolved, err)
}

func outcome(t *testing.T, resolved json.RawMessage, err error) string {
	t.Helper()
	if err == nil {
		return string(resolved)
	}
	var invalid *trigger.InvalidError
	if !errors.As(err, &invalid) || invalid.Code != params.CodeInvalid {
		t.Fatalf("error %v, want a param_invalid", err)
	}
	lines := make([]string, len(invalid.Details))
	for i, wrong := range invalid.Details {
		lines[i] = wrong.Path + " " + wrong.Message
	}
	return strings.Join(lines, "\n")
}

func TestResolve(t *testing.T) {
	t.Parallel()

	for _, test := range []struct{ name, declared, supplied, want string }{
		{"no params declared: everything is dropped", ``, `{"a":1}`, `{}`},
		{"nothing supplied", `[{"key":"a","type":"string"}]`, `null`, `{}`},
		{"undeclared keys are dropped", `[{"key":"a","type":"string"}]`, `{"b":1,"a":"x"}`, `{"a":"x"}`},
		{"a default fills in", `[{"key":"a","type":"boolean","default":true}]`, `{}`, `{"a":true}`},
		{"false is a value, null is none", `[{"key":"a","type":"boolean","default":true},{"key":"b","type":"boolean","default":true}]`, `{"a":false,"b":null}`, `{"a":false,"b":true}`},
		{"required", `[{"key":"a","type":"string","required":true}]`, `{}`, `a is required`},
		{"the order is the declaration's", `[{"key":"b","type":"json"},{"key":"a","type":"json"}]`, `{"a":1,"b":2}`, `{"b":2,"a":1}`},
		{"JSON text stays as sent", `[{"key":"a","type":"number"},{"key":"j","type":"json"}]`, `{"a":1.10e3, "j":{ "z":12345678901234567890, "a":"\u0000\ud800" }}`, `{"a":1.10e3,"j":{"z":12345678901234567890,"a":"\u0000\ud800"}}`},
		{"not an object", `[]`, `[1]`, `params must be a JSON object`},
		{"readOnly is never submitted", `[{"key":"a","type":"string","readOnly":true,"default":"d"}]`, `{"a":"x"}`, `{"a":"d"}`},
		{"a default is the author's word", `[{"key":"a","type":"multiselect","options":["x"],"default":"x"},{"key":"b","type":"string","default":"","validation":{"pattern":"^x"}}]`, `{}`, `{"a":"x","b":""}`},
		{"readOnly cannot be required", `[{"key":"a","type":"string","readOnly":true,"required":true}]`, `{"a":"x"}`, `{}`},
		{
			"every bad param is listed",
			`[{"key":"s","type":"string"},{"key":"n","type":"number"},{"key":"b","type":"boolean"},{"key":"d","type":"date"},{"key":"t","type":"datetime"},{"key":"l","type":"select","options":[{"value":"x","label":"X"}]},{"key":"r","type":"string","required":true}]`,
			`{"s":1,"n":"5","b":"true","d":"2026-02-30","t":"2026-07-03T09:00:00","l":"y"}`,
			"s must be text\nn must be a number\nb must be true or false\nd must be a date like 2026-07-03\n" +
				"t must be a time with a zone, like 2026-07-03T09:00:00Z\nl must be one of \"x\"\nr is required",
		},
		{
			"good values of every type",
			`[{"key":"d","type":"date"},{"key":"t","type":"datetime"},{"key":"c","type":"code"},{"key":"f","type":"file"},{"key":"x","type":"rainbow"}]`,
			`{"d":"2024-02-29","t":"2026-07-03T09:00+02:00","c":"1+1","f":{"name":"a"},"x":[1]}`,
			`{"d":"2024-02-29","t":"2026-07-03T09:00+02:00","c":"1+1","f":{"name":"a"},"x":[1]}`,
		},
		{"numbers are options too", `[{"key":"a","type":"select","options":[{"value":1},2]}]`, `{"a":1.0}`, `{"a":1.0}`},
		{"a disabled option is none", `[{"key":"a","type":"select","options":[{"value":"x","disabled":true},{"value":"y"}]}]`, `{"a":"x"}`, `a must be one of "y"`},
		{"no choice made", `[{"key":"a","type":"select","options":[{"value":"x"}]}]`, `{"a":""}`, `{}`},
		{"no choice made where one must be", `[{"key":"a","type":"select","required":true,"options":[{"value":"x"}]}]`, `{"a":""}`, `a is required`},
		{"multiselect names the member", `[{"key":"a","type":"multiselect","options":["x","y"]}]`, `{"a":["x","z"]}`, `a[1] must be one of "x", "y"`},
		{"dynamic options are not for the static part", `[{"key":"a","type":"select","options":{"source":"./list.ts"}}]`, `{"a":"any"}`, `{"a":"any"}`},
		{"repeat is a list of the type", `[{"key":"a","type":"number","repeat":true}]`, `{"a":[1,"2",3]}`, `a[1] must be a number`},
		{"repeat wants a list", `[{"key":"a","type":"string","repeat":true}]`, `{"a":"x"}`, `a must be a list`},
		{"array by its item", `[{"key":"a","type":"array","item":{"type":"string"}},{"key":"b","type":"array"}]`, `{"a":["x"],"b":[1,"y"]}`, `{"a":["x"],"b":[1,"y"]}`},
		{"array of objects", `[{"key":"a","type":"array","item":{"type":"object","fields":[{"key":"id","type":"number","required":true}]}}]`, `{"a":[{"id":1,"x":2},{}]}`, `a[1].id is required`},
		{"group nests", `[{"key":"g","type":"group","children":[{"key":"a","type":"string","required":true},{"key":"b","type":"string","default":"d"}]}]`, `{"g":{"a":"x","z":1}}`, `{"g":{"a":"x","b":"d"}}`},
		{"group errors by path", `[{"key":"g","type":"group","repeat":true,"children":[{"key":"a","type":"string","required":true}]}]`, `{"g":[{"a":"x"},{}]}`, `g[1].a is required`},
		{"an absent optional group asks for nothing", `[{"key":"g","type":"group","children":[{"key":"a","type":"string","required":true},{"key":"b","type":"string","default":"d"}]}]`, `{}`, `{}`},
		{"an absent optional group takes defaults that make it whole", `[{"key":"g","type":"group","children":[{"key":"b","type":"string","default":"d"}]}]`, `{}`, `{"g":{"b":"d"}}`},
		{"an absent required group says what it lacks", `[{"key":"g","type":"group","required":true,"children":[{"key":"a","type":"string","required":true}]}]`, `{}`, `g.a is required`},
		{"section is flat", `[{"type":"section","title":"More","children":[{"key":"a","type":"string"},{"type":"section","children":[{"key":"b","type":"string","required":true}]}]}]`, `{"a":"x","b":"y"}`, `{"a":"x","b":"y"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, resolve(t, test.declared, test.supplied)); diff != "" {
				t.Errorf("resolved (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidation(t *testing.T) {
	t.Parallel()

	for _, test := range []struct{ rule, kind, value, want string }{
		{`{"minLength":3}`, "string", `"ab"`, "must have at least 3 characters"},
		{`{"maxLength":2}`, "string", `"😀"`, ""}, // two UTF-16 units
		{`{"maxLength":1}`, "string", `"😀"`, "must have at most 1 characters"},
		{`{"min":1,"max":5}`, "number", `6`, "must be at most 5"},
		{`{"min":1}`, "number", `0.5`, "must be at least 1"},
		{`{"integer":true}`, "number", `1.5`, "must be a whole number"},
		{`{"integer":true}`, "number", `12345678901234567890`, ""},
		{`{}`, "number", `1e999`, "is out of range"},
		{`{"enum":[1,2]}`, "number", `3`, "must be one of 1, 2"},
		{`{"enum":["a"]}`, "string", `"a"`, ""},
		{`{"pattern":"^sub_[a-z0-9]{3}$"}`, "string", `"sub_a1b"`, ""},
		{`{"pattern":"^sub_"}`, "string", `"x"`, "must match ^sub_"},
		{`{"pattern":"o"}`, "string", `"foo"`, ""}, // unanchored, as RegExp.test
		{`{"pattern":"^(a+)+$"}`, "string", `"` + strings.Repeat("a", 50_000) + `!"`, "must match ^(a+)+$"},
	} {
		declared := `[{"key":"v","type":"` + test.kind + `","validation":` + test.rule + `}]`
		want := `{"v":` + test.value + `}`
		if test.want != "" {
			want = "v " + test.want
		}
		if diff := cmp.Diff(want, resolve(t, declared, `{"v":`+test.value+`}`)); diff != "" {
			t.Errorf("%s on %.40s (-want +got):\n%s", test.rule, test.value, diff)
		}
	}
}

func TestHiddenParamsAreNotRequiredAndDropped(t *testing.T) {
	t.Parallel()

	for _, test := range []struct{ showIf, mode, want string }{
		{`{"==":[{"var":"mode"},"a"]}`, `"a"`, `x is required`},
		{`{"==":[{"var":"mode"},"a"]}`, `"b"`, `{"mode":"b"}`},
		{`{"!=":[{"var":"mode"},""]}`, `""`, `{"mode":""}`},
		{`{"in":[{"var":"mode"},["a","c"]]}`, `"c"`, `x is required`},
		{`{"!":{"var":"mode"}}`, `""`, `x is required`},
		{`{"!!":{"var":"mode"}}`, `""`, `{"mode":""}`},
		{`{"and":[{"!!":{"var":"mode"}},{">":[{"var":"n"},3]}]}`, `"a"`, `x is required`},
		{`{"or":[{"===":[{"var":"n"},5]},false]}`, `"a"`, `x is required`},
		{`{"if":[{"==":[{"var":"mode"},"a"]},false,true]}`, `"a"`, `{"mode":"a"}`},
		{`{"missing":["mode","nothing"]}`, `"a"`, `x is required`},
		{`{"some":[{"var":"list"},{">":[{"var":""},2]}]}`, `"a"`, `x is required`},
		{`{"==":[{"reduce":[{"var":"list"},{"+":[{"var":"current"},{"var":"accumulator"}]},0]},6]}`, `"a"`, `x is required`},
		{`{"field":"mode","equals":"a"}`, `"a"`, `x is required`},
		{`{"field":"mode","eq":"a"}`, `"b"`, `{"mode":"b"}`},
		{`{"field":"mode","in":["a"]}`, `"b"`, `{"mode":"b"}`},
		{`{"field":"mode","notIn":["a"]}`, `"b"`, `x is required`},
		{`{"field":"mode","truthy":false}`, `""`, `x is required`},
		{`{"field":"nothing","truthy":true}`, `"a"`, `{"mode":"a"}`},
		{`{"frobnicate":[1]}`, `"a"`, `x is required`}, // what cannot be read hides nothing
		{`{"reduce":[{"var":"list"},{"cat":[{"var":"accumulator"},{"var":"accumulator"}]},"aaaaaaaaaaaaaaaaaaaaaaaaa"]}`, `"a"`, `x is required`},
	} {
		declared := `[{"key":"mode","type":"string"},{"key":"n","type":"number","default":5,"readOnly":true,"showIf":true},
			{"key":"list","type":"json","default":[1,2,3]},{"key":"x","type":"string","required":true,"showIf":` + test.showIf + `}]`
		got := resolve(t, declared, `{"mode":`+test.mode+`}`)
		got = strings.Replace(got, `,"n":5,"list":[1,2,3]`, "", 1)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("showIf %s with mode %s (-want +got):\n%s", test.showIf, test.mode, diff)
		}
	}
}

func TestVisibilityFollowsWhatIsVisible(t *testing.T) {
	t.Parallel()

	declared := `[
		{"key":"kind","type":"string","default":"plain"},
		{"key":"via","type":"string","default":"mail","showIf":{"field":"kind","equals":"fancy"}},
		{"key":"address","type":"string","required":true,"showIf":{"field":"via","equals":"mail"}},
		{"type":"section","showIf":{"field":"kind","equals":"fancy"},"children":[{"key":"colour","type":"string","default":"red"}]},
		{"key":"list","type":"string"},
		{"key":"entry","type":"string","dependsOn":["list"],"required":true},
		{"key":"g","type":"group","children":[
			{"key":"kind","type":"string"},
			{"key":"inner","type":"string","default":"i","showIf":{"field":"kind","equals":"sibling"}},
			{"key":"outer","type":"string","default":"o","showIf":{"field":"list","equals":"l"}}]},
		{"key":"a","type":"string","default":"1","showIf":{"field":"b","equals":"1"}},
		{"key":"b","type":"string","default":"1","showIf":{"field":"a","equals":"1"}}
	]`
	for _, test := range []struct{ supplied, want string }{
		{`{}`, `{"kind":"plain","a":"1","b":"1"}`},
		{`{"kind":"fancy","address":"x"}`, `{"kind":"fancy","via":"mail","address":"x","colour":"red","a":"1","b":"1"}`},
		{`{"entry":"e"}`, `{"kind":"plain","a":"1","b":"1"}`},
		{`{"list":"l"}`, `entry is required`},
		{`{"list":"l","entry":"e","g":{"kind":"sibling"}}`, `{"kind":"plain","list":"l","entry":"e","g":{"kind":"sibling","inner":"i","outer":"o"},"a":"1","b":"1"}`},
	} {
		if diff := cmp.Diff(test.want, resolve(t, declared, test.supplied)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.supplied, diff)
		}
	}
}

func TestCheckRefusesWhatNoValueCouldBeHeldAgainst(t *testing.T) {
	t.Parallel()

	for _, test := range []struct{ declared, want string }{
		{``, ""},
		{`[{"key":"a","type":"string","dependsOn":["b"]},{"key":"b","type":"string"}]`, ""},
		{`{}`, "params must not be a object"},
		{`[null]`, "params: every entry must be an object"},
		{`[{"type":"string"}]`, "params[0]: has no key"},
		{`[{"key":"a","dependsOn":"b"}]`, "dependsOn must not be a string"},
		{`[{"key":"a","dependsOn":["a"]}]`, "a: dependsOn goes in a circle: a → a"},
		{`[{"key":"a","dependsOn":["b"]},{"type":"section","dependsOn":["a"],"children":[{"key":"b"}]}]`, "a: dependsOn goes in a circle: a → b → a"},
		{`[{"key":"a","dependsOn":["g"]},{"key":"g","type":"group","children":[{"key":"x","dependsOn":["y"]},{"key":"y","dependsOn":["x"]}]}]`, "g.x: dependsOn goes in a circle: x → y → x"},
		{`[{"key":"a","validation":{"pattern":"^(?=x)"}}]`, "a: the pattern is not supported: look-around: (?="},
		{`[{"key":"a","validation":{"pattern":"(a)\\1"}}]`, `a: the pattern is not supported: back reference: \1`},
		{`[{"key":"a","validation":{"pattern":"a{2000}"}}]`, "a: the pattern is not supported: invalid repeat count: {2000}"},
		{`[{"key":"a","validation":{"pattern":"("}}]`, "a: the pattern is not supported: missing closing ): ("},
	} {
		err := params.Check(json.RawMessage(test.declared))
		got := ""
		if err != nil {
			_, got, _ = strings.Cut(err.Error(), ": ")
		}
		if !strings.HasSuffix(got, test.want) || (test.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", test.declared, got, test.want)
		}
	}
}

func TestPatternsMeanWhatTheyMeanInJavaScript(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		pattern, value string
		want           bool
	}{
		{`^\s$`, " ", true}, // a no-break space
		{`^[\s,]+$`, "\ufeff,", true},
		{`^\S$`, " ", false},
		{`^\u0041\x42$`, "AB", true},
		{`^[^]$`, "\n", true},
		{`^[]$`, "a", false},
		{`^.$`, "\u2028", false},
		{`^[a-zA-Z0-9-]+\.x\/?$`, "ab-c.x/", true},
		{`^[[:a]$`, ":", true},
		{`^[\w-.]+$`, "a-.", true},
		{`a$`, "a\n", false},
		{`^\é$`, "é", true},
		{`^(?<year>\d{4})$`, "2026", true},
	} {
		quoted, err := json.Marshal(test.pattern)
		if err != nil {
			t.Fatal(err)
		}
		value, err := json.Marshal(map[string]string{"v": test.value})
		if err != nil {
			t.Fatal(err)
		}
		declared := json.RawMessage(`[{"key":"v","type":"string","validation":{"pattern":` + string(quoted) + `}}]`)
		if err := params.Check(declared); err != nil {
			t.Errorf("%s: %v", test.pattern, err)
		}
		if _, err := params.Resolve(declared, value); (err == nil) != test.want {
			t.Errorf("%s on %q: %v, want a match: %t", test.pattern, test.value, err, test.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()

	got := params.Warnings(json.RawMessage(`[{"key":"a","type":"string"},{"key":"a","type":"rainbow","dependsOn":["z"]},
		{"key":"b","type":"number","default":"5","showIf":{"field":"a","is":1}},{"key":"c","type":"string","showIf":{"nope":1}}]`))
	want := []trigger.FieldError{
		{Path: "a", Message: "is declared twice; the last one counts"},
		{Path: "a", Message: `has the type "rainbow", which is not checked`},
		{Path: "a", Message: `depends on "z", which is not declared`},
		{Path: "b", Message: `its showIf has "is", which is not known`},
		{Path: "b", Message: "its default must be a number"},
		{Path: "c", Message: "its showIf cannot be read and hides nothing"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestMaskShowsNoSecret(t *testing.T) {
	t.Parallel()

	declared := json.RawMessage(`[
		{"key":"name","type":"string"},
		{"key":"token","type":"secret"},
		{"key":"pin","type":"string","secret":true},
		{"key":"keys","type":"secret","repeat":true},
		{"type":"section","children":[{"key":"flat","type":"secret"}]},
		{"key":"auth","type":"group","children":[{"key":"user","type":"string"},{"key":"password","type":"secret"}]},
		{"key":"list","type":"array","item":{"type":"object","fields":[{"key":"k","type":"secret"},{"key":"n","type":"number"}]}},
		{"key":"whole","type":"json","secret":true},
		{"key":"none","type":"secret"}]`)
	resolved := json.RawMessage(`{"name":"n","token":"S","pin":"S","keys":["S","S"],"flat":"S","auth":{"user":"u","password":"S"},
		"list":[{"k":"S","n":1}],"whole":{"a":"S"},"none":null,"gone":"S"}`)

	want := `{"name":"n","token":"[redacted]","pin":"[redacted]","keys":["[redacted]","[redacted]"],"flat":"[redacted]",` +
		`"auth":{"user":"u","password":"[redacted]"},"list":[{"k":"[redacted]","n":1}],"whole":"[redacted]","none":null,"gone":"[redacted]"}`
	if diff := cmp.Diff(want, string(params.Mask(declared, resolved))); diff != "" {
		t.Errorf("mask (-want +got):\n%s", diff)
	}
	paths := []string{"token", "pin", "keys[0]", "keys[1]", "flat", "auth.password", "list[0].k", "whole", "gone"}
	if diff := cmp.Diff(paths, params.SecretPaths(declared, resolved)); diff != "" {
		t.Errorf("secret paths (-want +got):\n%s", diff)
	}
	if got := string(params.Mask(json.RawMessage(`{`), resolved)); strings.Contains(got, `"S"`) {
		t.Errorf("a broken declaration shows a secret: %s", got)
	}
}

// appChecks answers as an app's own hooks would.
type appChecks struct{ asked []string }

func (a *appChecks) Options(_ context.Context, source string, form, dependsOn json.RawMessage) ([]params.Option, error) {
	a.asked = append(a.asked, source+" "+string(form)+" "+string(dependsOn))
	return []params.Option{{Value: json.RawMessage(`"C01"`)}}, nil
}

func (a *appChecks) Validate(_ context.Context, hook string, value, _ json.RawMessage) (string, error) {
	a.asked = append(a.asked, hook+" "+string(value))
	return "is taken", nil
}

func TestTheAppIsAskedOnceTheStaticPartHolds(t *testing.T) {
	t.Parallel()

	declared := json.RawMessage(`[{"key":"team","type":"string","required":true},
		{"key":"channel","type":"select","dependsOn":["team"],"options":{"source":"./list.ts"}},
		{"key":"name","type":"string","validation":{"hook":"./free.ts"}}]`)
	ask := &appChecks{}
	resolved, err := params.ResolveWith(t.Context(), declared, json.RawMessage(`{"channel":"C02"}`), ask)
	if diff := cmp.Diff("team is required", outcome(t, resolved, err)); diff != "" || len(ask.asked) > 0 {
		t.Errorf("asked %q (-want +got):\n%s", ask.asked, diff)
	}

	resolved, err = params.ResolveWith(t.Context(), declared, json.RawMessage(`{"team":"T","channel":"C02","name":"n"}`), ask)
	if diff := cmp.Diff("channel must be one of \"C01\"\nname is taken", outcome(t, resolved, err)); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	want := []string{`./list.ts {"team":"T","channel":"C02","name":"n"} {"team":"T"}`, `./free.ts "n"`}
	if diff := cmp.Diff(want, ask.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func FuzzResolve(f *testing.F) {
	f.Add(`[{"key":"a","type":"string","required":true,"validation":{"pattern":"^\\s*(a|b)+$"}}]`, `{"a":"ab"}`)
	f.Add(`[{"key":"g","type":"group","repeat":true,"children":[{"key":"a","type":"secret","showIf":{"==":[{"var":"b"},1]}}]},{"key":"b"}]`, `{"g":[{"a":"x"}],"b":1}`)
	f.Add(`[{"key":"a","type":"array","item":{"type":"object","fields":[{"key":"x","default":1}]}}]`, `{"a":[{}]}`)
	f.Add(`[{"key":"a","options":["x"],"type":"multiselect","showIf":{"field":"a","in":[["x"]]}}]`, `{"a":["x"]}`)
	f.Add(`[{"key":"a","dependsOn":["b"]},{"type":"section","children":[{"key":"b","dependsOn":["a"]}]}]`, `{"a":1}`)
	f.Fuzz(func(t *testing.T, declared, supplied string) {
		checked := params.Check(json.RawMessage(declared))
		_ = params.Warnings(json.RawMessage(declared))
		masked := params.Mask(json.RawMessage(declared), json.RawMessage(supplied))
		if !json.Valid(masked) {
			t.Errorf("mask is no JSON: %s", masked)
		}
		resolved, err := params.Resolve(json.RawMessage(declared), json.RawMessage(supplied))
		if err != nil || checked != nil {
			return
		}
		var o map[string]any
		if err := json.Unmarshal(resolved, &o); err != nil {
			t.Fatalf("resolved is no object: %s", resolved)
		}
		again, err := params.Resolve(json.RawMessage(declared), resolved)
		if err == nil && string(again) != string(resolved) || err != nil && !strings.Contains(declared, "default") {
			t.Errorf("resolving what is resolved: %s, %v; want %s", again, err, resolved)
		}
	})
}

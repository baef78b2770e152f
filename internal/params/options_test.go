package params_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/params"
)

const asking = `[
	{"key":"plain","type":"string"},
	{"key":"fixed","type":"select","options":[{"value":1,"label":"One"}]},
	{"key":"workspace","type":"string"},
	{"type":"section","children":[{"key":"channel","type":"select","dependsOn":["workspace","absent"],"options":{"source":"./channels.ts"}}]},
	{"key":"filter","type":"group","children":[
		{"key":"label","type":"select","dependsOn":["workspace","kind"],"options":{"source":"labels"},"validation":{"hook":"checkLabel"}},
		{"key":"kind","type":"string"}]},
	{"key":"more","type":"array","item":{"type":"object","fields":[{"key":"x","type":"string","validation":{"hook":"./channels.ts"}}]}}]`

// Param RFC §options: the source hook “receives { form, dependsOn }”.
func TestChoicesComeFromTheDeclarationOrAHook(t *testing.T) {
	t.Parallel()

	form := json.RawMessage(`{"workspace":"T1","filter":{"kind":"k"}}`)
	for path, want := range map[string]*params.Choices{
		"fixed":        {Static: json.RawMessage(`[{"value":1,"label":"One"}]`)},
		"channel":      {Source: "./channels.ts", DependsOn: json.RawMessage(`{"workspace":"T1"}`)},
		"filter.label": {Source: "labels", DependsOn: json.RawMessage(`{"workspace":"T1","kind":"k"}`)},
		"plain":        nil, "none": nil, "plain.x": nil, "filter.none": nil, "": nil,
	} {
		got, ok := params.ChoicesOf(json.RawMessage(asking), path, form)
		if ok != (want != nil) {
			t.Errorf("%q: found %t", path, ok)
			continue
		}
		if want == nil {
			continue
		}
		if diff := cmp.Diff(*want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", path, diff)
		}
	}
	if diff := cmp.Diff([]string{"./channels.ts", "labels", "checkLabel"}, params.Hooks(json.RawMessage(asking))); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
	if got := params.Hooks(json.RawMessage(`7`)); got != nil {
		t.Errorf("of no declaration: %v", got)
	}
}

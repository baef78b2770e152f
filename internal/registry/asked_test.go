package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Param RFC: options.source and validation.hook name a hook, by its path or by
// its name in the trigger. One that is not there is said.
func TestParamsThatNameAHookThatIsNotThere(t *testing.T) {
	t.Parallel()

	const definition = `{"triggers":[{"key":"push","title":"P","params":[
		{"key":"a","type":"select","options":{"source":"./options/a.ts"}},
		{"key":"b","type":"string","validation":{"hook":"checkB"}},
		{"key":"c","type":"string","validation":{"hook":"checkC"}}]}]}`
	report := check(t, app(t, t.TempDir(), "package.json", packageJSON, "index.ts",
		`{"Definition":`+definition+`,"Hooks":["push/checkB"],"ByPath":{"./options/a.ts":"push/./options/a.ts"}}`))
	if !report.OK() || len(report.Problems) != 1 || !strings.Contains(report.Problems[0].Message, `"checkC"`) {
		t.Errorf("problems %+v, want one of checkC", report.Problems)
	}
}

// artifact.ts: `auth:[{auth,hooks}]`.
func TestABuiltAppsAuthMethodsHaveTheirHooks(t *testing.T) {
	t.Parallel()

	dir := artifact(t, t.TempDir(), func(m map[string]any) {
		m["auth"] = []any{map[string]any{"auth": map[string]any{"type": "bearer"}, "hooks": []string{}}, map[string]any{"auth": map[string]any{"key": "k", "type": "bearer"}, "hooks": []string{}}}
	})
	want := []trigger.AuthMethod{{Key: "bearer", Type: "bearer", Hooks: map[string]bool{}}, {Key: "k", Type: "bearer", Hooks: map[string]bool{}}}
	report := check(t, dir)
	if diff := cmp.Diff(want, report.App.Auth); diff != "" {
		t.Errorf("auth (-want +got):\n%s\n%s", diff, report.App.LoadError)
	}
	dir = artifact(t, t.TempDir(), func(m map[string]any) {
		m["auth"] = []any{map[string]any{"auth": map[string]any{"key": "k"}, "hooks": []string{"sign"}}}
	})
	if got := check(t, dir).App.LoadError; !strings.Contains(got, "auth:k/sign") {
		t.Errorf("a promised sign hook that is not there: %q", got)
	}
}

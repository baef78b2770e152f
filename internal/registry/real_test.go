package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
	"github.com/tocsin-dev/tocsin/internal/registry"
)

func TestMain(m *testing.M) {
	workerpool.Main()
	os.Exit(m.Run())
}

// noHost lets hooks do nothing outside.
type noHost struct{}

func (noHost) Fetch(context.Context, hook.FetchRequest) (hook.FetchResponse, error) {
	return hook.FetchResponse{}, errors.New("no fetch in this test")
}

func (noHost) Log(*hook.Call, hook.LogLine) {}

// sandbox is the real runtime.
func sandbox(t *testing.T) hook.Runtime {
	t.Helper()
	pool, err := workerpool.New(workerpool.Options{Host: noHost{}, Workers: 1})
	if err != nil {
		t.Fatalf("start the sandbox: %v", err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

func TestTheExampleAppsLoadAndRun(t *testing.T) {
	t.Parallel()

	r := registry.New(registry.Config{Dir: filepath.Join("..", "..", "examples", "apps"), Bundler: registry.Bundles{}, Runtime: sandbox(t)})
	if err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, app := range r.Apps() {
		if app.LoadError != "" || len(app.Triggers) == 0 {
			t.Errorf("%s: %q, %d triggers", app.ID, app.LoadError, len(app.Triggers))
		}
	}
	def, err := r.Trigger("io.tocsin.example.github", "delivery")
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Invoke(t.Context(), hook.Call{
		App: hook.AppRef{ID: def.AppID, Version: def.AppVersion, Tenant: "acme"}, Hook: "delivery/handleIngest",
		Input: json.RawMessage(`{"raw":{"headers":{},"body":null},"params":{"secret":"a long secret"}}`), RawBody: []byte("{}"),
	})
	if err == nil || hook.CodeOf(err) != hook.CodeThrew || !strings.Contains(err.Error(), "not signed") {
		t.Errorf("an unsigned delivery: %v", err)
	}
}

func TestAHostileModuleTakesNobodyDown(t *testing.T) {
	t.Parallel()

	pool, err := workerpool.New(workerpool.Options{Host: noHost{}, Workers: 1, Limits: hook.Limits{Wall: 500 * time.Millisecond, MemBytes: 16 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	root := t.TempDir()
	for name, code := range map[string]string{
		"a-good":  "export default { triggers: [{ key: 't', title: 'T' }] };",
		"endless": "for (;;) {}; export default {};",
		"greedy":  "const a: unknown[] = []; for (;;) a.push(new Array(1e5).fill(a)); export default {};",
		"join":    "const s = (new Array(3e8) + ''); export default { s };",
		"proxy":   "export default new Proxy({}, { get() { for (;;) {} }, ownKeys() { throw new Error('no keys'); } });",
		"throws":  "throw null; export default {};",
		"z-good":  "export default { triggers: [{ key: 't', title: 'T' }] };",
	} {
		app(t, filepath.Join(root, name), "package.json", withID("com.example."+name), "index.ts", code)
	}
	r := registry.New(registry.Config{Dir: root, Bundler: registry.Bundles{}, Runtime: pool})
	if err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, app := range r.Apps() {
		if good := strings.HasSuffix(app.ID, "-good"); good != (app.LoadError == "") {
			t.Errorf("%s: LoadError %q", app.ID, app.LoadError)
		}
	}
}

func TestRealCodeRealFaults(t *testing.T) {
	t.Parallel()

	runtime := sandbox(t)
	for _, test := range []struct {
		name  string
		files []string
		want  []string // code, where and message of each problem
	}{
		{
			"hooks by path, as the RFC's example writes them",
			[]string{
				"index.ts", `export default { triggers: [{ key: "t", title: "T", handleIngest: "./triggers/t/handleIngest.ts", poll: undefined }] };`,
				"triggers/t/handleIngest.ts", `export default function ({ raw }: { raw: unknown }) { return [raw]; }`,
			},
			nil,
		},
		{
			"a path hook that is not there",
			[]string{"index.ts", `export default { triggers: [{ key: "t", title: "T", handleIngest: "./nothing.ts" }] };`},
			[]string{`invalid_bundle  import of "./nothing.ts": there is no such file`},
		},
		{
			"two faults in two files",
			[]string{"index.ts", "import { a } from './a.ts';\nimport x from 'left-pad';\nexport default { a, x };", "a.ts", "export const a = ;"},
			[]string{
				`invalid_bundle a.ts:1:18 Unexpected ";"`,
				`invalid_bundle index.ts:2:15 import of "left-pad" is not allowed: an app may import its own files by relative path, and @w6w/types`,
			},
		},
		{
			"the module throws",
			[]string{"index.ts", "\nthrow new RangeError('no');\nexport default {};"},
			[]string{"invalid_bundle  RangeError: no"},
		},
		{
			"nothing is exported",
			[]string{"index.ts", "export const x = 1;"},
			[]string{"invalid_bundle  TypeError: the app has no default export (nor an export named app) that is an object"},
		},
		{
			"poll and onSubscribe",
			[]string{"index.ts", "export default { triggers: [{\n  key: 't', title: 'T',\n  poll() {}, onSubscribe() {}, onUnsubscribe() {},\n}] };"},
			[]string{`invalid_trigger index.ts:2 the trigger "t" has poll and onSubscribe; a poll trigger registers nothing`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			report := registry.Check(t.Context(), app(t, t.TempDir(), append([]string{"package.json", packageJSON}, test.files...)...), registry.Bundles{}, runtime)
			var got []string
			for _, p := range report.Problems {
				got = append(got, p.Code+" "+p.Where+" "+p.Message)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

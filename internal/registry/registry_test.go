package registry_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/bundle"
	"github.com/tocsin-dev/tocsin/internal/registry"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// fakeCode is a Bundler and a Runtime for apps whose entry is the JSON of a
// hook.Description in place of code. Path hooks count as found when their file
// is there.
type fakeCode struct {
	mu       sync.Mutex
	loads    []string
	unloads  []string
	allow    map[hook.AppRef][]string
	loadFail error
}

func (f *fakeCode) Dir(dir string, modules ...string) (hook.Bundle, error) {
	text, err := os.ReadFile(filepath.Join(dir, "index.ts"))
	if err != nil {
		return hook.Bundle{}, &bundle.Error{Problems: []bundle.Problem{{File: "index.ts", Line: 1, Column: 1, Message: "cannot be read"}}}
	}
	for _, module := range modules {
		text = append(text, []byte("\n// "+module)...)
	}
	return f.Artifact(text, nil)
}

func (f *fakeCode) Artifact(module []byte, _ []string) (hook.Bundle, error) {
	sum := sha256.Sum256(module)
	return hook.Bundle{JS: module, Hash: hex.EncodeToString(sum[:])}, nil
}

func (f *fakeCode) Load(_ context.Context, ref hook.AppRef, bundle hook.Bundle) (hook.Description, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loadFail != nil {
		return hook.Description{}, f.loadFail
	}
	f.loads = append(f.loads, ref.ID+"@"+ref.Tenant)
	if f.allow == nil {
		f.allow = map[hook.AppRef][]string{}
	}
	f.allow[ref] = bundle.Allow
	code, modules, _ := strings.Cut(string(bundle.JS), "\n// ")
	var described struct {
		Definition json.RawMessage
		Hooks      []string
		ByPath     map[string]string // hook by module
	}
	if err := json.Unmarshal([]byte(code), &described); err != nil {
		return hook.Description{}, &hook.Error{Code: hook.CodeThrew, Phase: "load", Name: "SyntaxError", Message: "bad", Stack: "at index.ts:3:7"}
	}
	for module, name := range described.ByPath {
		if strings.Contains(modules, module) {
			described.Hooks = append(described.Hooks, name)
		}
	}
	return hook.Description{Definition: described.Definition, Hooks: described.Hooks}, nil
}

func (f *fakeCode) Invoke(_ context.Context, call hook.Call) (hook.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.allow[call.App]; !ok {
		return hook.Result{}, &hook.Error{Code: hook.CodeUnknownApp, Message: "no such app is loaded"}
	}
	return hook.Result{Output: json.RawMessage(`[]`)}, nil
}

func (f *fakeCode) Unload(ref hook.AppRef) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.allow, ref)
	f.unloads = append(f.unloads, ref.ID+"@"+ref.Tenant)
}

// taken gives what was loaded since the last look, sorted.
func (f *fakeCode) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	loads := f.loads
	f.loads = nil
	slices.Sort(loads)
	return loads
}

const packageJSON = `{
  "name": "@x/push", "version": "1.2.3", "license": "MIT", "author": "Ada <ada@example.com>",
  "w6w": {
    "id": "com.example.push", "displayName": "Push", "categories": ["x"], "appearance": {"icon": {}},
    "network": {"allow": ["API.example.com", "*.example.org"]}
  }
}`

// app writes an app's directory: pairs of file name and content.
func app(t *testing.T, dir string, files ...string) string {
	t.Helper()
	for i := 0; i < len(files); i += 2 {
		name := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// described is an entry module that declares one thing.
func described(definition string, hooks ...string) string {
	names, _ := json.Marshal(hooks) // strings always encode
	return fmt.Sprintf(`{"Definition":%s,"Hooks":%s}`, definition, names)
}

func check(t *testing.T, dir string) *registry.Report {
	t.Helper()
	code := &fakeCode{}
	return registry.Check(t.Context(), dir, code, code)
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()

	webhook := func(hooks ...string) string { return described(`{"triggers":[{"key":"t","title":"T"}]}`, hooks...) }
	pkg := func(old, replacement string) string { return strings.Replace(packageJSON, old, replacement, 1) }
	for _, test := range []struct {
		name  string
		files []string
		want  string // "" loads
	}{
		{"no package.json", []string{"index.ts", "{}"}, "missing_package_json: the directory has no package.json"},
		{"no JSON", []string{"package.json", "{\n  \"a\": x}"}, "invalid_json: package.json:2: invalid character 'x' looking for beginning of value"},
		{"no object", []string{"package.json", "[]"}, "invalid_json: package.json: must be a JSON object, not a array"},
		{"no w6w block", []string{"package.json", `{"name":"x"}`}, `missing_manifest: package.json: package.json has no "w6w" block`},
		{"the manifest file is missing", []string{"package.json", pkg(`"displayName"`, `"manifest": "./id.json", "displayName"`)}, "missing_manifest: package.json:4: w6w.manifest names ./id.json, which is not there"},
		{"fields are missing", []string{"package.json", `{"w6w":{"id":"a.b"}}`}, "invalid_manifest: package.json:1: name is required; displayName is required; version is required; categories is required; appearance is required; author is required; license is required"},
		{"a reserved id", []string{"package.json", pkg("com.example.push", "@w6w/webhook")}, "invalid_manifest: package.json:4: id starts with @w6w/, which is reserved for the host's own nodes"},
		{"an id with a slash", []string{"package.json", pkg("com.example.push", "a/b")}, "invalid_manifest: package.json:4: id must be a reverse-DNS name such as com.example.app"},
		{"a bad allow entry", []string{"package.json", pkg("*.example.org", "https://x")}, `invalid_manifest: package.json:5: network.allow "https://x" is neither a host name, nor *.host, nor *`},
		{"dependencies", []string{"package.json", pkg(`"license"`, `"devDependencies": {"a": "1"}, "license"`)}, "npm_dependencies_forbidden: package.json:2: package.json has devDependencies; apps bring no npm packages"},
		{"empty dependencies are none", []string{"package.json", pkg(`"license"`, `"dependencies": {}, "license"`), "index.ts", described(`{}`)}, ""},
		{"node_modules", []string{"package.json", packageJSON, "lib/node_modules/a/x.js", ""}, "npm_dependencies_forbidden: lib/node_modules: the app has a node_modules directory; apps bring no npm packages"},
		{"no entry", []string{"package.json", packageJSON}, "invalid_bundle: index.ts:1:1: cannot be read"},
		{"the module throws", []string{"package.json", packageJSON, "index.ts", "x"}, "hook_threw: index.ts:3: SyntaxError: bad"},
		{"an action without key", []string{"package.json", packageJSON, "index.ts", described(`{"actions":[{"key":"a"},{}]}`)}, "invalid_action: actions[1] has no key"},
		{"a health check without key", []string{"package.json", packageJSON, "index.ts", described(`{"healthChecks":[{}]}`)}, "invalid_health_check: healthChecks[0] has no key"},
		{"a health check twice", []string{"package.json", packageJSON, "index.ts", described(`{"healthChecks":[{"key":"a"},{"key":"a"}]}`)}, `invalid_health_check: the health check "a" is declared twice`},

		{"a trigger without key", []string{"package.json", packageJSON, "index.ts", described(`{"triggers":[{"title":"T"}]}`)}, "invalid_trigger: triggers[0] has no key"},
		{"onSubscribe without onUnsubscribe", []string{"package.json", packageJSON, "index.ts", webhook("t/onSubscribe"), "triggers/t.ts", "\n\nkey: 't'"}, `invalid_trigger: triggers/t.ts:3: the trigger "t" has onSubscribe without onUnsubscribe; whatever is registered must be destroyable`},
		{"poll with onSubscribe", []string{"package.json", packageJSON, "index.ts", webhook("t/poll", "t/onSubscribe", "t/onUnsubscribe")}, `invalid_trigger: index.ts:1: the trigger "t" has poll and onSubscribe; a poll trigger registers nothing`},
		{"onUnsubscribe alone", []string{"package.json", packageJSON, "index.ts", webhook("t/onUnsubscribe")}, ""},
		{"poll with onUnsubscribe and handleIngest", []string{"package.json", packageJSON, "index.ts", webhook("t/poll", "t/onUnsubscribe", "t/handleIngest")}, ""},
		{"no hooks: a plain receiver", []string{"package.json", packageJSON, "index.ts", webhook()}, ""},

		{"circular dependsOn", []string{"package.json", packageJSON, "index.ts", described(`{"triggers":[{"key":"t","params":[{"key":"a","dependsOn":["a"]}]}]}`)}, `invalid_manifest: index.ts:1: the trigger "t": params: a: dependsOn goes in a circle: a → a`},
		{"a path hook without its function", []string{"package.json", packageJSON, "index.ts", described(`{"triggers":[{"key":"t","poll":"./poll.ts"}]}`)}, `invalid_bundle: index.ts:1: the trigger "t" takes poll from ./poll.ts, which exports neither a default function nor poll`},
		{"no definition", []string{"package.json", packageJSON, "index.ts", described(`[]`)}, "invalid_manifest: the app's definition must be an object"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			report := check(t, app(t, t.TempDir(), test.files...))
			if diff := cmp.Diff(test.want, report.App.LoadError); diff != "" {
				t.Errorf("LoadError (-want +got):\n%s", diff)
			}
			if report.OK() != (test.want == "") || report.OK() != !slices.ContainsFunc(report.Problems, func(p registry.Problem) bool { return p.Code != registry.CodeWarning }) {
				t.Errorf("problems %v do not fit LoadError %q", report.Problems, report.App.LoadError)
			}
		})
	}
}

func TestWhatAnAppDeclares(t *testing.T) {
	t.Parallel()

	dir := app(t, t.TempDir(), "package.json", packageJSON, "index.ts", `{"Definition":{
		"auth":[{"key":"oauth2","type":"oauth2","oauth2":{"tokenUrl":"https://Login.example.net/token","authorizationUrl":"https://api.example.com/auth"}}],
		"triggers":[
			{"key":"push","title":"Push","type":"poll","params":[{"key":"repo","type":"string"}],"sample":{"z":1,"a":2},
			 "handleIngest":"./triggers/push.ts","preset":"github","dedup":{"header":"X-Id","window":"72h"}},
			{"key":"tick","type":"webhook","requiresAuth":false,"minIntervalMs":60000},
			{"key":"twice","title":"first"},{"key":"twice","title":"second","minIntervalMs":-1,"requiresAuth":"no"}]},
		"Hooks":["tick/poll","tick/helper","auth:oauth2/sign"],"ByPath":{"./triggers/push.ts":"push/handleIngest"}}`)
	report := check(t, dir)

	definition := func(key string) *trigger.Definition {
		return &trigger.Definition{
			AppID: "com.example.push", AppVersion: report.App.Hash, Key: key, Type: trigger.TypeWebhook, RequiresAuth: true, Hooks: map[string]bool{},
		}
	}
	push, tick, twice := definition("push"), definition("tick"), definition("twice")
	push.Title, push.Params, push.Sample = "Push", json.RawMessage(`[{"key":"repo","type":"string"}]`), json.RawMessage(`{"z":1,"a":2}`)
	push.Host, push.Hooks = json.RawMessage(`{"dedup":{"header":"X-Id","window":"72h"},"preset":"github"}`), map[string]bool{"handleIngest": true}
	tick.Type, tick.RequiresAuth, tick.MinInterval, tick.Hooks = trigger.TypePoll, false, time.Minute, map[string]bool{"poll": true}
	twice.Title = "second"
	want := &trigger.App{
		ID: "com.example.push", Version: "1.2.3", Hash: report.App.Hash, Title: "Push", HasAuth: true,
		Auth:  []trigger.AuthMethod{{Key: "oauth2", Type: "oauth2", Hooks: map[string]bool{"sign": true}}},
		Allow: []string{"api.example.com", "*.example.org", "login.example.net"}, Manifest: report.App.Manifest,
		Triggers: []*trigger.Definition{push, tick, twice},
	}
	if diff := cmp.Diff(want, report.App); diff != "" {
		t.Errorf("app (-want +got):\n%s", diff)
	}
	if want := `"author":{"email":"ada@example.com","name":"Ada"}`; !strings.Contains(string(report.App.Manifest), want) {
		t.Errorf("manifest %s lacks %s", report.App.Manifest, want)
	}
}

func TestASymlinkOutOfTheAppIsRefused(t *testing.T) {
	t.Parallel()

	outside := app(t, t.TempDir(), "secret.ts", "secret")
	dir := app(t, t.TempDir(), "package.json", packageJSON, "index.ts", described(`{}`), "lib/a.ts", "")
	if err := os.Symlink("a.ts", filepath.Join(dir, "lib", "inside.ts")); err != nil {
		t.Fatal(err)
	}
	if got := check(t, dir).App.LoadError; got != "" {
		t.Errorf("a symlink inside the app: %s", got)
	}
	if err := os.Symlink(filepath.Join(outside, "secret.ts"), filepath.Join(dir, "lib", "out.ts")); err != nil {
		t.Fatal(err)
	}
	want := "invalid_bundle: lib/out.ts: the symlink leads out of the app's directory, or nowhere"
	if got := check(t, dir).App.LoadError; got != want {
		t.Errorf("LoadError %q, want %q", got, want)
	}
}

// artifact writes a built app and lets edit change its manifest.
func artifact(t *testing.T, dir string, edit func(m map[string]any)) string {
	t.Helper()
	code := described(`{"triggers":[{"key":"t"}]}`, "t/handleIngest", "t/parseOutput")
	sum := sha256.Sum256([]byte(code))
	manifest := map[string]any{
		"artifactVersion": 1, "id": "com.example.built", "version": "2.0.0",
		"manifest": map[string]any{
			"id": "com.example.built", "version": "2.0.0", "name": "built", "displayName": "Built", "categories": []string{}, "appearance": map[string]any{},
			"author": map[string]any{"name": "A"}, "license": "MIT",
		},
		"actions": []any{}, "auth": []any{}, "healthChecks": []any{}, "interfaces": nil,
		"triggers":     []any{map[string]any{"trigger": map[string]any{"key": "t", "title": "T"}, "hooks": []string{"handleIngest"}}},
		"exec":         map[string]any{"sha256": hex.EncodeToString(sum[:]), "bytes": len(code), "format": "esm"},
		"sourceDigest": "x", "buildInfo": map[string]any{},
	}
	if edit != nil {
		edit(manifest)
	}
	text, err := json.MarshalIndent(manifest, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return app(t, dir, "app.js", code, "manifest.json", string(text))
}

// edit sets a field of an object in a manifest.
func edit(m map[string]any, object, name string, value any) {
	if fields, ok := m[object].(map[string]any); ok {
		fields[name] = value
	}
}

func TestABuiltAppIsHeldAgainstItsManifest(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name string
		edit func(m map[string]any)
		want string
	}{
		{"good", nil, ""},
		{"unknown key", func(m map[string]any) { m["extra"] = 1 }, `invalid_manifest: manifest.json: unknown field "extra"`},
		{"unknown key inside", func(m map[string]any) { edit(m, "exec", "x", 1) }, `invalid_manifest: manifest.json: unknown field "x"`},
		{"another version", func(m map[string]any) { m["version"] = "2.0.1" }, "invalid_manifest: manifest.json: id and version are com.example.built 2.0.1, but manifest's are com.example.built 2.0.0"},
		{"another artifactVersion", func(m map[string]any) { m["artifactVersion"] = 2 }, "invalid_manifest: manifest.json:3: artifactVersion must be 1"},
		{"other code", func(m map[string]any) { edit(m, "exec", "sha256", strings.Repeat("0", 64)) }, "exec_sha_mismatch: app.js: its SHA-256 is "},
		{"other length", func(m map[string]any) { edit(m, "exec", "bytes", 1) }, "exec_sha_mismatch: app.js: it has 84 bytes, but manifest.json says 1"},
		{"a promised hook is missing", func(m map[string]any) {
			m["triggers"] = []any{map[string]any{"trigger": map[string]any{"key": "t"}, "hooks": []string{"poll"}}}
		}, "invalid_manifest: manifest.json: manifest.json lists hooks that app.js lacks: t/poll"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			report := check(t, artifact(t, t.TempDir(), test.edit))
			if got := report.App.LoadError; !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
				t.Fatalf("LoadError %q, want %q", got, test.want)
			}
			if test.want != "" {
				return
			}
			if def := report.App.Triggers[0]; def.Title != "T" || def.Has("parseOutput") || !def.Has("handleIngest") {
				t.Errorf("the definition is not the manifest's: %+v", def)
			}
		})
	}
}

// states is the database as the registry sees it.
type states struct {
	mu       sync.Mutex
	said     map[string]trigger.AppState
	mirrored []string
	asked    int64 // for reloads
	mirrors  int
	err      error
}

func (s *states) MirrorApps(_ context.Context, apps []*trigger.App) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.mirrored = nil
	s.mirrors++
	for _, app := range apps {
		s.mirrored = append(s.mirrored, app.ID)
		if state, ok := s.said[app.ID]; ok {
			app.State = state
		}
	}
	return nil
}

func (s *states) AppStates(context.Context) (map[string]trigger.AppState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said, s.err
}

func (s *states) ReloadsRequested(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.err
}

func withID(id string) string { return strings.Replace(packageJSON, "com.example.push", id, 1) }

func TestReload(t *testing.T) {
	t.Parallel()

	root := t.TempDir()
	good := described(`{"triggers":[{"key":"t"}]}`, "t/handleIngest")
	app(t, filepath.Join(root, "a"), "package.json", withID("a"), "index.ts", good)
	app(t, filepath.Join(root, "b"), "package.json", withID("b"), "index.ts", good)
	app(t, filepath.Join(root, "b2"), "package.json", withID("b"), "index.ts", good)
	app(t, filepath.Join(root, "broken"), "package.json", withID("c"), "index.ts", "x")
	app(t, filepath.Join(root, "empty"), "README.md", "")
	app(t, filepath.Join(root, ".hidden"), "package.json", "x")
	artifact(t, filepath.Join(root, "built", "2.0.0"), nil)
	artifact(t, filepath.Join(root, "built", "2.0.0-rc.1"), func(m map[string]any) { m["version"] = "wrong" })

	code, db := &fakeCode{}, &states{said: map[string]trigger.AppState{"b": trigger.AppDisabled}}
	r := registry.New(registry.Config{Dir: root, Bundler: code, Runtime: code, States: db})
	reload := func() {
		t.Helper()
		if err := r.Reload(t.Context()); err != nil {
			t.Fatalf("reload: %v", err)
		}
	}
	reload()
	var got []string
	for _, app := range r.Apps() {
		got = append(got, fmt.Sprintf("%s %s %.20s", app.ID, app.State, app.LoadError))
	}
	want := []string{"a active ", "b disabled ", "c active hook_threw: index.ts", "com.example.built active ", "empty active missing_package_json"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("apps (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "com.example.built", "empty"}, db.mirrored); diff != "" {
		t.Errorf("mirrored (-want +got):\n%s", diff)
	}
	for _, ask := range []struct {
		app, key string
		want     error
	}{{"a", "t", nil}, {"a", "x", trigger.ErrUnknownTrigger}, {"z", "t", trigger.ErrUnknownApp}, {"c", "t", trigger.ErrUnknownApp}} {
		if _, err := r.Trigger(ask.app, ask.key); !errors.Is(err, ask.want) {
			t.Errorf("trigger %s/%s: %v, want %v", ask.app, ask.key, err, ask.want)
		}
	}

	code.taken()
	app(t, filepath.Join(root, "a"), "index.ts", "x")
	app(t, filepath.Join(root, "broken"), "index.ts", good)
	reload()
	if diff := cmp.Diff([]string{"a@", "b@", "c@"}, code.taken()); diff != "" { // b2 is tried again, as all broken ones are
		t.Errorf("loaded again (-want +got):\n%s", diff)
	}
	if a, err := r.App("a"); err != nil || a.LoadError == "" {
		t.Errorf("a's new fault is not told: %+v, %v", a, err)
	}
	if _, err := r.Trigger("a", "t"); err != nil {
		t.Errorf("a's last good version is gone: %v", err)
	}
	if _, err := r.Trigger("c", "t"); err != nil {
		t.Errorf("c is mended and not there: %v", err)
	}

	db.err = trigger.ErrUnavailable
	if err := r.Reload(t.Context()); !errors.Is(err, trigger.ErrUnavailable) {
		t.Errorf("reload without a database: %v", err)
	}
	if b, err := r.App("b"); err != nil || b.State != trigger.AppDisabled {
		t.Errorf("b's state is forgotten: %+v, %v", b, err)
	}
}

func TestRefreshTakesTheOperatorsWord(t *testing.T) {
	t.Parallel()

	root := t.TempDir()
	app(t, filepath.Join(root, "a"), "package.json", withID("a"), "index.ts", described(`{}`))
	code, db := &fakeCode{}, &states{said: map[string]trigger.AppState{}}
	r := registry.New(registry.Config{Dir: root, Bundler: code, Runtime: code, States: db})
	if err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, state := range []trigger.AppState{trigger.AppArchived, trigger.AppActive} {
		before, _ := r.App("a")
		old := before.State
		db.said = map[string]trigger.AppState{"a": state}
		if err := r.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a, err := r.App("a"); err != nil || a.State != state {
			t.Errorf("state %+v, %v; want %s", a, err, state)
		}
		if before.State != old {
			t.Error("an App that a caller holds has changed")
		}
	}
}

func TestATenantsFirstCallLoadsTheCodeForIt(t *testing.T) {
	t.Parallel()

	root := t.TempDir()
	dir := app(t, filepath.Join(root, "a"), "package.json", withID("a"), "index.ts", described(`{"triggers":[{"key":"t"}]}`, "t/handleIngest"))
	code := &fakeCode{}
	r := registry.New(registry.Config{Dir: root, Bundler: code, Runtime: code})
	if err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	code.taken()
	first, err := r.Trigger("a", "t")
	if err != nil {
		t.Fatal(err)
	}
	call := hook.Call{App: hook.AppRef{ID: "a", Version: first.AppVersion, Tenant: "acme"}, Hook: "t/handleIngest"}
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if _, err := r.Invoke(t.Context(), call); err != nil {
				t.Errorf("invoke: %v", err)
			}
		})
	}
	calls.Wait()
	if diff := cmp.Diff([]string{"a@acme"}, code.taken()); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}

	// The replaced code stays for one more Reload: a call may just have looked it up.
	for i, version := range []string{"2", "3"} {
		app(t, dir, "index.ts", described(`{"v":`+version+`,"triggers":[{"key":"t"}]}`, "t/handleIngest"))
		if err := r.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := r.Invoke(t.Context(), call)
		if gone := hook.CodeOf(err) == hook.CodeUnknownApp; gone != (i == 1) {
			t.Errorf("after %d reloads: %v", i+1, err)
		}
	}
	if diff := cmp.Diff([]string{"a@", "a@acme"}, code.unloads); diff != "" {
		t.Errorf("unloaded (-want +got):\n%s", diff)
	}
}

func TestAPackListsItsApps(t *testing.T) {
	t.Parallel()

	root := app(t, t.TempDir(), "w6w-pack.json", `{"apps":[{"path":"apps/a"}]}`,
		"apps/a/package.json", withID("a"), "apps/a/index.ts", described(`{}`), "other/package.json", "x")
	code := &fakeCode{}
	r := registry.New(registry.Config{Dir: root, Bundler: code, Runtime: code})
	if err := r.Reload(t.Context()); err != nil || len(r.Apps()) != 1 {
		t.Errorf("apps %v, %v; want one", r.Apps(), err)
	}
	app(t, root, "w6w-pack.json", `{"apps":[{"path":"../a"}]}`)
	if err := r.Reload(t.Context()); err == nil || len(r.Apps()) != 1 {
		t.Errorf("a pack that points out of itself: %v, %d apps; want an error and nothing changed", err, len(r.Apps()))
	}
}

func TestCheckWarns(t *testing.T) {
	t.Parallel()

	dir := app(t, t.TempDir(), "package.json", packageJSON,
		"index.ts", described(`{"triggers":[{"key":"Tick","params":[{"key":"a","type":"rainbow"}]}]}`, "Tick/poll", "Tick/handleIngest", "Tick/onUnsubscribe"),
		"triggers/tick.ts", "export const tick = {\n  key: \"Tick\",\n};")
	var got []string
	for _, problem := range check(t, dir).Problems {
		got = append(got, problem.Code+" "+problem.Where+" "+problem.Message)
	}
	want := []string{
		`warning triggers/tick.ts:2 trigger "Tick" has no title`,
		`warning triggers/tick.ts:2 trigger "Tick" has a key that is not lower case with dashes`,
		`warning triggers/tick.ts:2 trigger "Tick" polls, so its handleIngest is never called`,
		`warning triggers/tick.ts:2 trigger "Tick" has onUnsubscribe without onSubscribe`,
		`warning triggers/tick.ts:2 trigger "Tick" param a: has the type "rainbow", which is not checked`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func FuzzManifests(f *testing.F) {
	f.Add([]byte(packageJSON), []byte(`{"triggers":[{"key":"t","params":[{"key":"a"}],"poll":"./x.ts"}]}`))
	f.Add([]byte(`{"w6w":{"network":{"allow":[1]}}}`), []byte(`{"actions":{},"auth":[1],"triggers":null}`))
	f.Fuzz(func(t *testing.T, pkg, definition []byte) {
		if !json.Valid(definition) {
			definition = []byte("null")
		}
		dir := app(t, t.TempDir(), "package.json", string(pkg), "index.ts", described(string(definition), "t/poll"), "manifest.json", string(pkg))
		report := check(t, dir)
		if !report.OK() && len(report.Problems) == 0 {
			t.Errorf("%q is an error without a problem", report.App.LoadError)
		}
	})
}

package bundle_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/bundle"
)

// appDir writes files into a new directory.
func appDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const packageJSON = `{"main":"./other.ts","w6w":{"id":"com.example.app","entry":"./index.ts","network":{"allow":["api.example.com","*.example.org"]}}}`

func TestDirBundlesTypeScriptWithRelativeImportsAndTheTypesModule(t *testing.T) {
	t.Parallel()
	dir := appDir(t, map[string]string{
		"package.json": packageJSON,
		"index.ts": `import type { AppDefinition } from "@w6w/types";
import { worstHealthState } from "@w6w/types";
import { Client } from "./lib/client.ts";
export default { triggers: [{ key: "t", handleIngest: () => new Client("x").name + worstHealthState([]) }] } satisfies AppDefinition;`,
		"lib/client.ts": `export class Client { constructor(public readonly name: string) {} }`,
	})
	made, err := bundle.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"api.example.com", "*.example.org"}, made.Allow); diff != "" {
		t.Errorf("allow (-want +got):\n%s", diff)
	}
	script := string(made.JS)
	for _, part := range []string{"var " + hook.BundleGlobal, "degraded"} {
		if !strings.Contains(script, part) {
			t.Errorf("bundle lacks %q", part)
		}
	}
	if strings.Contains(script, "import ") {
		t.Error("bundle has imports left")
	}
	if !strings.Contains(string(made.SourceMap), "lib/client.ts") {
		t.Errorf("source map does not name lib/client.ts: %s", made.SourceMap)
	}
	again, err := bundle.Dir(dir)
	if err != nil || again.Hash != made.Hash || len(made.Hash) != 64 {
		t.Errorf("hash of the same app: %q then %q, %v", made.Hash, again.Hash, err)
	}
}

func TestDirFindsTheEntry(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ manifest, file string }{
		"w6w.entry": {`{"main":"b.ts","w6w":{"entry":"a.ts"}}`, "a.ts"},
		"main":      {`{"main":"b.ts"}`, "b.ts"},
		"default":   {`{}`, "index.ts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := appDir(t, map[string]string{"package.json": test.manifest, test.file: `export default { marker: "found" };`})
			if made, err := bundle.Dir(dir); err != nil || !strings.Contains(string(made.JS), "found") {
				t.Errorf("got %s, %v", made.JS, err)
			}
		})
	}
}

func TestDirRefusesWhatIsNotTheAppsOwn(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "secret.ts")
	if err := os.WriteFile(outside, []byte(`export default "secret";`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ source, file, message string }{
		"package":         {`import x from "lodash"; export default x;`, "index.ts", `import of "lodash" is not allowed`},
		"node builtin":    {`import x from "node:fs"; export default x;`, "index.ts", `import of "node:fs" is not allowed`},
		"url":             {`import x from "https://x.test/a.js"; export default x;`, "index.ts", `is not allowed`},
		"absolute path":   {`import x from "/etc/passwd"; export default x;`, "index.ts", `is not allowed`},
		"parent":          {`import x from "../../../../etc/hosts"; export default x;`, "index.ts", `outside the app's directory`},
		"symlink":         {`import x from "./link.ts"; export default x;`, "index.ts", `outside the app's directory`},
		"missing":         {`import x from "./nowhere.ts"; export default x;`, "index.ts", `there is no such file`},
		"dynamic import":  {`export default { async poll() { await import("./index.ts"); } };`, "index.ts", `dynamic import`},
		"require":         {`export default require("fs");`, "index.ts", `is not allowed`},
		"syntax":          {"export default {\n  triggers: [;\n};", "index.ts", `Unexpected ";"`},
		"other file type": {`import x from "./package.wasm"; export default x;`, "index.ts", `.ts, .js and .json`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := appDir(t, map[string]string{"package.json": `{}`, "index.ts": test.source, "package.wasm": "x"})
			if err := os.Symlink(outside, filepath.Join(dir, "link.ts")); err != nil {
				t.Fatal(err)
			}
			_, err := bundle.Dir(dir)
			var failure *bundle.Error
			if !errors.As(err, &failure) {
				t.Fatalf("got %v, want a bundle.Error", err)
			}
			problem := failure.Problems[0]
			if !strings.Contains(problem.Message, test.message) {
				t.Errorf("message %q lacks %q", problem.Message, test.message)
			}
			if name != "other file type" && (problem.File != test.file || problem.Line < 1 || problem.Column < 1) {
				t.Errorf("place is %s:%d:%d", problem.File, problem.Line, problem.Column)
			}
		})
	}
}

func TestDirNamesTheLineOfABadManifest(t *testing.T) {
	t.Parallel()
	_, err := bundle.Dir(appDir(t, map[string]string{"package.json": "{\n  \"main\": oops\n}"}))
	var failure *bundle.Error
	if !errors.As(err, &failure) || failure.Problems[0].File != "package.json" || failure.Problems[0].Line != 2 {
		t.Errorf("got %v", err)
	}
	if _, err := bundle.Dir(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no package.json") {
		t.Errorf("got %v", err)
	}
}

func TestPathHooksAreBundledWithTheApp(t *testing.T) {
	t.Parallel()
	definition := json.RawMessage(`{"triggers":[{"key":"a","handleIngest":"./triggers/a.ts","title":"./not-a-hook"},{"key":"b","poll":"./triggers/a.ts"}]}`)
	paths, err := bundle.PathHooks(definition)
	if diff := cmp.Diff([]string{"./triggers/a.ts"}, paths); err != nil || diff != "" {
		t.Fatalf("paths: %v\n%s", err, diff)
	}
	dir := appDir(t, map[string]string{
		"package.json":  `{}`,
		"index.ts":      `export default { triggers: [{ key: "a", handleIngest: "./triggers/a.ts" }] };`,
		"triggers/a.ts": `export default function handleIngest() { return ["from a path"]; }`,
	})
	made, err := bundle.Dir(dir, paths...)
	if err != nil || !strings.Contains(string(made.JS), "from a path") {
		t.Errorf("got %s, %v", made.JS, err)
	}
}

func TestArtifactTakesOneImportFreeModule(t *testing.T) {
	t.Parallel()
	made, err := bundle.Artifact([]byte(`const app = { triggers: [] }; export { app as default };`), []string{"x.test"})
	if err != nil || !strings.Contains(string(made.JS), "triggers") {
		t.Errorf("got %s, %v", made.JS, err)
	}
	if _, err := bundle.Artifact([]byte(`import fs from "./fs.js"; export default fs;`), nil); err == nil || !strings.Contains(err.Error(), "must not import") {
		t.Errorf("got %v, want a refusal", err)
	}
}

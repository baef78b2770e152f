package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
)

// Issue 3: “Reload without restart (tocsin apps reload, and on SIGHUP); a broken
// app is reported and never takes the others or the process down.”
func TestAChangedAppIsReloadedEverywhereWithoutARestart(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(version string) {
		t.Helper()
		writeApp(t, root, "changing", `export default { triggers: [{ key: "t", title: "T",
			handleIngest({ raw }) { return [{ in: "`+version+`" }]; }, parseOutput({ normalized }) { return { ...normalized, out: "`+version+`" }; } }] };`)
	}
	write("one")
	writeApp(t, root, "steady", `export default { triggers: [{ key: "t", title: "T" }] };`)
	s := rig.Start(t, rig.Options{Apps: root})
	id, steady := s.Subscribe("test.changing", "t", "wf", nil), s.Subscribe("test.steady", "t", "wf", nil)
	event := func() string {
		answer := s.Post(id, []byte(`{}`), "Content-Type", "application/json")
		if len(answer.EventIDs) != 1 {
			t.Fatalf("%d %s", answer.Status, answer.Body)
		}
		return runEvent(t, s, answer.EventIDs[0])
	}
	if got := event(); got != `{"in":"one","out":"one"}` {
		t.Errorf("at first %s", got)
	}

	// Over the API: ingest has it when the answer comes, the dispatcher soon.
	write("two")
	if out := s.CLI("apps", "reload"); !strings.Contains(out, "test.changing") {
		t.Errorf("reload says %s", out)
	}
	rig.Eventually(t, 30*time.Second, "both have the second version", func() bool { return event() == `{"in":"two","out":"two"}` })

	// By signal, each process for itself.
	write("three")
	s.Ingest.Signal(syscall.SIGHUP)
	s.Dispatchers[0].Signal(syscall.SIGHUP)
	rig.Eventually(t, 30*time.Second, "both have the third version", func() bool { return event() == `{"in":"three","out":"three"}` })

	// A broken one is said, and what was loaded stays in use.
	writeApp(t, root, "changing", `export default { triggers: [ }`)
	s.CLI("apps", "reload")
	_, app := s.API(http.MethodGet, "/apps/test.changing", nil)
	if loaded, _ := app["app"].(map[string]any); !strings.Contains(fmt.Sprint(loaded["loadError"]), "index.ts:1:") {
		t.Errorf("the broken app shows %v", app["app"])
	}
	if got := event(); got != `{"in":"three","out":"three"}` {
		t.Errorf("while broken %s", got)
	}
	if answer := s.Post(steady, []byte(`1`), "Content-Type", "application/json"); len(answer.EventIDs) != 1 {
		t.Errorf("the other app: %d %s", answer.Status, answer.Body)
	}
	if s.Ingest.Exited() || s.Dispatchers[0].Exited() {
		t.Error("a process has ended")
	}
}

// writeApp writes an app of one module; its id is test.<name>.
func writeApp(t *testing.T, root, name, source string) {
	t.Helper()
	dir := filepath.Join(root, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	manifest := fmt.Sprintf(`{"name":%q,"version":"1.0.0","license":"MIT","author":{"name":"T"},"w6w":{"id":"test.%s","displayName":%q,"categories":["x"],"appearance":{"icon":{}},"network":{"allow":["*"]}}}`, name, name, name)
	for file, text := range map[string]string{"package.json": manifest, "index.ts": source} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

package e2e_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tocsin-dev/tocsin/e2e/rig"
)

// referenceSender is the Standard Webhooks reference library for JavaScript.
const referenceSender = "standardwebhooks@1.1.1"

// installSender installs the library into a folder of the test's own. It is the
// one thing of the tests that needs npm and its registry, so without them the
// test is left out; our own signer, which the others use, is held against it here.
func installSender(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	dir := t.TempDir()
	install := exec.CommandContext(t.Context(), "npm", "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline", referenceSender)
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("npm install: %v\n%s", err, out)
	}
	return dir
}

func TestOpenWOPTakesPostsOfTheReferenceSender(t *testing.T) {
	t.Parallel()

	type post struct {
		ID   string `json:"id"`
		Body string `json:"body"`
	}
	dir := installSender(t)
	b := startBridge(t, rig.Options{})
	r := b.register("required", nil)
	posts := []post{
		{newMessageID(), `{"type":"contact.created","timestamp":"2026-12-01T00:00:00Z","data":{"id":"1"}}`},
		{newMessageID(), ` { "spaces" : [1.0, 1e3, 12345678901234567890] } `},
		{newMessageID(), `{"text":"Zürich – 東京 🔔 \u0000 \ud800"}`},
		{newMessageID(), ``},
	}
	posts = append(posts, posts[0]) // a repeat
	send := func(secret string) (answers []struct {
		Status int            `json:"status"`
		Body   map[string]any `json:"body"`
	},
	) {
		input, err := json.Marshal(map[string]any{"secret": secret, "url": r.url, "posts": posts})
		if err != nil {
			t.Fatal(err)
		}
		node := exec.CommandContext(t.Context(), "node", filepath.Join("testdata", "openwop", "send.mjs"), dir)
		node.Stdin = bytes.NewReader(input)
		var stderr bytes.Buffer
		node.Stderr = &stderr
		out, err := node.Output()
		if err != nil {
			t.Fatalf("node: %v\n%s", err, stderr.String())
		}
		if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(posts) {
			t.Fatalf("%v in %s", err, out)
		}
		return answers
	}
	for i, a := range send("whsec_" + "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=") {
		if a.Status != http.StatusUnauthorized || a.Body["error"] != "signature_invalid" {
			t.Errorf("another secret, post %d: %+v", i, a)
		}
	}
	answers := send(r.secret)
	for i, a := range answers[:len(answers)-1] {
		if a.Status != http.StatusAccepted || a.Body["runId"] == "" {
			t.Errorf("post %d: %+v", i, a)
		}
	}
	if last := answers[len(answers)-1]; last.Status != http.StatusOK || last.Body["outcome"] != "duplicate" || last.Body["runId"] != answers[0].Body["runId"] {
		t.Errorf("the repeat: %+v", last)
	}
	if n := b.runsOf(r.id); n != len(posts)-1 {
		t.Errorf("%d runs", n)
	}
}

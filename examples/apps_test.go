// Package examples holds sample apps; its test loads each and calls its hooks
// as the services do.
package examples

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
	"github.com/tocsin-dev/tocsin/internal/registry"
)

func TestMain(m *testing.M) {
	workerpool.Main()
	os.Exit(m.Run())
}

// noHost gives hooks nothing: none of the samples fetches.
type noHost struct{}

func (noHost) Fetch(context.Context, hook.FetchRequest) (hook.FetchResponse, error) {
	return hook.FetchResponse{}, errors.New("the samples fetch nothing")
}
func (noHost) Log(*hook.Call, hook.LogLine) {}

func pool(t *testing.T) *workerpool.Pool {
	t.Helper()
	p, err := workerpool.New(workerpool.Options{Host: noHost{}, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestEveryAppLoadsWithoutAProblem(t *testing.T) {
	t.Parallel()

	runtime := pool(t)
	manifests, err := filepath.Glob("apps/*/package.json")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no apps: %v", err)
	}
	for _, manifest := range manifests {
		report := registry.Check(t.Context(), filepath.Dir(manifest), registry.Bundles{}, runtime)
		if !report.OK() || len(report.Problems) > 0 {
			t.Errorf("%s: %+v", manifest, report.Problems)
		}
	}
}

func TestGitHubAppTakesOnlyWhatIsSigned(t *testing.T) {
	t.Parallel()

	runtime := pool(t)
	report := registry.Check(t.Context(), "apps/github", registry.Bundles{}, runtime)
	if !report.OK() {
		t.Fatalf("the app does not load: %+v", report.Problems)
	}
	const secret = "It's a secret"
	call := func(body []byte, contentType, signature string) (json.RawMessage, error) {
		var parsed any = string(body)
		if contentType == "application/json" {
			parsed = json.RawMessage(body)
		}
		input, err := json.Marshal(map[string]any{
			"raw": map[string]any{
				"method": "POST", "path": "/triggers/webhooks/sub_1", "query": map[string]string{}, "body": parsed,
				"headers": map[string]string{"content-type": contentType, "x-hub-signature-256": signature},
			},
			"params": map[string]string{"secret": secret}, "state": nil, "subscriptionId": "sub_1",
		})
		if err != nil {
			t.Fatal(err)
		}
		result, err := runtime.Invoke(t.Context(), hook.Call{App: report.Ref, Hook: "delivery/handleIngest", Input: input, RawBody: body})
		return result.Output, err
	}

	body := firstDelivery(t)
	output, err := call(body, "application/json", sign(secret, body))
	if err != nil {
		t.Fatalf("a signed delivery: %v", err)
	}
	if diff := cmp.Diff(decode(t, []byte("["+string(body)+"]")), decode(t, output)); diff != "" {
		t.Errorf("events (-delivered +returned):\n%s", diff)
	}

	form := []byte("payload=" + url.QueryEscape(string(body)))
	if output, err = call(form, "application/x-www-form-urlencoded", sign(secret, form)); err != nil {
		t.Errorf("a signed form: %v", err)
	} else if diff := cmp.Diff(decode(t, []byte("["+string(body)+"]")), decode(t, output)); diff != "" {
		t.Errorf("events of a form (-delivered +returned):\n%s", diff)
	}

	for name, signature := range map[string]string{
		"another secret": sign("another secret", body),
		"another body":   sign(secret, append([]byte(" "), body...)),
		"no signature":   "",
		"SHA-1":          "sha1=" + sign(secret, body)[len("sha256="):],
	} {
		if output, err := call(body, "application/json", signature); hook.CodeOf(err) != hook.CodeThrew {
			t.Errorf("%s: got %s, %v; want %s", name, output, err, hook.CodeThrew)
		}
	}
}

func sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func firstDelivery(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../e2e/testdata/github-deliveries.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	lines.Scan()
	var delivery struct {
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(lines.Bytes(), &delivery); err != nil {
		t.Fatal(err)
	}
	return delivery.Payload
}

func decode(t *testing.T, text []byte) any {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return value
}

package e2e

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/e2e/rig"
)

type delivery struct {
	Event   string          `json:"event"`
	Payload json.RawMessage `json:"payload"`
}

// githubDeliveries reads the real payloads of testdata/github-deliveries.ndjson.
func githubDeliveries(t *testing.T) []delivery {
	t.Helper()
	file, err := os.Open("testdata/github-deliveries.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var list []delivery
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 4<<20)
	for scanner.Scan() {
		var d delivery
		if err := json.Unmarshal(scanner.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		list = append(list, d)
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

func githubSignature(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

const githubSecret = "It's a Secret to Everybody"

// “ingest parser (handleIngest) → store → dispatch → parseOutput → the run's
// trigger.event” (RFC amendment §Processing order), with real payloads and a
// signature that only the exact bytes satisfy.
func TestEveryGitHubDeliveryBecomesARunWithItsPayload(t *testing.T) {
	t.Parallel()
	deliveries := githubDeliveries(t)
	if len(deliveries) != 165 {
		t.Fatalf("%d deliveries, want 165", len(deliveries))
	}
	s := rig.Start(t, rig.Options{})
	id := s.Subscribe("io.tocsin.example.github", "delivery", "wf_github", map[string]any{"secret": githubSecret})

	events := make([]string, len(deliveries))
	var wg sync.WaitGroup
	next := make(chan int)
	for range 8 {
		wg.Go(func() {
			for i := range next {
				d := deliveries[i]
				answer := s.Post(id, d.Payload, "Content-Type", "application/json", "X-GitHub-Event", d.Event,
					"X-Hub-Signature-256", githubSignature(githubSecret, d.Payload))
				if answer.Status != http.StatusOK || len(answer.EventIDs) != 1 {
					t.Errorf("delivery %d (%s): %d %s", i, d.Event, answer.Status, answer.Body)
					continue
				}
				events[i] = answer.EventIDs[0]
			}
		})
	}
	for i := range deliveries {
		next <- i
	}
	close(next)
	wg.Wait()
	if t.Failed() {
		return
	}

	rig.Eventually(t, time.Minute, "every event is dispatched", func() bool { return s.Open() == 0 })
	for i, d := range deliveries {
		event := s.Event(events[i])
		run, _ := event["runId"].(string)
		if event["status"] != "dispatched" || run == "" {
			t.Fatalf("delivery %d: %v", i, event)
		}
		status, answer := s.API(http.MethodGet, "/runs/"+run, nil)
		if status != http.StatusOK {
			t.Fatalf("run %s: %d", run, status)
		}
		got, _ := answer["run"].(map[string]any)
		if diff := cmp.Diff(decode(t, d.Payload), got["event"]); diff != "" {
			t.Errorf("delivery %d (%s): the run's event differs (-sent +run):\n%s", i, d.Event, cut(diff))
		}
	}
	if n := s.Count("SELECT count(*) FROM runs WHERE workflow_id = 'wf_github'"); n != 165 {
		t.Errorf("%d runs, want 165", n)
	}
}

// A wrong signature throws in handleIngest: one failed row, 200, no run
// (amendment: “recorded as one failed row in trigger_events and the listener
// answers 200”).
func TestAWrongGitHubSignatureIsAFailedRowAndNoRun(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{})
	id := s.Subscribe("io.tocsin.example.github", "delivery", "wf_github", map[string]any{"secret": githubSecret})
	for name, signature := range map[string]string{
		"of other bytes": githubSignature(githubSecret, []byte(`{"a": 1}`)),
		"of another key": githubSignature("other", []byte(`{"a":1}`)),
		"malformed":      "sha256=zz",
	} {
		answer := s.Post(id, []byte(`{"a":1}`), "Content-Type", "application/json", "X-Hub-Signature-256", signature)
		if answer.Status != http.StatusOK {
			t.Errorf("%s: %d %s", name, answer.Status, answer.Body)
		}
	}
	_, answer := s.API(http.MethodGet, "/subscriptions/"+id+"/events", nil)
	events, _ := answer["events"].([]any)
	if len(events) != 3 {
		t.Fatalf("%d rows, want 3: %v", len(events), answer)
	}
	for _, e := range events {
		event, _ := e.(map[string]any)
		if event["status"] != "failed" || event["runId"] != nil {
			t.Errorf("row %v", event)
		}
		detail := s.Detail(event["id"].(string)) //nolint:errcheck,forcetypeassert // the API's own id
		text, _ := json.Marshal(detail)          //nolint:errchkjson // decoded a line above
		if bytes.Contains(text, []byte("sha256=")) || !strings.Contains(string(text), "[redacted]") {
			t.Errorf("the stored call shows its signature: %s", cut(string(text)))
		}
	}
	if n := s.Count("SELECT count(*) FROM runs"); n != 0 {
		t.Errorf("%d runs, want none", n)
	}
}

func decode(t *testing.T, text []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func cut(text string) string {
	if len(text) > 2000 {
		return text[:2000] + "…"
	}
	return text
}

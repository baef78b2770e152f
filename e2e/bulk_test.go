package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
	"github.com/tocsin-dev/tocsin/internal/engine/fakeengine"
)

// C21: “bulk requeue filtered to SUB-A, failed. While it runs, add one new
// failed event to A: exactly 130 runs [what fails later is left], B untouched,
// a countable result, safe to repeat, order within A kept.”
func TestABulkRequeueRunsWhatItsFilterSaysInOrder(t *testing.T) {
	t.Parallel()
	engine := rig.StartEngine(t)
	engine.Play(fakeengine.Script{Then: planError})
	s := rig.Start(t, rig.Options{Env: map[string]string{"ENGINE_URL": engine.URL}})
	a, b := s.Receiver("wf_a"), s.Receiver("wf_b")
	post := func(id string, n int) {
		t.Helper()
		if answer := s.Post(id, fmt.Appendf(nil, `{"n":%d}`, n), "Content-Type", "application/json"); answer.Status != http.StatusOK {
			t.Fatalf("post: %d %s", answer.Status, answer.Body)
		}
	}
	for n := range 130 {
		post(a, n)
	}
	for n := range 5 {
		post(b, n)
	}
	failed := func(want int) func() bool {
		return func() bool { return s.Count("SELECT count(*) FROM trigger_deliveries WHERE status = 'failed'") == want }
	}
	rig.Eventually(t, time.Minute, "135 events are dead letters", failed(135))

	status, answer := s.API(http.MethodPost, "/trigger-events/requeue", map[string]any{"subscriptionId": a})
	operation, _ := answer["operation"].(map[string]any)
	if status != http.StatusAccepted || fmt.Sprint(operation["total"]) != "130" {
		t.Fatalf("requeue of many: %d %v", status, answer)
	}
	rig.Eventually(t, time.Minute, "the operation is done, and all have failed again", func() bool {
		_, answer := s.API(http.MethodGet, fmt.Sprintf("/operations/%v", operation["id"]), nil)
		op, _ := answer["operation"].(map[string]any)
		return op["state"] == "done" && fmt.Sprint(op["requeued"]) == "130" && s.Open() == 0 && failed(135)()
	})

	// Once more by the operator's tool, with an engine that is well, and with a
	// new dead letter of A behind it.
	engine.Reset()
	engine.Play(fakeengine.Script{})
	out := s.CLI("requeue", "--subscription", a, "--error", "plan_error", "--wait")
	if !strings.Contains(out, "130 of 130") {
		t.Errorf("the operator reads: %s", out)
	}
	rig.Eventually(t, time.Minute, "what was requeued is dispatched", func() bool { return s.Open() == 0 })
	starts := engine.Starts()
	if len(starts) != 130 {
		t.Fatalf("%d runs, want 130", len(starts))
	}
	for n, start := range starts {
		var event struct{ N int }
		if err := json.Unmarshal(start.Event, &event); err != nil || event.N != n || start.Subscription != a {
			t.Fatalf("run %d is of event %s of %s: %v", n, start.Event, start.WorkflowID, err)
		}
	}
	rig.Eventually(t, time.Minute, "B's dead letters are untouched", failed(5))
	if out := s.CLI("requeue", "--subscription", a, "--wait"); !strings.Contains(out, "0 of 0") {
		t.Errorf("a third time the operator reads: %s", out)
	}
}

// What is over is forgotten while events come in and run.
func TestRetentionForgetsWhatIsOverWhileEventsRun(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{Env: map[string]string{
		"RETENTION_EVENTS": "2s", "RETENTION_RUNS": "2s", "RETENTION_DEAD_LETTERS": "1h", "RETENTION_INTERVAL": "1s",
	}})
	id := s.Receiver("wf")
	paused := s.Receiver("wf")
	if status, _ := s.API(http.MethodPatch, "/subscriptions/"+paused, map[string]any{"enabled": false}); status != http.StatusOK {
		t.Fatalf("pause: %d", status)
	}
	kept := s.Post(paused, []byte(`{"n":1}`), "Content-Type", "application/json").EventIDs[0]
	for n := range 300 {
		if answer := s.Post(id, fmt.Appendf(nil, `{"n":%d}`, n), "Content-Type", "application/json"); answer.Status != http.StatusOK {
			t.Fatalf("post: %d %s", answer.Status, answer.Body)
		}
	}
	rig.Eventually(t, 30*time.Second, "everything that is over is forgotten", func() bool {
		return s.Count("SELECT (SELECT count(*) FROM trigger_events) + (SELECT count(*) FROM trigger_deliveries) + (SELECT count(*) FROM runs)") == 1
	})
	if event := s.Event(kept); event["status"] != "received" {
		t.Errorf("what waits is %v, want received", event)
	}
	if status, _ := s.API(http.MethodPatch, "/subscriptions/"+paused, map[string]any{"enabled": true}); status != http.StatusOK {
		t.Fatalf("resume: %d", status)
	}
	rig.Eventually(t, 10*time.Second, "what waited has run", func() bool { return s.Open() == 0 })
}

// “backlog threshold alert” (RFC §Backpressure): a line when it is passed, a
// line when it is over, and a metric all the while.
func TestABacklogOverTheThresholdIsSaid(t *testing.T) {
	t.Parallel()
	engine := rig.StartEngine(t)
	engine.Play(fakeengine.Script{Then: fakeengine.Step{Do: fakeengine.DoHang}})
	s := rig.Start(t, rig.Options{Env: map[string]string{"ENGINE_URL": engine.URL, "BACKLOG_ALERT": "20", "ENGINE_TIMEOUT": "60s", "LEASE": "2s"}})
	id := s.Receiver("wf")
	for n := range 30 {
		s.Post(id, fmt.Appendf(nil, `{"n":%d}`, n), "Content-Type", "application/json")
	}
	d := s.Dispatchers[0]
	rig.Eventually(t, 30*time.Second, "the backlog is said", func() bool { return len(d.Logged("backlog.high")) == 1 })
	if due := metric(t, d.URL, "tocsin_backlog_due"); due != "29" && due != "30" {
		t.Errorf("tocsin_backlog_due %s, want 30", due)
	}
	s.Dispatchers[0].Kill()
	engine.Play(fakeengine.Script{})
	d = s.StartDispatcher(map[string]string{"BACKLOG_ALERT": "20"})
	rig.Eventually(t, 90*time.Second, "the backlog is gone", func() bool { return s.Open() == 0 })
	rig.Eventually(t, 30*time.Second, "the metric says so", func() bool { return metric(t, d.URL, "tocsin_backlog_due") == "0" })
}

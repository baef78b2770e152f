package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
	"github.com/tocsin-dev/tocsin/internal/engine/fakeengine"
)

// planError is what ends an event at its first attempt.
var planError = fakeengine.Step{Do: fakeengine.DoStatus, Status: 400, Code: "plan_error", Message: "no such node"}

// C20: “exactly one 2xx, nine 409; one more run; attempts restarted from 0; raw
// call and receipt time unchanged”.
func TestOfTenRequeuesAtOnceOneWins(t *testing.T) {
	t.Parallel()
	engine := rig.StartEngine(t)
	engine.Play(fakeengine.Script{Steps: []fakeengine.Step{planError}})
	s := rig.Start(t, rig.Options{Env: map[string]string{"ENGINE_URL": engine.URL}})
	id := s.Post(s.Receiver("wf"), []byte(`{"n": 1.0}`), "Content-Type", "application/json").EventIDs[0]
	s.WaitStatus(id, "failed", 20*time.Second)
	before := s.Detail(id)

	var mu sync.Mutex
	answers := map[int]int{}
	var people sync.WaitGroup
	for range 10 {
		people.Go(func() {
			status, _ := s.API(http.MethodPost, "/trigger-events/"+id+"/requeue", nil)
			mu.Lock()
			defer mu.Unlock()
			answers[status]++
		})
	}
	people.Wait()
	if answers[http.StatusOK] != 1 || answers[http.StatusConflict] != 9 {
		t.Errorf("answers %v, want one 200 and nine 409", answers)
	}
	event := s.WaitStatus(id, "dispatched", 20*time.Second)
	if fmt.Sprint(event["attempts"]) != "1" {
		t.Errorf("attempts %v, want 1", event["attempts"])
	}
	if starts := engine.Starts(); len(starts) != 2 {
		t.Errorf("%d starts, want two", len(starts))
	}
	after := s.Detail(id)
	for _, part := range []string{"call", "payload"} {
		if fmt.Sprint(before[part]) != fmt.Sprint(after[part]) {
			t.Errorf("%s changed:\n%v\n%v", part, before[part], after[part])
		}
	}
	if was := before["event"].(map[string]any)["receivedAt"]; event["receivedAt"] != was { //nolint:errcheck,forcetypeassert // the API's own shape
		t.Errorf("received at %v, was %v", event["receivedAt"], was)
	}
}

// C20: “Requeue of a dispatched, received or dispatching event: 409. Unknown id:
// 404. Subscription meanwhile deleted: 409 or 410, no run.”
func TestOnlyADeadLetterOfALiveSubscriptionCanBeRequeued(t *testing.T) {
	t.Parallel()
	engine := rig.StartEngine(t)
	s := rig.Start(t, rig.Options{Env: map[string]string{"ENGINE_URL": engine.URL}})
	post := func(subscription string) string {
		return s.Post(subscription, []byte(`{"n":1}`), "Content-Type", "application/json").EventIDs[0]
	}
	refused := func(what, id string, want int) {
		t.Helper()
		if status, _ := s.API(http.MethodPost, "/trigger-events/"+id+"/requeue", nil); status != want {
			t.Errorf("requeue of %s: %d, want %d", what, status, want)
		}
	}
	dispatched := post(s.Receiver("wf"))
	s.WaitStatus(dispatched, "dispatched", 20*time.Second)
	refused("a dispatched event", dispatched, http.StatusConflict)

	paused := s.Receiver("wf")
	if status, answer := s.API(http.MethodPatch, "/subscriptions/"+paused, map[string]any{"enabled": false}); status != http.StatusOK {
		t.Fatalf("pause: %d %v", status, answer)
	}
	received := post(paused)
	refused("a received event", received, http.StatusConflict)

	engine.Play(fakeengine.Script{Steps: []fakeengine.Step{planError, {Do: fakeengine.DoHang}}})
	doomed := s.Receiver("wf")
	failed := post(doomed)
	s.WaitStatus(failed, "failed", 20*time.Second)
	dispatching := post(s.Receiver("wf"))
	s.WaitStatus(dispatching, "dispatching", 20*time.Second)
	refused("a dispatching event", dispatching, http.StatusConflict)

	refused("an event nobody knows", "evt_nobody", http.StatusNotFound)
	if status, answer := s.API(http.MethodDelete, "/subscriptions/"+doomed, nil); status >= 300 {
		t.Fatalf("delete: %d %v", status, answer)
	}
	starts := len(engine.Starts())
	refused("a dead letter whose subscription is gone", failed, http.StatusConflict)
	if n := len(engine.Starts()); n != starts {
		t.Errorf("%d starts, want %d", n, starts)
	}
}

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
	"github.com/tocsin-dev/tocsin/internal/engine/fakeengine"
)

// C19: “run starts in order 1..53, never two in flight for this subscription;
// ties in receipt time keep insertion order. A second subscription with the
// same load runs in parallel, not after.”
func TestThreeDispatchersStartASubscriptionsEventsInOrder(t *testing.T) {
	t.Parallel()
	const singles, all = 50, 53
	engine := rig.StartEngine(t)
	engine.Play(fakeengine.Script{Then: fakeengine.Step{Do: fakeengine.DoOK, Jitter: fakeengine.Duration(200 * time.Millisecond)}})
	s := rig.Start(t, rig.Options{Dispatchers: 3, Apps: "testdata/apps", Env: map[string]string{"ENGINE_URL": engine.URL}})
	ids := []string{s.Subscribe("io.tocsin.e2e.fan", "fan", "wf", nil), s.Subscribe("io.tocsin.e2e.fan", "fan", "wf", nil)}
	var clients sync.WaitGroup
	for _, id := range ids {
		clients.Go(func() {
			for n := 1; n <= singles; n++ {
				if answer := s.Post(id, fmt.Appendf(nil, `{"n":%d}`, n), "Content-Type", "application/json"); answer.Status != http.StatusOK {
					t.Errorf("post %d: %d %s", n, answer.Status, answer.Body)
				}
			}
			answer := s.Post(id, fmt.Appendf(nil, `{"count":%d,"from":%d}`, all-singles, singles+1), "Content-Type", "application/json")
			if len(answer.EventIDs) != all-singles {
				t.Errorf("one call of three events: %d %s", answer.Status, answer.Body)
			}
		})
	}
	clients.Wait()
	rig.Eventually(t, time.Minute, "every event is dispatched", func() bool { return s.Open() == 0 })

	starts := engine.Starts()
	next := map[string]int{}
	first, last := map[string]time.Time{}, map[string]time.Time{}
	for _, start := range starts {
		var event struct{ N int }
		if err := json.Unmarshal(start.Event, &event); err != nil {
			t.Fatal(err)
		}
		next[start.Subscription]++
		if event.N != next[start.Subscription] {
			t.Fatalf("a start of %d where %d was next", event.N, next[start.Subscription])
		}
		if start.Overlaps > 0 {
			t.Errorf("%d was started while another of its subscription was", event.N)
		}
		if event.N == 1 {
			first[start.Subscription] = start.At
		}
		last[start.Subscription] = start.Ended
	}
	if len(starts) != 2*all {
		t.Errorf("%d starts, want %d", len(starts), 2*all)
	}
	if !first[ids[1]].Before(last[ids[0]]) || !first[ids[0]].Before(last[ids[1]]) {
		t.Error("one subscription waited for the other")
	}
}

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

// “for every persisted event with status: received | dispatching, the
// dispatcher eventually calls the subscriber (workflow start)” (RFC
// §Conformance), also when dispatchers die all the time.
func TestNothingIsLostWhileDispatchersAreKilled(t *testing.T) {
	t.Parallel()
	const total, subscriptions = 2000, 40
	// A subscription's 50 starts follow each other, so the load outlasts a few
	// kills on however fast a machine, and each kill meets starts under way.
	const perStart = 60 * time.Millisecond
	engine := rig.StartEngine(t)
	engine.Play(fakeengine.Script{Then: fakeengine.Step{Do: fakeengine.DoOK, Latency: fakeengine.Duration(perStart)}})
	s := rig.Start(t, rig.Options{Dispatchers: 2, Env: map[string]string{"ENGINE_URL": engine.URL, "LEASE": "2s"}})
	ids := make([]string, subscriptions)
	for i := range ids {
		ids[i] = s.Receiver("wf")
	}

	var events []string
	posted := make(chan struct{})
	go func() {
		defer close(posted)
		events = postAll(t, s, ids, total)
	}()
	kills := killUntilDone(t, s, posted)
	<-posted

	started := map[string]bool{}
	for _, start := range engine.Starts() {
		started[start.EventID] = true
	}
	for _, id := range events {
		if !started[id] {
			t.Errorf("%s never reached the engine", id)
		}
	}
	if n := s.Count("SELECT count(*) FROM trigger_deliveries WHERE status = 'dispatched'"); n != total {
		t.Errorf("%d dispatched, want %d", n, total)
	}
	if kills < 3 {
		t.Errorf("only %d kills: the test proved little", kills)
	}
	stats := engine.Stats()
	t.Logf("%d kills, %d events, %d starts, %d duplicate starts, overlaps %d", kills, total, stats.Starts, stats.Duplicates, stats.Overlaps)
}

// killUntilDone kills one of two dispatchers a second, in turn, and starts it
// again, until all that was posted is at its end.
func killUntilDone(t *testing.T, s *rig.System, posted <-chan struct{}) (kills int) {
	t.Helper()
	nextKill := time.Now().Add(time.Second)
	rig.Eventually(t, 4*time.Minute, "every event is at its end", func() bool {
		if time.Now().After(nextKill) {
			s.Dispatchers[len(s.Dispatchers)-2].Kill() // the older of the two that run
			s.StartDispatcher(nil)
			kills++
			nextKill = time.Now().Add(time.Second)
		}
		select {
		case <-posted:
			return s.Open() == 0
		default:
			return false
		}
	})
	return kills
}

// postAll posts events to the subscriptions in turn and gives the event ids.
func postAll(t *testing.T, s *rig.System, ids []string, total int) []string {
	t.Helper()
	events := make([]string, total)
	next := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range next {
				answer := s.Post(ids[i%len(ids)], fmt.Appendf(nil, `{"n":%d}`, i), "Content-Type", "application/json")
				if answer.Status != http.StatusOK || len(answer.EventIDs) != 1 {
					t.Errorf("post %d: %d %s", i, answer.Status, answer.Body)
					continue
				}
				events[i] = answer.EventIDs[0]
			}
		})
	}
	for i := range total {
		next <- i
	}
	close(next)
	wg.Wait()
	return events
}

// “Within one subscription: FIFO by receivedAt among events that are due.”
// “Multiple dispatchers running concurrently MUST NOT return the same event
// twice.” And in parallel across subscriptions.
func TestFourDispatchersKeepEachSubscriptionsOrder(t *testing.T) {
	t.Parallel()
	const subscriptions, each = 30, 40
	engine := rig.StartEngine(t)
	engine.Play(fakeengine.Script{Then: fakeengine.Step{
		Do: fakeengine.DoOK, Latency: fakeengine.Duration(2 * time.Millisecond), Jitter: fakeengine.Duration(8 * time.Millisecond),
	}})
	s := rig.Start(t, rig.Options{Dispatchers: 4, Env: map[string]string{"ENGINE_URL": engine.URL}})
	var wg sync.WaitGroup
	ids := make([]string, subscriptions)
	for i := range ids {
		ids[i] = s.Receiver("wf")
	}
	for _, id := range ids {
		wg.Go(func() { // one caller a subscription, so that the order of receipt is known
			for n := range each {
				if answer := s.Post(id, fmt.Appendf(nil, `{"n":%d}`, n), "Content-Type", "application/json"); answer.Status != http.StatusOK {
					t.Errorf("post: %d %s", answer.Status, answer.Body)
				}
			}
		})
	}
	wg.Wait()
	rig.Eventually(t, time.Minute, "every event is dispatched", func() bool { return s.Open() == 0 })

	starts := engine.Starts()
	if len(starts) != subscriptions*each {
		t.Errorf("%d starts, want %d", len(starts), subscriptions*each)
	}
	next := map[string]int{}
	for _, start := range starts {
		var event struct{ N int }
		if err := json.Unmarshal(start.Event, &event); err != nil {
			t.Fatal(err)
		}
		if event.N != next[start.Subscription] {
			t.Fatalf("a start of %d where %d was next", event.N, next[start.Subscription])
		}
		next[start.Subscription]++
		if start.Overlaps > 0 {
			t.Fatal("two events of one subscription were being started at once")
		}
	}
	if most := mostAtOnce(starts); most < 5 {
		t.Errorf("at most %d subscriptions were served at once: they wait for each other", most)
	}
}

// mostAtOnce counts the starts that were running together.
func mostAtOnce(starts []fakeengine.Start) (most int) {
	for _, a := range starts {
		n := 0
		for _, b := range starts {
			if !b.At.After(a.At) && b.Ended.After(a.At) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// “After the 5th failed attempt, the event moves to failed (dead-letter) …
// and can be manually requeued” (RFC §Retry backoff), through the CLI.
func TestADeadLetterIsRequeuedByTheOperator(t *testing.T) {
	t.Parallel()
	engine := rig.StartEngine(t)
	engine.Play(fakeengine.Script{Steps: []fakeengine.Step{{Do: fakeengine.DoStatus, Status: 400, Code: "plan_error", Message: "no such node"}}})
	s := rig.Start(t, rig.Options{Env: map[string]string{"ENGINE_URL": engine.URL}})
	id := s.Post(s.Receiver("wf"), []byte(`{"n":1}`), "Content-Type", "application/json").EventIDs[0]
	s.WaitStatus(id, "failed", 20*time.Second)
	if explain, _ := s.Detail(id)["explain"].(string); explain == "" {
		t.Error("nothing explains the dead letter")
	}
	s.CLI("requeue", id)
	event := s.WaitStatus(id, "dispatched", 20*time.Second)
	if fmt.Sprint(event["attempts"]) != "1" {
		t.Errorf("attempts %v after a requeue, want 1", event["attempts"])
	}
	starts := engine.Starts()
	if len(starts) != 2 || starts[0].EventID != starts[1].EventID {
		t.Errorf("starts %+v, want two with one event id", starts)
	}
}

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/rig"
	"github.com/tocsin-dev/tocsin/internal/engine/fakeengine"
)

// attemptsOf gives the outcomes of an event's attempts, in order.
func attemptsOf(detail map[string]any) []string {
	var outcomes []string
	list, _ := detail["attempts"].([]any)
	for _, a := range list {
		attempt, _ := a.(map[string]any)
		outcomes = append(outcomes, fmt.Sprint(attempt["outcome"]))
	}
	return outcomes
}

// C15: “kill -9 that dispatcher; start another … the event runs with no
// operator step; same event id; attempts shows both; exactly one row.” It runs
// once the lease is over and the lost attempt's wait (DESIGN §4.6) with it.
func TestADispatcherKilledAfterTheClaimLosesNothing(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]string{
		"before the engine answered":                    fakeengine.DoHang,
		"after the engine began and before it is noted": fakeengine.DoLate,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := rig.StartEngine(t)
			engine.Play(fakeengine.Script{Steps: []fakeengine.Step{{Do: hang}}})
			s := rig.Start(t, rig.Options{Env: map[string]string{"ENGINE_URL": engine.URL, "LEASE": "2s"}})
			id := s.Post(s.Receiver("wf"), []byte(`{"n":1}`), "Content-Type", "application/json").EventIDs[0]
			s.WaitStatus(id, "dispatching", 10*time.Second)
			rig.Eventually(t, 10*time.Second, "the engine was asked", func() bool { return len(engine.Starts()) == 1 })
			s.Dispatchers[0].Kill()
			killed := time.Now()
			s.StartDispatcher(nil)

			event := s.WaitStatus(id, "dispatched", 30*time.Second)
			if took := time.Since(killed); took < 5*time.Second || took > 15*time.Second {
				t.Errorf("dispatched %v after the kill, want a lease and the first wait (7 s)", took)
			}
			if outcomes := fmt.Sprint(attemptsOf(s.Detail(id))); fmt.Sprint(event["attempts"]) != "2" || outcomes != "[lost delivered]" {
				t.Errorf("attempts %v: %s, want two: lost, delivered", event["attempts"], outcomes)
			}
			if n := s.Count("SELECT count(*) FROM trigger_events"); n != 1 {
				t.Errorf("%d rows, want one", n)
			}
			starts := engine.Starts()
			if len(starts) != 2 || starts[0].EventID != id || starts[1].EventID != id {
				t.Errorf("starts %+v, want two of %s", starts, id)
			}
		})
	}
}

// C25 (a): “finishes, dispatched, exit 0”.
func TestADispatcherFinishesWhatItStartedBeforeItStops(t *testing.T) {
	t.Parallel()
	engine := rig.StartEngine(t)
	engine.Play(fakeengine.Script{Then: fakeengine.Step{Do: fakeengine.DoOK, Latency: fakeengine.Duration(3 * time.Second)}})
	s := rig.Start(t, rig.Options{Env: map[string]string{"ENGINE_URL": engine.URL, "SHUTDOWN_GRACE": "10s"}})
	id := s.Post(s.Receiver("wf"), []byte(`{"n":1}`), "Content-Type", "application/json").EventIDs[0]
	rig.Eventually(t, 10*time.Second, "the engine was asked", func() bool { return len(engine.Starts()) == 1 })
	if code := s.Dispatchers[0].Stop(15 * time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if event := s.Event(id); event["status"] != "dispatched" || fmt.Sprint(event["attempts"]) != "1" {
		t.Errorf("event %v, want dispatched at the first attempt", event)
	}
}

// C25 (b): “exit in grace, event goes back and runs elsewhere promptly, no
// attempt is charged for a shutdown”.
func TestAShutdownGivesBackWhatItCannotFinish(t *testing.T) {
	t.Parallel()
	engine := rig.StartEngine(t)
	engine.Play(fakeengine.Script{Steps: []fakeengine.Step{{Do: fakeengine.DoHang}}})
	s := rig.Start(t, rig.Options{Env: map[string]string{"ENGINE_URL": engine.URL, "SHUTDOWN_GRACE": "2s"}})
	id := s.Post(s.Receiver("wf"), []byte(`{"n":1}`), "Content-Type", "application/json").EventIDs[0]
	rig.Eventually(t, 10*time.Second, "the engine was asked", func() bool { return len(engine.Starts()) == 1 })
	s.StartDispatcher(nil) // another one is up
	began := time.Now()
	if code := s.Dispatchers[0].Stop(20 * time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the dispatcher took %v to stop, with a grace of 2 s", took)
	}
	event := s.WaitStatus(id, "dispatched", 10*time.Second)
	if outcomes := fmt.Sprint(attemptsOf(s.Detail(id))); fmt.Sprint(event["attempts"]) != "1" || outcomes != "[delivered]" {
		t.Errorf("attempts %v: %s, want the one that was delivered", event["attempts"], outcomes)
	}
	if wait := engine.Starts()[1].At.Sub(began); wait > 10*time.Second {
		t.Errorf("it ran elsewhere after %v", wait)
	}
}

// C25, ingest under load: “readiness turns off first, zero refused or
// half-written requests, every 200 has its row”. Clients keep to readiness, as
// a load balancer does; a second ingest takes over.
func TestIngestStopsWithoutRefusingACall(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{Dispatchers: -1, Env: map[string]string{"SHUTDOWN_GRACE": "10s"}})
	id := s.Receiver("wf")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var ready ready
	ready.set(true)
	var watching, clients sync.WaitGroup
	watching.Go(func() { ready.watch(ctx, s.APIURL) })
	var mu sync.Mutex
	answered := 0
	for range 8 {
		clients.Go(func() {
			for ready.is() {
				answer, err := rig.Send(t.Context(), http.MethodPost, s.Callback(id), []byte(`{"n":1}`), "Content-Type", "application/json")
				if err != nil || answer.Status != http.StatusOK || len(answer.EventIDs) != 1 {
					t.Errorf("a call while the service was ready: %d %v", answer.Status, err)
					return
				}
				mu.Lock()
				answered++
				mu.Unlock()
				rig.Pause(t.Context(), 50*time.Millisecond)
			}
		})
	}
	rig.Eventually(t, 30*time.Second, "the load is on", func() bool { mu.Lock(); defer mu.Unlock(); return answered > 200 })
	s.Ingest.Signal(syscall.SIGTERM)
	clients.Wait()
	stop()
	watching.Wait()
	rig.Eventually(t, 20*time.Second, "ingest has ended", s.Ingest.Exited)
	if code := s.Ingest.Stop(time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if n := s.Count("SELECT count(*) FROM trigger_events"); n != answered {
		t.Errorf("%d rows for %d calls that were answered", n, answered)
	}
}

// ready is what a load balancer knows of a service.
type ready struct {
	mu sync.Mutex
	on bool
}

func (r *ready) set(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = on
}

func (r *ready) is() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.on
}

// watch asks every 50 ms until the service says that it is not ready.
func (r *ready) watch(ctx context.Context, api string) {
	for ctx.Err() == nil {
		answer, err := rig.Send(ctx, http.MethodGet, api+"/readyz", nil)
		if err != nil || answer.Status != http.StatusOK {
			r.set(false)
			return
		}
		rig.Pause(ctx, 50*time.Millisecond)
	}
}

// C24: “attempts recorded with a cut, cleaned text; wait 5 s, 10 s, then
// dispatched”, of an engine that answers 503 with 5 MiB of 00 ff.
func TestAHugeDirtyErrorIsCutAndCleanedAndRetried(t *testing.T) {
	t.Parallel()
	engine := rig.StartEngine(t)
	engine.Play(fakeengine.Script{Steps: []fakeengine.Step{{Do: fakeengine.DoDirty, Times: 2}}})
	s := rig.Start(t, rig.Options{Env: map[string]string{"ENGINE_URL": engine.URL}})
	id := s.Post(s.Receiver("wf"), []byte(`{"n":1}`), "Content-Type", "application/json").EventIDs[0]
	event := s.WaitStatus(id, "dispatched", time.Minute)
	if fmt.Sprint(event["attempts"]) != "3" {
		t.Errorf("attempts %v, want 3", event["attempts"])
	}
	starts := engine.Starts()
	for i, wait := range []time.Duration{5 * time.Second, 10 * time.Second} {
		if got := starts[i+1].At.Sub(starts[i].Ended); got < wait || got > wait+5*time.Second {
			t.Errorf("attempt %d came %v after attempt %d, want %v", i+2, got, i+1, wait)
		}
	}
	if n := s.Count("SELECT count(*) FROM trigger_attempts WHERE error LIKE 'the engine answered 503%' AND length(error) < 4096 AND error !~ '[[:cntrl:]]'"); n != 2 {
		t.Errorf("%d attempts with a cut, cleaned text, want 2", n)
	}
}

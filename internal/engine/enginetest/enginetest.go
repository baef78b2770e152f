// Package enginetest is what every engine client is held to (DESIGN §8): which
// answers mean started, retryable, non-retryable, overloaded and unreachable,
// that a payload arrives as it is, and that the caller's context ends a call.
package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Behaviour is what the engine behind the client does from now on.
type Behaviour int

// Behaviours. Overloaded is skipped by an engine that has no such answer.
const (
	Works Behaviour = iota + 1
	FailsForNow
	Refuses // in a way that no retry mends
	IsOverloaded
	IsAway
	Hangs
	FailsWithDirt // with megabytes of bytes that are no text
)

func (b Behaviour) String() string {
	names := map[Behaviour]string{
		Works: "works", FailsForNow: "fails for now", Refuses: "refuses", IsOverloaded: "is overloaded", IsAway: "is away",
		Hangs: "hangs", FailsWithDirt: "fails with dirt",
	}
	return names[b]
}

// Subject is one engine client with the engine behind it.
type Subject struct {
	Engine engine.Engine
	// Behave changes the engine behind; false means it has no such behaviour.
	Behave func(b Behaviour) bool
	// Runs gives the payload of each run that was started, by event id.
	Runs func() map[string]json.RawMessage
}

// Request is a good request for one new event.
func Request(payload string) engine.StartRequest {
	return engine.StartRequest{
		EventID: ident.New(ident.Event), AttemptID: ident.New(ident.Attempt), Attempt: 1, SID: 7,
		Subscription: trigger.NewSubscriptionID(), Tenant: "default", WorkflowID: "wf_1", Event: json.RawMessage(payload), Parsed: true,
		ReceivedAt: time.Now(), Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

// Run holds the engine that setup makes to the suite.
func Run(t *testing.T, setup func(t *testing.T) Subject) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Subject){
		"a start gives a run":                     testStarted,
		"the same event is one run":               testIdempotent,
		"many starts at once are many runs":       testConcurrent,
		"payloads arrive as they are":             testPayloads,
		"answers are classified":                  testClassification,
		"error text can be stored":                testErrorText,
		"the context ends a call":                 testContext,
		"a workflow exists, and pings are heard":  testReads,
		"a batch gives each request its answer":   testBatch,
		"an engine that comes back is used again": testRecovery,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, setup(t))
		})
	}
}

func testStarted(t *testing.T, s Subject) {
	request := Request(`{"n":1}`)
	got := s.Engine.StartRun(t.Context(), request)
	if got.Kind != engine.Started || got.RunID == "" || got.Err != nil {
		t.Fatalf("got %+v, want a run", got)
	}
	if event := string(s.Runs()[request.EventID]); event != `{"n":1}` {
		t.Errorf("the run's event is %s", event)
	}
}

func testIdempotent(t *testing.T, s Subject) {
	request := Request(`{"n":1}`)
	first := s.Engine.StartRun(t.Context(), request)
	request.AttemptID, request.Attempt = ident.New(ident.Attempt), 2
	second := s.Engine.StartRun(t.Context(), request)
	if first.Kind != engine.Started || second.Kind != engine.Started || first.RunID != second.RunID || len(s.Runs()) != 1 {
		t.Errorf("first %+v, second %+v, %d runs; want one run", first, second, len(s.Runs()))
	}
}

func testConcurrent(t *testing.T, s Subject) {
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			if got := s.Engine.StartRun(t.Context(), Request(`{}`)); got.Kind != engine.Started {
				t.Errorf("got %+v", got)
			}
		})
	}
	wait.Wait()
	if n := len(s.Runs()); n != 50 {
		t.Errorf("%d runs, want 50", n)
	}
}

func testPayloads(t *testing.T, s Subject) {
	for _, payload := range []string{
		`{"text":"NUL \u0000, a lone surrogate \ud800, <html> & \u2028"}`,
		`{"big":12345678901234567890123456789,"exp":1E400,"frac":0.10000000000000000000001}`,
		`{"z":1,"a":2,"z":3}`,
		`{ "spaced" :  [ 1 , 2 ]` + "\n}",
		`{"eventId":"evt_other","subscriptionId":"sub_other","event":{"event":1}}`,
		`[1,"two",null]`, `"text"`, `0`, `false`, `null`, `{}`, `""`,
		`{"long":"` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		request := Request(payload)
		got := s.Engine.StartRun(t.Context(), request)
		if event := string(s.Runs()[request.EventID]); got.Kind != engine.Started || event != payload {
			t.Errorf("sent %.80s\n got %.80s (%+v)", payload, event, got)
		}
	}
}

func testClassification(t *testing.T, s Subject) {
	for behaviour, want := range map[Behaviour]engine.Kind{
		FailsForNow: engine.Retryable, Refuses: engine.NonRetryable, IsOverloaded: engine.Overloaded, IsAway: engine.Unreachable,
	} {
		if !s.Behave(behaviour) {
			continue
		}
		got := s.Engine.StartRun(t.Context(), Request(`{}`))
		if got.Kind != want || got.RunID != "" || got.Err == nil {
			t.Errorf("an engine that %s: got %+v, want kind %d with an error", behaviour, got, want)
			continue
		}
		if got.Err.Code == "" || got.Err.Message == "" || got.Err.Retryable == (want == engine.NonRetryable) {
			t.Errorf("an engine that %s: error %+v", behaviour, got.Err)
		}
		if behaviour == IsOverloaded && got.Wait != 2*time.Second {
			t.Errorf("overloaded for %s, want 2s", got.Wait)
		}
	}
}

func testErrorText(t *testing.T, s Subject) {
	if !s.Behave(FailsWithDirt) {
		t.Skip("this engine has no such answer")
	}
	got := s.Engine.StartRun(t.Context(), Request(`{}`))
	if got.Kind != engine.Retryable || got.Err == nil || got.Err.Message != engine.CleanText(got.Err.Message) {
		t.Errorf("got %+v, want a retryable error with clean text", got)
	}
}

func testContext(t *testing.T, s Subject) {
	if !s.Behave(Hangs) {
		t.Skip("this engine cannot hang")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	got := s.Engine.StartRun(ctx, Request(`{}`))
	if got.Kind != engine.Retryable || got.Err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("got %+v after %s; a slow engine may have started the run, so it is retryable", got, time.Since(began))
	}
}

func testReads(t *testing.T, s Subject) {
	if err := s.Engine.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
	if ok, err := s.Engine.WorkflowExists(t.Context(), "default", "wf_1"); !ok || err != nil {
		t.Errorf("WorkflowExists(wf_1): %t, %v", ok, err)
	}
	if ok, err := s.Engine.WorkflowExists(t.Context(), "default", "wf/none of these"); ok || err != nil {
		t.Errorf("WorkflowExists(unknown): %t, %v", ok, err)
	}
	if !s.Behave(IsAway) {
		return
	}
	if err := s.Engine.Ping(t.Context()); err == nil {
		t.Error("Ping of an engine that is away gives no error")
	}
}

func testBatch(t *testing.T, s Subject) {
	batch, ok := s.Engine.(engine.BatchStarter)
	if !ok {
		t.Skip("this engine starts one at a time")
	}
	requests := make([]engine.StartRequest, 50)
	for i := range requests {
		requests[i] = Request(fmt.Sprintf(`{"n":%d}`, i))
	}
	requests[7].WorkflowID = "wf/none of these"
	results := batch.StartRuns(t.Context(), requests)
	runs := s.Runs()
	for i, got := range results {
		want := engine.Started
		if i == 7 {
			want = engine.NonRetryable
		}
		_, ran := runs[requests[i].EventID]
		if got.Kind != want || ran != (want == engine.Started) {
			t.Errorf("request %d: got %+v, ran %t", i, got, ran)
		}
	}
	if len(results) != len(requests) || len(runs) != 49 {
		t.Errorf("%d results, %d runs", len(results), len(runs))
	}
}

func testRecovery(t *testing.T, s Subject) {
	request := Request(`{"n":1}`)
	for _, behaviour := range []Behaviour{IsAway, FailsForNow, Works} {
		s.Behave(behaviour)
		got := s.Engine.StartRun(t.Context(), request)
		if (got.Kind == engine.Started) != (behaviour == Works) {
			t.Errorf("an engine that %s: got %+v", behaviour, got)
		}
	}
	if len(s.Runs()) != 1 {
		t.Errorf("%d runs", len(s.Runs()))
	}
}

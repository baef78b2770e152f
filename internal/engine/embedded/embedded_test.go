package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/engine/embedded"
	"github.com/tocsin-dev/tocsin/internal/engine/enginetest"
	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// fakeRuns is a RunStore in memory.
type fakeRuns struct {
	mu    sync.Mutex
	runs  map[string]trigger.Run
	err   error
	hang  bool
	saves int
	bad   string // an event id that cannot be recorded
}

func (f *fakeRuns) SaveRuns(ctx context.Context, runs []trigger.Run) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saves++
	if f.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if f.err != nil {
		return f.err
	}
	for _, run := range runs {
		if run.EventID == f.bad {
			return errors.New("invalid byte sequence")
		}
	}
	for _, run := range runs {
		if _, there := f.runs[run.ID]; !there {
			f.runs[run.ID] = run
		}
	}
	return nil
}

func (f *fakeRuns) Ping(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func TestEmbeddedEngineIsAnEngine(t *testing.T) {
	t.Parallel()

	enginetest.Run(t, func(t *testing.T) enginetest.Subject {
		t.Helper()
		runs := &fakeRuns{runs: map[string]trigger.Run{}}
		e := &switched{Engine: embedded.New(runs, []string{"wf_1"}), refusing: embedded.New(runs, []string{"another"})}
		return enginetest.Subject{
			Engine: e,
			Behave: func(b enginetest.Behaviour) bool {
				runs.mu.Lock()
				defer runs.mu.Unlock()
				runs.err, runs.hang, e.refuse = nil, false, false
				switch b {
				case enginetest.Works:
				case enginetest.FailsForNow:
					runs.err = errors.New("permission denied for table runs")
				case enginetest.Refuses:
					e.refuse = true
				case enginetest.IsAway:
					runs.err = fmt.Errorf("save runs: %w", trigger.ErrUnavailable)
				case enginetest.Hangs:
					runs.hang = true
				case enginetest.IsOverloaded, enginetest.FailsWithDirt:
					return false
				}
				return true
			},
			Runs: func() map[string]json.RawMessage {
				runs.mu.Lock()
				defer runs.mu.Unlock()
				out := map[string]json.RawMessage{}
				for _, run := range runs.runs {
					out[run.EventID] = run.Event
				}
				return out
			},
		}
	})
}

// switched is an engine whose workflow can be taken away.
type switched struct {
	*embedded.Engine
	refusing *embedded.Engine
	refuse   bool
}

func (s *switched) StartRun(ctx context.Context, request engine.StartRequest) engine.StartResult {
	if s.refuse {
		return s.refusing.StartRun(ctx, request)
	}
	return s.Engine.StartRun(ctx, request)
}

func TestOneBadRunDoesNotKeepTheOthersFromStarting(t *testing.T) {
	t.Parallel()

	requests := []engine.StartRequest{enginetest.Request(`1`), enginetest.Request(`2`), enginetest.Request(`3`)}
	runs := &fakeRuns{runs: map[string]trigger.Run{}, bad: requests[1].EventID}
	got := embedded.New(runs, nil).StartRuns(t.Context(), requests)
	if got[0].Kind != engine.Started || got[1].Kind != engine.Retryable || got[2].Kind != engine.Started || len(runs.runs) != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestAPayloadThatTheLedgerHasIsNotStoredAgain(t *testing.T) {
	t.Parallel()

	runs := &fakeRuns{runs: map[string]trigger.Run{}}
	request := enginetest.Request(`{"a":1}`)
	request.Parsed = false
	if got := embedded.New(runs, nil).StartRun(t.Context(), request); got.RunID != ident.RunOfEvent(request.EventID) {
		t.Fatalf("%+v", got)
	}
	if run := runs.runs[ident.RunOfEvent(request.EventID)]; run.Event != nil || run.Trigger != "webhook" || run.AttemptID != request.AttemptID {
		t.Errorf("%+v", run)
	}
}

func TestTheLogSaysWhatHappenedAndNothingOfThePayload(t *testing.T) {
	t.Parallel()

	runs := &fakeRuns{runs: map[string]trigger.Run{}}
	request := enginetest.Request(`{"secret":"CANARY"}`)
	request.WorkflowID, request.Attempt = `wf "ü"`, 3
	embedded.New(runs, nil).StartRun(t.Context(), request)
	run := runs.runs[ident.RunOfEvent(request.EventID)]
	var log []map[string]any
	if err := json.Unmarshal(run.Log, &log); err != nil {
		t.Fatalf("%v\n%s", err, run.Log)
	}
	for i := range log {
		if _, ok := log[i]["timestamp"].(string); !ok {
			t.Errorf("event %d has no timestamp", i)
		}
		delete(log[i], "timestamp")
	}
	want := []map[string]any{
		{
			"eventId": run.ID + ".0", "runId": run.ID, "type": "run.started", "sequence": 0.0, "causationId": request.AttemptID,
			"payload": map[string]any{"workflowId": `wf "ü"`},
		},
		{
			"eventId": request.AttemptID, "runId": run.ID, "type": "trigger.delivery.attempted", "sequence": 1.0,
			"payload": map[string]any{
				"subscriptionId": request.Subscription.Reveal(), "dedupKey": request.EventID, "attempt": 3.0, "outcome": "delivered", "runId": run.ID,
			},
		},
		{"eventId": run.ID + ".2", "runId": run.ID, "type": "run.completed", "sequence": 2.0, "payload": map[string]any{}},
	}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// DESIGN §6: trigger.event.id is filled in only when the payload is an object
// without one.
func TestTheEventIDIsFilledInOnlyWhereThereIsNone(t *testing.T) {
	t.Parallel()

	spaced := ` { "b" : 1E400, "a":"\u0000" }`
	for payload, want := range map[string]string{
		`{"a":1}`:             `{"id":"evt_1","a":1}`,
		spaced:                ` {"id":"evt_1", "b" : 1E400, "a":"\u0000" }`,
		`{}`:                  `{"id":"evt_1"}`,
		`{"nested":{"id":1}}`: `{"id":"evt_1","nested":{"id":1}}`,
		`{"id":null}`:         `{"id":null}`,
		`{"\u0069d":7}`:       `{"\u0069d":7}`,
		`{"ID":7}`:            `{"id":"evt_1","ID":7}`,
		`[{"a":1}]`:           `[{"a":1}]`,
		`null`:                `null`,
		`"{}"`:                `"{}"`,
	} {
		if got := string(embedded.Event("evt_1", json.RawMessage(payload))); got != want {
			t.Errorf("%s: got %s, want %s", payload, got, want)
		}
	}
	if got := string(embedded.Scope("evt_1", json.RawMessage(`{}`))); got != `{"type":"webhook","event":{"id":"evt_1"}}` {
		t.Errorf("scope %s", got)
	}
}

func BenchmarkStartRuns(b *testing.B) {
	requests := make([]engine.StartRequest, 200)
	for i := range requests {
		requests[i] = enginetest.Request(`{}`)
		requests[i].Parsed = false
	}
	e := embedded.New(discard{}, nil)
	b.ReportAllocs()
	for b.Loop() {
		e.StartRuns(b.Context(), requests)
	}
}

type discard struct{}

func (discard) SaveRuns(context.Context, []trigger.Run) error { return nil }
func (discard) Ping(context.Context) error                    { return nil }

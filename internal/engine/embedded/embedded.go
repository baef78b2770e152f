// Package embedded is the engine that comes with Tocsin: a run is a record in
// the ledger, with its event log. It starts many at once.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// RunStore is what the engine needs of the ledger.
type RunStore interface {
	// SaveRuns records runs, all or none; one that is there already stays as it
	// is.
	SaveRuns(ctx context.Context, runs []trigger.Run) error
	// Ping says whether the ledger answers.
	Ping(ctx context.Context) error
}

// Codes of starts that failed.
const (
	CodeUnknownWorkflow = "unknown_workflow"
	CodeNotRecorded     = "run_not_recorded"
	CodeUnavailable     = "database_unavailable"
)

// StatusSucceeded is the status of every embedded run: recording it is all
// there is to do.
const StatusSucceeded = "succeeded"

// triggerWebhook is run.trigger of every event (RFC §Conformance); a run that no
// event started is manual.
const (
	triggerWebhook = "webhook"
	triggerManual  = "manual"
)

// Engine records runs. It is safe for concurrent use.
type Engine struct {
	runs  RunStore
	known map[string]bool // nil: any
	// Seams makes runs of engine.SeamWorkflow fail so that they may be tried again.
	Seams bool
	now   func() time.Time
}

// New makes an Engine that knows the given workflows; none means any.
func New(runs RunStore, workflows []string) *Engine {
	e := &Engine{runs: runs, now: time.Now}
	if len(workflows) > 0 {
		e.known = make(map[string]bool, len(workflows))
		for _, id := range workflows {
			e.known[id] = true
		}
	}
	return e
}

// StartRun records one run.
func (e *Engine) StartRun(ctx context.Context, request engine.StartRequest) engine.StartResult {
	return e.StartRuns(ctx, []engine.StartRequest{request})[0]
}

// StartRuns records many runs in one statement. A run that cannot be recorded
// does not keep the others from it.
func (e *Engine) StartRuns(ctx context.Context, requests []engine.StartRequest) []engine.StartResult {
	results := make([]engine.StartResult, len(requests))
	runs := make([]trigger.Run, 0, len(requests))
	at := make([]int, 0, len(requests)) // where in results a run's is
	now := e.now().UTC()
	for i := range requests {
		if e.Seams && requests[i].WorkflowID == engine.SeamWorkflow {
			results[i] = engine.StartResult{Kind: engine.Retryable, Err: failure("seam_unavailable", errSeam)}
			continue
		}
		if !e.knows(requests[i].WorkflowID) {
			results[i] = engine.StartResult{Kind: engine.NonRetryable, Err: &trigger.StepError{
				Code: CodeUnknownWorkflow, Message: fmt.Sprintf("the embedded engine knows no workflow %q", requests[i].WorkflowID), Phase: "execute",
			}}
			continue
		}
		runs, at = append(runs, run(&requests[i], now)), append(at, i)
	}
	if len(runs) == 0 {
		return results
	}
	err := e.runs.SaveRuns(ctx, runs)
	if err != nil && len(runs) > 1 && ctx.Err() == nil && !errors.Is(err, trigger.ErrUnavailable) {
		for i := range runs {
			results[at[i]] = result(&runs[i], e.runs.SaveRuns(ctx, runs[i:i+1]))
		}
		return results
	}
	for i := range runs {
		results[at[i]] = result(&runs[i], err)
	}
	return results
}

func (e *Engine) knows(workflowID string) bool {
	return e.known == nil || e.known[workflowID] || e.Seams && workflowID == engine.SeamWorkflow
}

var errSeam = errors.New("this workflow's runs do not start, for tests")

func result(run *trigger.Run, err error) engine.StartResult {
	switch {
	case err == nil:
		return engine.StartResult{Kind: engine.Started, RunID: run.ID}
	case errors.Is(err, trigger.ErrUnavailable):
		return engine.StartResult{Kind: engine.Unreachable, Err: failure(CodeUnavailable, err)}
	}
	return engine.StartResult{Kind: engine.Retryable, Err: failure(CodeNotRecorded, err)}
}

func failure(code string, err error) *trigger.StepError {
	return &trigger.StepError{Code: code, Message: engine.CleanText(err.Error()), Phase: "execute", Retryable: true}
}

// run is the record of a run. Its id follows from the event's, so that starting
// an event twice is one run. The event is kept with it only when it is not what
// the ledger has already.
func run(request *engine.StartRequest, now time.Time) trigger.Run {
	r := trigger.Run{
		ID: ident.RunOfEvent(request.EventID), Tenant: request.Tenant, WorkflowID: request.WorkflowID,
		EventID: request.EventID, SID: request.SID, Subscription: request.Subscription, AttemptID: request.AttemptID,
		Trigger: triggerWebhook, Status: StatusSucceeded, StartedAt: now, FinishedAt: &now,
	}
	if request.AttemptID == "" {
		r.EventID, r.Trigger = "", triggerManual
	}
	if request.Parsed {
		r.Event = request.Event
	}
	r.Log = runLog(request, r.ID, now)
	return r
}

// WorkflowExists says whether the workflow is one of the known ones.
func (e *Engine) WorkflowExists(_ context.Context, _, workflowID string) (bool, error) {
	return e.knows(workflowID), nil
}

// Ping asks the ledger.
func (e *Engine) Ping(ctx context.Context) error { return e.runs.Ping(ctx) }

// Close does nothing: the ledger is its owner's.
func (*Engine) Close() error { return nil }

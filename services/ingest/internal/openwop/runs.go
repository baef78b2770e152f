package openwop

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// statusOf says a run's status in OpenWOP's words.
func statusOf(r *trigger.Run) string {
	if r.Status == "succeeded" {
		return "completed"
	}
	return r.Status
}

func complete(r *trigger.Run) bool { return r.FinishedAt != nil }

// getRun shows a run (run-snapshot.schema.json).
func (s *Surface) getRun(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	run, err := s.run(r, who)
	if err != nil {
		return err
	}
	out := object{
		"runId": run.ID, "workflowId": run.WorkflowID, "status": statusOf(run), "owner": object{"tenant": run.Tenant},
		"startedAt": iso(run.StartedAt),
	}
	if run.FinishedAt != nil {
		out["completedAt"] = iso(*run.FinishedAt)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *Surface) run(r *http.Request, who *apikey.Principal) (*trigger.Run, error) {
	id := r.PathValue("id")
	if !plain(id) {
		return nil, notFound()
	}
	return s.Ledger.Run(r.Context(), who.Tenant, id)
}

// runEvent is what is looked at of a log's event; the rest stays as it is.
type runEvent struct {
	ID       string `json:"eventId"`
	Type     string `json:"type"`
	Sequence int64  `json:"sequence"`
	raw      json.RawMessage
}

// eventsAfter gives a run's events behind a sequence number.
func eventsAfter(run *trigger.Run, last int64) ([]runEvent, error) {
	var log []json.RawMessage
	if err := json.Unmarshal(run.Log, &log); err != nil {
		return nil, fmt.Errorf("read the log of %s: %w", run.ID, err)
	}
	events := make([]runEvent, 0, len(log))
	for _, raw := range log {
		event := runEvent{raw: raw}
		if err := json.Unmarshal(raw, &event); err != nil {
			return nil, fmt.Errorf("read the log of %s: %w", run.ID, err)
		}
		if event.Sequence > last {
			events = append(events, event)
		}
	}
	return events, nil
}

const (
	maxPoll     = 60 * time.Second
	defaultPoll = 30 * time.Second
	keepAlive   = 15 * time.Second
	growEvery   = 500 * time.Millisecond // between looks at a run that is under way
)

// pollRun gives a run's events, at once when there are any, else when there are
// or the time is up.
func (s *Surface) pollRun(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	last, err := number(r.URL.Query().Get("lastSequence"), -1)
	if err != nil {
		return invalid("lastSequence must be a whole number")
	}
	seconds, err := number(r.URL.Query().Get("timeout"), int64(defaultPoll/time.Second))
	if err != nil || seconds < 1 || seconds > int64(maxPoll/time.Second) {
		return invalid("timeout is in seconds, from 1 to 60")
	}
	deadline := time.Now().Add(time.Duration(seconds) * time.Second)
	for {
		run, err := s.run(r, who)
		if err != nil {
			return err
		}
		events, err := eventsAfter(run, last)
		if err != nil {
			return err
		}
		if len(events) == 0 && !complete(run) && time.Now().Before(deadline) && pause(r, growEvery) {
			continue
		}
		out := struct {
			Events     []json.RawMessage `json:"events"`
			IsComplete bool              `json:"isComplete"`
		}{make([]json.RawMessage, len(events)), complete(run)}
		for i := range events {
			out.Events[i] = events[i].raw
		}
		writeJSON(w, http.StatusOK, out)
		return nil
	}
}

func number(text string, absent int64) (int64, error) {
	if text == "" {
		return absent, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

// pause waits; false when the caller has gone.
func pause(r *http.Request, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-timer.C:
		return true
	}
}

// streamRun gives a run's events as they come, as Server-Sent Events whose ids
// are sequence numbers; Last-Event-ID takes up where a stream broke off.
func (s *Surface) streamRun(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	if mode := r.URL.Query().Get("streamMode"); mode != "" && mode != "updates" {
		return &problem{http.StatusBadRequest, "unsupported_stream_mode", "streamMode must be updates", nil}
	}
	last, err := number(r.Header.Get("Last-Event-ID"), -1)
	if err != nil {
		return invalid("Last-Event-ID must be one that this stream gave out")
	}
	run, err := s.run(r, who)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	// The status is out: what goes wrong from here on ends the stream, and the
	// client comes again with Last-Event-ID.
	if err := s.follow(w, r, who, run, last); err != nil {
		s.Log.Debug("openwop.stream_ended", obs.Run(run.ID), obs.Err(err))
	}
	return nil
}

// follow writes the events behind a sequence number until the run has ended or
// the client has gone.
func (s *Surface) follow(w http.ResponseWriter, r *http.Request, who *apikey.Principal, run *trigger.Run, last int64) error {
	flusher := http.NewResponseController(w)
	said := time.Now()
	for {
		events, err := eventsAfter(run, last)
		if err != nil {
			return err
		}
		for i := range events {
			last, said = events[i].Sequence, time.Now()
			_, _ = fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", last, events[i].Type, events[i].raw)
		}
		if time.Since(said) > keepAlive {
			said = time.Now()
			_, _ = fmt.Fprint(w, ": keep-alive\n\n")
		}
		if err := flusher.Flush(); err != nil {
			return err
		}
		if complete(run) || !pause(r, growEvery) {
			return nil
		}
		if run, err = s.run(r, who); err != nil {
			return err
		}
	}
}

// createRun starts a run by hand (POST /v1/runs).
func (s *Surface) createRun(w http.ResponseWriter, r *http.Request, who *apikey.Principal) error {
	if !s.Embedded {
		return &problem{http.StatusNotImplemented, "capability_not_provided", "runs are started at the engine itself", nil}
	}
	body, err := readObject(w, r, "workflowId", "inputs", "tenantId", "scopeId", "callbackUrl", "configurable", "tags", "metadata")
	if err != nil {
		return err
	}
	workflow, err := text(body, "workflowId", "")
	if err != nil || !plain(workflow) {
		return invalid("workflowId is required: at most 256 bytes, no control characters")
	}
	if tenant, err := text(body, "tenantId", who.Tenant); err != nil || tenant != who.Tenant {
		return &problem{http.StatusForbidden, "forbidden", "tenantId is not the key's", nil}
	}
	if _, ok := body["callbackUrl"]; ok {
		return invalid("callbackUrl is not supported")
	}
	inputs := body["inputs"]
	if inputs == nil {
		inputs = json.RawMessage("{}")
	}
	run, err := s.startRun(r.Context(), who.Tenant, workflow, inputs)
	if err != nil {
		return err
	}
	path := "/v1/runs/" + run.ID
	w.Header().Set("Location", path)
	writeJSON(w, http.StatusCreated, object{"runId": run.ID, "status": statusOf(run), "eventsUrl": path + "/events", "statusUrl": path})
	return nil
}

// runAttempts is how often a run that is asked for by hand is tried.
const runAttempts = 3

// SeamWorkflow is a workflow whose runs cannot start, on an engine that was told
// so for tests.
const SeamWorkflow = engine.SeamWorkflow

// startRun starts a run. One that cannot be started is kept with its input in
// the run sink, where it can be seen and started again (RFC 0053).
func (s *Surface) startRun(ctx context.Context, tenant, workflow string, inputs json.RawMessage) (*trigger.Run, error) {
	request := engine.StartRequest{EventID: ident.New(ident.Event), Tenant: tenant, WorkflowID: workflow, Event: inputs, Parsed: true}
	var result engine.StartResult
	for range runAttempts {
		switch result = s.Engine.StartRun(ctx, request); result.Kind {
		case engine.Started:
			return &trigger.Run{ID: result.RunID, Status: "completed"}, nil
		case engine.NonRetryable:
			if result.Err != nil && result.Err.Code == "unknown_workflow" {
				return nil, trigger.ErrUnknownWorkflow
			}
			return nil, fmt.Errorf("start a run: %w", result.Err)
		case engine.Overloaded, engine.Unreachable: // nothing can be kept of it either
			return nil, fmt.Errorf("start a run: %w: %w", trigger.ErrUnavailable, result.Err)
		case engine.Retryable:
		}
	}
	run := deadRun(request, result.Err)
	return run, s.Ledger.SaveRuns(ctx, []trigger.Run{*run})
}

// deadRun is the record of a run that never started: failed, dead-lettered, with
// its input.
func deadRun(request engine.StartRequest, failure *trigger.StepError) *trigger.Run {
	now := time.Now()
	run := &trigger.Run{
		ID: ident.RunOfEvent(request.EventID), Tenant: request.Tenant, WorkflowID: request.WorkflowID, Trigger: "manual", Status: "failed",
		Event: request.Event, StartedAt: now, FinishedAt: &now,
	}
	var log []object
	add := func(kind string, payload object) {
		log = append(log, object{
			"eventId": fmt.Sprintf("%s.%d", run.ID, len(log)), "runId": run.ID, "type": kind, "timestamp": iso(now), "sequence": len(log), "payload": payload,
		})
	}
	add("run.started", object{"workflowId": run.WorkflowID})
	add("run.failed", object{"error": object{"code": failure.Code, "message": "the engine did not start the run"}})
	add("run.dead_lettered", object{"runId": run.ID, "reason": failure.Code, "attempts": runAttempts})
	run.Log, _ = json.Marshal(log) //nolint:errchkjson // words and numbers
	return run
}

package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// startLane starts a lane's events one after the other. What has not begun when
// the shutdown does is given back.
func (d *Dispatcher) startLane(ctx context.Context, l *lane) {
	for i := range l.outcomes {
		if ctx.Err() != nil || l.ctx.Err() != nil {
			break
		}
		d.attempt(l, &l.outcomes[i]) //nolint:contextcheck // what was begun outlives ctx, for the grace period
	}
	d.finish(l)
}

// attempt makes one attempt at one event.
func (d *Dispatcher) attempt(l *lane, o *trigger.Outcome) {
	request, ok := d.prepare(l.ctx, o)
	if !ok {
		return
	}
	if !d.holds(l) {
		o.Unattempted = true
		return
	}
	call, cancel := context.WithTimeout(l.ctx, d.cfg.EngineTimeout)
	defer cancel()
	result := d.parts.Engine.StartRun(call, request)
	d.conclude(l.ctx, o, result)
}

// holds says whether the lane's lease can still be running. A process that was
// stopped for a while, or whose database was, must not start what another may
// be starting.
func (d *Dispatcher) holds(l *lane) bool { return d.flight.age(l) < d.cfg.Lease }

// startTogether starts the events of many lanes in one call, in order.
func (d *Dispatcher) startTogether(ctx context.Context, list []*lane) {
	var (
		requests []engine.StartRequest
		outcomes []*trigger.Outcome
	)
	for _, l := range list {
		if !d.holds(l) {
			continue
		}
		for i := range l.outcomes {
			if request, ok := d.prepare(ctx, &l.outcomes[i]); ok {
				requests, outcomes = append(requests, request), append(outcomes, &l.outcomes[i])
			}
		}
	}
	if len(requests) > 0 {
		call, cancel := context.WithTimeout(ctx, d.cfg.EngineTimeout)
		results := d.batch.StartRuns(call, requests)
		cancel()
		for i, result := range results {
			d.conclude(ctx, outcomes[i], result)
		}
	}
	d.finish(list...)
}

// prepare makes the request for an event: its attempt's id, which is the run's
// causation id, and its payload. false means that the attempt is over.
func (d *Dispatcher) prepare(ctx context.Context, o *trigger.Outcome) (engine.StartRequest, bool) {
	event := o.Event
	o.AttemptID, o.Started, o.Unattempted = ident.New(ident.Attempt), time.Now(), false
	event.AttemptID = o.AttemptID
	payload, parsed, failure := d.parts.Parser.ParseOutput(ctx, event)
	if failure != nil {
		d.fail(ctx, o, *failure)
		return engine.StartRequest{}, false
	}
	return engine.StartRequest{
		EventID: event.ID, AttemptID: o.AttemptID, Attempt: event.Attempts + 1, DedupKey: event.DedupKey, Subscription: event.Subscription, SID: event.SID,
		Tenant: event.Tenant, WorkflowID: event.WorkflowID, Event: payload, Parsed: parsed,
		ReceivedAt: event.ReceivedAt, Trace: event.Trace,
	}, true
}

// conclude turns the engine's answer into the attempt's outcome.
func (d *Dispatcher) conclude(ctx context.Context, o *trigger.Outcome, result engine.StartResult) {
	if result.Kind == engine.Started {
		o.RunID, o.Duration = result.RunID, time.Since(o.Started)
		d.gate.answered()
		return
	}
	failure := trigger.StepError{Code: "engine_error", Message: "the engine gave no reason", Phase: "execute"}
	if result.Err != nil {
		failure = *result.Err
	}
	failure.Retryable = result.Kind != engine.NonRetryable // an answer of no known kind counts as transient
	if d.fail(ctx, o, failure); o.Unattempted {
		return // it was this side that broke the call off
	}
	switch result.Kind {
	case engine.Unreachable:
		d.gate.unreachable(o.Err)
	case engine.Overloaded:
		d.gate.answered()
		d.gate.overloaded(result.Wait, o.Err)
	case engine.Started, engine.Retryable, engine.NonRetryable:
		d.gate.answered()
	}
}

// fail ends an attempt. One that was broken off by this side is none: it is not
// charged.
func (d *Dispatcher) fail(ctx context.Context, o *trigger.Outcome, failure trigger.StepError) {
	if cause := context.Cause(ctx); errors.Is(cause, errShutdown) || errors.Is(cause, errLeaseLost) {
		o.Unattempted = true
		return
	}
	o.Duration = time.Since(o.Started)
	failure.Code, failure.Message = engine.CleanText(failure.Code), engine.CleanText(failure.Message)
	o.Err = &failure
}

// finish hands lanes to the settler and frees their slots.
func (d *Dispatcher) finish(list ...*lane) {
	for _, l := range list {
		d.flight.started(l)
	}
	d.gate.landed()
	d.settler.add(list)
	if d.hungry.Load() {
		d.kick() // else the settle's kick is soon enough
	}
}

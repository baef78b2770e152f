package dispatch

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Outcomes of the attempts metric beside those of package trigger.
const (
	outcomeUnattempted = "unattempted"
	outcomeLeaseLost   = "lease-lost"
)

// report writes the one line of an attempt, once it is recorded.
func (d *Dispatcher) report(o *trigger.Outcome, lost bool) {
	wait, again := o.Event.RetryAfter(o.Event.Attempts + 1)
	switch {
	case lost && o.AttemptID == "":
		// Nothing was tried and nothing changed.
	case lost:
		d.count(outcomeLeaseLost, o)
		d.log.Warn("event.lease_lost", append(fields(o), obs.Run(o.RunID))...)
	case o.Unattempted:
		d.count(outcomeUnattempted, o)
		d.log.Info("event.given_back", append(fields(o), obs.Status(trigger.StatusReceived))...)
	case o.Err == nil:
		d.count(trigger.AttemptDelivered, o)
		if line := d.log.Check(zap.InfoLevel, "event.dispatched"); line != nil {
			line.Write(append(fields(o), obs.Status(trigger.StatusDispatched), obs.Run(o.RunID))...)
		}
	case again && o.Err.Retryable:
		d.clock.retryIn(wait)
		d.count(trigger.AttemptRetrying, o)
		d.log.Warn("event.retry", append(fields(o), obs.Status(trigger.StatusReceived), zap.Int64("wait_ms", wait.Milliseconds()))...)
	default:
		d.count(trigger.AttemptDeadLettered, o)
		d.metrics.deadLetters.Inc()
		d.log.Error("event.failed", append(fields(o), obs.Status(trigger.StatusFailed))...)
	}
}

func (d *Dispatcher) count(outcome string, o *trigger.Outcome) {
	d.metrics.attempts.WithLabelValues(outcome).Inc()
	if !o.Unattempted {
		d.metrics.startTime.Observe(o.Duration.Seconds())
	}
}

// fields is what every line about an attempt has (DESIGN §9).
func fields(o *trigger.Outcome) []zap.Field {
	event := o.Event
	list := make([]zap.Field, 0, 16)
	list = append(list, obs.Event(event.ID), obs.Subscription(event.Subscription), obs.Tenant(event.Tenant), obs.App(event.AppID),
		obs.Trigger(event.TriggerKey), obs.Workflow(event.WorkflowID), obs.Attempt(event.Attempts+1), obs.Duration(o.Duration),
		obs.Trace(event.Trace))
	if o.AttemptID != "" {
		list = append(list, zap.String("attempt_id", o.AttemptID))
	}
	if o.Err != nil {
		list = append(list, obs.ErrorCode(o.Err.Code), zap.String(obs.KeyError, o.Err.Message))
	}
	return list
}

// outage keeps what the log says of a database that is away to one line at its
// start, one a while, and one at its end; and says how long to wait.
type outage struct {
	log *zap.Logger

	mu     sync.Mutex
	since  time.Time // zero: there is none
	said   time.Time
	errors int
	wait   time.Duration
}

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 3 * time.Second
	reminder     = 30 * time.Second
)

// note takes one more error and gives the time to wait before the next try.
func (o *outage) note(err error) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.errors++
	o.wait = min(max(2*o.wait, firstBackoff), lastBackoff)
	if o.since.IsZero() {
		o.since = now
	}
	if now.Sub(o.said) >= reminder {
		o.said = now
		o.log.Warn("dispatch.database_unavailable", obs.Err(err), zap.Int("errors", o.errors), obs.Duration(now.Sub(o.since)))
	}
	return jitter(o.wait)
}

// over notes that the database answers.
func (o *outage) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return
	}
	o.log.Info("dispatch.database_available", zap.Int("errors", o.errors), obs.Duration(time.Since(o.since)))
	o.since, o.said, o.errors, o.wait = time.Time{}, time.Time{}, 0, 0
}

// ended says that there is no outage now.
func (o *outage) ended() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since.IsZero()
}

// measure keeps the backlog's metrics, and says when it passes the threshold
// (RFC §Backpressure).
func (d *Dispatcher) measure(ctx context.Context) {
	high := false
	for {
		pause(ctx, jitter(measureEvery))
		if ctx.Err() != nil {
			return
		}
		query, cancel := context.WithTimeout(ctx, queryTimeout)
		due, oldest, err := d.parts.Ledger.Backlog(query)
		cancel()
		if err != nil {
			continue // whoever needs the database more says so
		}
		d.metrics.backlog.Set(float64(due))
		d.metrics.oldest.Set(oldest.Seconds())
		if was := high; was != (due >= d.cfg.BacklogAlert) {
			high = !was
			d.sayBacklog(high, due, oldest)
		}
	}
}

const measureEvery = 10 * time.Second

func (d *Dispatcher) sayBacklog(high bool, due int64, oldest time.Duration) {
	if high {
		d.log.Warn("backlog.high", zap.Int64("due", due), zap.Float64("oldest_ms", float64(oldest.Milliseconds())), zap.Int64("threshold", d.cfg.BacklogAlert))
		return
	}
	d.log.Info("backlog.normal", zap.Int64("due", due), zap.Int64("threshold", d.cfg.BacklogAlert))
}

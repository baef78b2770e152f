package dispatch

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

const (
	// linger is how long a claimer that has few free slots waits for more: on a
	// deep backlog a claim of one event costs as much as a claim of twenty.
	linger = 2 * time.Millisecond
	// secondLook is when to look again after a claim that found less than it
	// asked for, unless something was settled sooner: such a claim has not
	// walked all subscriptions.
	secondLook = 25 * time.Millisecond
	// maxClaimBytes is what the payloads of one claim should stay under.
	maxClaimBytes = 32 << 20
)

// clock keeps the times at which the loop wants to look. Only retryIn is
// called from elsewhere.
type clock struct {
	look   time.Time // the timer's next look
	second time.Time // zero: none

	mu    sync.Mutex
	retry time.Time // when an event that this dispatcher put back is due; zero: none
}

// retryIn notes that an event will be due.
func (c *clock) retryIn(wait time.Duration) {
	// The event is due by the database's clock, a little after this one's.
	at := time.Now().Add(wait + 5*time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retry.IsZero() || at.Before(c.retry) {
		c.retry = at
	}
}

// next gives how long to sleep.
func (c *clock) next(now time.Time) time.Duration {
	at := c.look
	if !c.second.IsZero() && c.second.Before(at) {
		at = c.second
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.retry.IsZero() && c.retry.Before(at) {
		at = c.retry
	}
	return max(0, at.Sub(now))
}

// looked forgets what a look at now has answered, and sets the next.
func (c *clock) looked(now time.Time, next time.Duration) {
	c.look, c.second = now.Add(next), time.Time{}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.retry.After(now) {
		c.retry = time.Time{}
	}
}

// loop looks for due events until ctx ends: at the bell, when something has
// become free, and by the timer. Only the timer's look is a question apart; at
// the others claiming is the question.
func (d *Dispatcher) loop(ctx, work context.Context) {
	timer := time.NewTimer(0) // the first look is at once: there may be a backlog
	defer timer.Stop()
	for {
		claim := true
		select {
		case <-ctx.Done():
			return
		case <-d.parts.Wake:
		case <-d.again:
			claim = d.outage.ended() // the bell and the timer will tell
		case <-timer.C:
			claim = d.look(work)
		}
		if claim {
			d.drain(ctx, work)
		}
		timer.Reset(d.sleep())
	}
}

// sleep is how long the loop may do nothing by itself.
func (d *Dispatcher) sleep() time.Duration {
	sleep := d.clock.next(time.Now())
	if paused := d.gate.pausedFor(); paused > 0 {
		sleep = min(sleep, paused)
	}
	return sleep
}

// look is the timer's look: one cheap question. It says whether to claim.
func (d *Dispatcher) look(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	peek, err := d.parts.Ledger.Peek(ctx)
	if err == nil && peek.Expired {
		err = d.reap(ctx)
	}
	now := time.Now()
	if err != nil {
		d.clock.looked(now, d.outage.note(err))
		return false
	}
	d.outage.over()
	next := jitter(d.cfg.Fallback)
	if peek.Expired {
		next = min(next, time.Second) // what was taken over may be due sooner than this dispatcher knows
	}
	if peek.Next > 0 {
		next = min(next, peek.Next+time.Millisecond) // Next is cut to milliseconds
	}
	d.clock.looked(now, next)
	return peek.Due || peek.Expired
}

// reap takes over what dispatchers that are gone had claimed.
func (d *Dispatcher) reap(ctx context.Context) error {
	for {
		lost, err := d.parts.Ledger.ReapExpired(ctx)
		if err != nil || len(lost) == 0 { // it gives some at a time
			return err
		}
		for i := range lost {
			d.metrics.attempts.WithLabelValues(trigger.AttemptLost).Inc()
			d.clock.retryIn(trigger.RetryWait(lost[i].Attempt)) // or sooner: it counts from the lease's end
			d.log.Warn("event.lost", obs.Event(lost[i].EventID), obs.Attempt(lost[i].Attempt), obs.ErrorCode("lease_lost"),
				zap.String("owner", lost[i].Owner))
		}
	}
}

// drain claims and starts until nothing more is due or there is no room.
func (d *Dispatcher) drain(ctx, work context.Context) {
	for ctx.Err() == nil {
		limit := d.room()
		if limit == 0 {
			d.hungry.Store(true)
			return // whatever makes room kicks
		}
		if d.hungry.Load() && limit < d.flight.total/4 {
			pause(ctx, linger)
			if limit = d.room(); limit == 0 {
				return
			}
		}
		asked := time.Now()
		events, err := d.claim(work, limit)
		if err != nil {
			d.clock.looked(time.Now(), d.outage.note(err))
			return
		}
		d.outage.over()
		d.launch(ctx, work, events, asked)
		if len(events) >= limit {
			d.hungry.Store(true)
			continue
		}
		d.hungry.Store(false)
		d.clock.second = time.Time{}
		if len(events) > 0 {
			d.clock.second = time.Now().Add(secondLook)
		}
		return
	}
}

// room is how many events may be claimed now.
func (d *Dispatcher) room() int {
	limit := d.flight.room()
	if d.batch != nil {
		limit = min(limit, d.cfg.Batch)
	}
	if d.settler.full() {
		return 0
	}
	return min(limit, d.gate.allow())
}

// claim asks for due events. It is not cut short by a shutdown: a claim that
// was made and not seen would keep its events until the lease ends.
func (d *Dispatcher) claim(ctx context.Context, limit int) ([]*trigger.PendingEvent, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	request := trigger.ClaimRequest{Owner: d.cfg.Owner, Limit: limit, Lease: d.cfg.Lease}
	if d.batch != nil {
		request.PerSubscription = limit
		if d.parts.Serial != nil {
			request.Serial = d.parts.Serial()
		}
	}
	return d.parts.Queue.DrainPending(ctx, request)
}

// launch starts what was claimed.
func (d *Dispatcher) launch(ctx, work context.Context, events []*trigger.PendingEvent, asked time.Time) {
	if len(events) == 0 {
		return
	}
	d.gate.launched()
	var together []*lane
	for _, l := range lanes(work, events, asked) {
		d.flight.add(l)
		d.observe(l)
		switch {
		case ctx.Err() != nil: // the claim came back after the shutdown began
			d.finish(l)
		case d.batch != nil && !d.parts.Parser.HasParseOutput(l.events[0]):
			together = append(together, l)
		default:
			d.starts.Go(func() { d.startLane(ctx, l) })
		}
	}
	if len(together) > 0 {
		d.starts.Go(func() { d.startTogether(work, together) })
	}
}

func (d *Dispatcher) observe(l *lane) {
	size := 0
	for _, event := range l.events {
		size += len(event.Normalized)
		if event.Attempts == 0 {
			d.metrics.wakeLatency.Observe(event.Age.Seconds())
		}
	}
	d.flight.sized(len(l.events), size)
}

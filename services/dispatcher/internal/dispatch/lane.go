package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// lane is one claim: events of one subscription, in order, settled together.
type lane struct {
	claim  trigger.Claim
	events []*trigger.PendingEvent
	ctx    context.Context //nolint:containedctx // a lost lease ends the lane's start, and no other's
	cancel context.CancelCauseFunc
	// outcomes belongs to the lane's starter until the settler has it. An
	// event that has none yet was not attempted.
	outcomes []trigger.Outcome

	leased time.Time // when the lease was last known to begin; flight.mu
	busy   int       // slots held; flight.mu
}

// lanes groups a claim's events by subscription and keeps their order. The
// lease began at asked, or a little later.
func lanes(ctx context.Context, events []*trigger.PendingEvent, asked time.Time) []*lane {
	var list []*lane
	bySID := make(map[int64]*lane, len(events))
	for _, event := range events {
		l := bySID[event.SID]
		if l == nil {
			l = newLane(ctx, event.Claim, asked)
			bySID[event.SID] = l
			list = append(list, l)
		}
		l.events = append(l.events, event)
		l.outcomes = append(l.outcomes, trigger.Outcome{Event: event, Unattempted: true})
	}
	return list
}

func newLane(ctx context.Context, claim trigger.Claim, leased time.Time) *lane {
	l := &lane{claim: claim, leased: leased}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l
}

// flight is what was claimed and is not settled, and the slots that starts take.
type flight struct {
	total int
	gauge prometheus.Gauge

	mu    sync.Mutex
	free  int
	lanes map[trigger.Claim]*lane
	size  float64 // of a payload, a moving average
}

func newFlight(slots int, gauge prometheus.Gauge) *flight {
	return &flight{total: slots, free: slots, gauge: gauge, lanes: make(map[trigger.Claim]*lane)}
}

// room is how many events fit in, by number and by bytes.
func (f *flight) room() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	room := max(f.free, 0)
	if f.size > 0 {
		room = min(room, max(1, int(maxClaimBytes/f.size)))
	}
	return room
}

// sized takes note of payloads' sizes: up at once, down slowly.
func (f *flight) sized(events, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	mean := float64(bytes) / float64(events)
	f.size = max(mean, f.size+(mean-f.size)/16)
}

func (f *flight) add(l *lane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l.busy = len(l.events)
	f.free -= l.busy
	f.lanes[l.claim] = l
	f.gauge.Add(float64(l.busy))
}

// started frees the lane's slots; its claim is still held.
func (f *flight) started(l *lane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free += l.busy
	f.gauge.Sub(float64(l.busy))
	l.busy = 0
}

// settled forgets the lane.
func (f *flight) settled(l *lane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.lanes, l.claim)
}

// held gives the lanes whose lease began before the given time.
func (f *flight) held(before time.Time) []*lane {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*lane
	for _, l := range f.lanes {
		if l.leased.Before(before) {
			list = append(list, l)
		}
	}
	return list
}

// renewed notes that the lanes' leases began anew at the given time.
func (f *flight) renewed(list []*lane, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range list {
		l.leased = at
	}
}

// age is how long ago the lane's lease began.
func (f *flight) age(l *lane) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(l.leased)
}

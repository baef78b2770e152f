package dispatch

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

const (
	// breakAfter is fewer than an event has attempts, so that the breaker opens
	// before a lone event has used up its own.
	breakAfter  = 3
	firstProbe  = time.Second
	lastProbe   = 30 * time.Second
	pingTimeout = 5 * time.Second

	defaultPause = 5 * time.Second // for an overloaded engine that names no time
	maxPause     = 5 * time.Minute
)

// gate says how much may be claimed for the engine: nothing while it is away
// or has asked for a pause, one event while it is being tried again, else as
// much as there is room for.
type gate struct {
	log    *zap.Logger
	up     prometheus.Gauge
	opened chan struct{} // cap 1: the probe is to start

	mu      sync.Mutex
	missed  int       // starts in a row that reached no engine
	since   time.Time // of the first of them
	away    bool      // the breaker is open
	trial   bool      // the engine answers a ping; a start has to show the rest
	trying  bool      // the trial's start is under way
	relapse bool      // the breaker opened on a trial
	until   time.Time // of the pause
}

func newGate(log *zap.Logger, up prometheus.Gauge) *gate {
	up.Set(1)
	return &gate{log: log, up: up, opened: make(chan struct{}, 1)}
}

// allow gives the most events that may be claimed now.
func (g *gate) allow() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.away, g.trying, time.Now().Before(g.until):
		return 0
	case g.trial:
		return 1
	}
	return math.MaxInt
}

// pausedFor says how long the engine's pause still lasts.
func (g *gate) pausedFor() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(0, time.Until(g.until))
}

// answered notes that an engine is there.
func (g *gate) answered() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away {
		g.sayReachable()
	}
	g.missed, g.away, g.trial, g.trying = 0, false, false, false
}

// unreachable notes a start that reached no engine.
func (g *gate) unreachable(failure *trigger.StepError) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.missed == 0 {
		g.since = time.Now()
	}
	g.missed++
	if g.away || (g.missed < breakAfter && !g.trial) {
		return
	}
	g.away, g.relapse, g.trial, g.trying = true, g.trial, false, false
	g.up.Set(0)
	g.log.Warn("engine.unreachable", zap.Time("since", g.since), zap.Int("attempts", g.missed),
		obs.ErrorCode(failure.Code), zap.String(obs.KeyError, failure.Message))
	select {
	case g.opened <- struct{}{}:
	default:
	}
}

// reachable notes that the engine answers a ping.
func (g *gate) reachable() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.away {
		return
	}
	g.away, g.trial = false, true
	g.sayReachable()
}

func (g *gate) sayReachable() {
	g.up.Set(1)
	g.log.Info("engine.reachable", zap.Int("attempts", g.missed), obs.Duration(time.Since(g.since)))
}

// overloaded stops claims for the time the engine asks.
func (g *gate) overloaded(wait time.Duration, failure *trigger.StepError) {
	if wait <= 0 {
		wait = defaultPause
	}
	wait = min(wait, maxPause)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if now.After(g.until) {
		g.log.Warn("engine.overloaded", zap.Float64("wait_ms", float64(wait.Milliseconds())), obs.ErrorCode(failure.Code))
	}
	if until := now.Add(wait); until.After(g.until) {
		g.until = until
	}
}

func (g *gate) isAway() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.away
}

func (g *gate) relapsed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.relapse
}

// launched notes that something was claimed: during a trial that is all.
func (g *gate) launched() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trying = g.trial
}

// landed notes that a start has ended, with or without an answer.
func (g *gate) landed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trying = false
}

// probe pings an engine that is away until it is back.
func (d *Dispatcher) probe(ctx context.Context) {
	wait := firstProbe
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.gate.opened:
		}
		if !d.gate.relapsed() {
			wait = firstProbe
		}
		for d.gate.isAway() {
			pause(ctx, wait/2+rand.N(wait))
			if ctx.Err() != nil {
				return
			}
			wait = min(2*wait, lastProbe)
			if d.ping(ctx) == nil {
				d.gate.reachable()
				d.kick()
			}
		}
	}
}

func (d *Dispatcher) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return d.parts.Engine.Ping(ctx)
}

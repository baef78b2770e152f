// Package dispatch moves claimed events into the workflow engine: wake, claim,
// parseOutput, start, settle. The bell only makes it look sooner; every event
// it misses is found by the timer. It knows nothing of SQL, HTTP or hooks.
package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Queue is the part of the TriggerManager that the dispatcher calls (RFC
// §Dispatch).
type Queue interface {
	DrainPending(ctx context.Context, request trigger.ClaimRequest) ([]*trigger.PendingEvent, error)
	MarkDispatched(ctx context.Context, outcomes ...trigger.Outcome) (lost []*trigger.PendingEvent, err error)
}

// Parser gives the payload that a run is to see (RFC amendment §Processing
// order).
type Parser interface {
	HasParseOutput(event *trigger.PendingEvent) bool
	ParseOutput(ctx context.Context, event *trigger.PendingEvent) (payload json.RawMessage, parsed bool, failure *trigger.StepError)
}

// Ledger keeps claims alive and tells when to look.
type Ledger interface {
	Peek(ctx context.Context) (trigger.DuePeek, error)
	Backlog(ctx context.Context) (due int64, oldest time.Duration, err error)
	RenewClaims(ctx context.Context, claims []trigger.Claim, lease time.Duration) (lost []trigger.Claim, err error)
	ReapExpired(ctx context.Context) ([]trigger.LostAttempt, error)
}

// Config bounds a Dispatcher. Owner is required; zero fields take the defaults.
type Config struct {
	Owner string // names this process in its claims
	// Concurrency is how many starts are under way at once: 64.
	Concurrency int
	// Batch is how many events one claim takes for an engine that starts many
	// at once: 200. Two such claims are in hand at a time.
	Batch         int
	Lease         time.Duration // 30 s
	Fallback      time.Duration // longest sleep between two looks: 1 s
	EngineTimeout time.Duration // of one call: 30 s
	Grace         time.Duration // for starts under way when Run is told to end; 0: none
	// BacklogAlert is the number of due events from which a line is logged: 10,000.
	BacklogAlert int64
}

// Parts are what a Dispatcher is made of. Wake, Serial and Metrics may be nil.
type Parts struct {
	Queue  Queue
	Parser Parser
	Ledger Ledger
	Engine engine.Engine
	// Wake gives a value when it is worth looking.
	Wake <-chan struct{}
	// Serial lists the "app/trigger" keys that have parseOutput.
	Serial  func() []string
	Metrics *Metrics
	Log     *zap.Logger
}

// errShutdown ends starts that outlive the grace period: they are given back
// and no attempt is charged.
var errShutdown = errors.New("the dispatcher is shutting down")

// errLeaseLost ends a start whose event another dispatcher may have by now.
var errLeaseLost = errors.New("the claim's lease was lost")

// queryTimeout bounds each question to the ledger: a database that is stuck
// must not hold the loop.
const queryTimeout = 10 * time.Second

// Dispatcher is one of any number of dispatchers on a ledger.
type Dispatcher struct {
	cfg     Config
	parts   Parts
	log     *zap.Logger
	metrics *Metrics
	batch   engine.BatchStarter // nil: one start a call

	again   chan struct{} // cap 1: look again, something has become free
	flight  *flight
	gate    *gate
	settler *settler
	outage  *outage // of the database
	clock   clock
	hungry  atomic.Bool // more was due than there was room for
	starts  sync.WaitGroup
}

// New makes a Dispatcher; Run makes it work.
func New(cfg Config, parts Parts) (*Dispatcher, error) {
	if cfg.Owner == "" || parts.Queue == nil || parts.Parser == nil || parts.Ledger == nil || parts.Engine == nil || parts.Log == nil {
		return nil, errors.New("a dispatcher needs an owner, a queue, a parser, a ledger, an engine and a log")
	}
	cfg = cfg.withDefaults()
	if parts.Metrics == nil {
		parts.Metrics = NewMetrics(nil)
	}
	d := &Dispatcher{cfg: cfg, parts: parts, log: parts.Log, metrics: parts.Metrics, again: make(chan struct{}, 1)}
	slots := cfg.Concurrency
	if batch, ok := parts.Engine.(engine.BatchStarter); ok {
		d.batch = batch
		slots = 2 * cfg.Batch
	}
	d.flight = newFlight(slots, d.metrics.inFlight)
	d.gate = newGate(d.log, d.metrics.engineUp)
	d.outage = &outage{log: d.log}
	d.settler = newSettler(d)
	return d, nil
}

func (c Config) withDefaults() Config {
	if c.Concurrency == 0 {
		c.Concurrency = 64
	}
	if c.Batch == 0 {
		c.Batch = 200
	}
	if c.Lease == 0 {
		c.Lease = 30 * time.Second
	}
	if c.Fallback == 0 {
		c.Fallback = time.Second
	}
	if c.EngineTimeout == 0 {
		c.EngineTimeout = 30 * time.Second
	}
	if c.BacklogAlert == 0 {
		c.BacklogAlert = 10_000
	}
	return c
}

// Run dispatches until ctx ends. Then it claims no more, waits for the starts
// under way for Config.Grace, gives back those that are not done, records
// everything, and returns. The error is nil.
func (d *Dispatcher) Run(ctx context.Context) error {
	// What was begun is finished and recorded although ctx has ended.
	work, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	helpers, stop := context.WithCancel(context.WithoutCancel(ctx))
	var helping sync.WaitGroup
	helping.Go(func() { d.renewLeases(helpers) })
	helping.Go(func() { d.probe(helpers) })
	helping.Go(func() { d.measure(helpers) })
	helping.Go(func() { d.settler.run(helpers) })

	d.loop(ctx, work)

	grace := time.AfterFunc(d.cfg.Grace, func() { abort(errShutdown) })
	d.starts.Wait()
	grace.Stop()
	d.settler.drain()
	stop()
	helping.Wait()
	return nil
}

// kick asks the loop to look again; it never blocks.
func (d *Dispatcher) kick() {
	select {
	case d.again <- struct{}{}:
	default:
	}
}

// pause waits, or less when ctx ends.
func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// jitter spreads d by a tenth either way, so that dispatchers do not look in
// step.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(max(d/5, 1))
}

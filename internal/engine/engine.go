// Package engine is the client side of workflow engines: what the dispatcher
// says to start a run, and what an engine may answer (DESIGN §8). Each engine
// is a package below this one, held to the suite in enginetest. Engines know
// nothing of storage of events, leases or retries.
package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// SeamWorkflow is a workflow whose runs cannot start, on an engine that was told
// so: OpenWOP's conformance suite wants to see retries run out.
const SeamWorkflow = "openwop-seam-unavailable"

// StartRequest asks for one run. Without an AttemptID no delivery caused it: it
// was asked for by hand, and Event is its input. EventID is the idempotency key: the same id
// must never start a second run on an engine that honours it.
type StartRequest struct {
	EventID string
	// AttemptID is the causation id, minted before the call.
	AttemptID string
	Attempt   int // 1-based
	// DedupKey is what a run's log shows as the delivery's; "" means the event id.
	DedupKey     string
	Subscription trigger.SubscriptionID
	SID          int64
	Tenant       string
	WorkflowID   string
	// Event is the parsed payload as JSON text, passed on untouched.
	Event json.RawMessage
	// Parsed says that Event is parseOutput's result and not what is stored.
	Parsed     bool
	ReceivedAt time.Time
	Trace      string // W3C traceparent, or ""
}

// Kind is what an engine answered.
type Kind int

// Kinds of answer.
const (
	Started Kind = iota + 1
	Retryable
	NonRetryable
	// Overloaded is a retryable attempt that also stops claims for the engine
	// for StartResult.Wait.
	Overloaded
	// Unreachable is a retryable attempt that counts towards the engine's
	// breaker: no answer came from an engine at all.
	Unreachable
)

// StartResult is an engine's answer.
type StartResult struct {
	Kind  Kind
	RunID string             // when Started
	Err   *trigger.StepError // when not
	Wait  time.Duration      // when Overloaded; 0 means the dispatcher chooses
}

// Engine starts runs. It is safe for concurrent use and honours ctx.
type Engine interface {
	// StartRun starts one run and says how it went; it does not retry.
	StartRun(ctx context.Context, request StartRequest) StartResult
	// WorkflowExists says whether the engine knows the workflow. An engine
	// that cannot tell answers true. The error means it could not be asked.
	WorkflowExists(ctx context.Context, tenant, workflowID string) (bool, error)
	// Ping says whether the engine can be reached; the breaker asks it.
	Ping(ctx context.Context) error
	// Close lets go of connections.
	Close() error
}

// BatchStarter is an engine that starts many runs at once, in order, all or
// none per request. The dispatcher then claims several events of one
// subscription together.
type BatchStarter interface {
	StartRuns(ctx context.Context, requests []StartRequest) []StartResult
}

// Package checker judges the history of a Tocsin that was under fire: every
// client call with its answer, every engine call, every final row, every state
// an event went through, every fault. It is pure: it asks nobody, and the same
// history always gets the same verdict.
package checker

import (
	"time"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// History is everything that was seen. All times are of one clock, or of
// clocks that agree: client, engine and database of one machine.
type History struct {
	Posts    []Post
	Starts   []Start
	Events   []Event
	Attempts []Attempt
	// Changes are in the order of their transactions for any one event. They
	// may be empty; then what needs them is judged from the rest or not at all.
	Changes  []Change
	Requeues []Requeue
	Faults   []Fault
}

// Post is a call of a client, with its answer.
type Post struct {
	Subscription   string
	Sent, Answered time.Time
	Status         int // 0: no answer came
	EventIDs       []string
}

// OK says that the caller was told 2xx: the call must not be lost.
func (p *Post) OK() bool { return p.Status >= 200 && p.Status < 300 }

// Start is a call that the engine got.
type Start struct {
	Subscription   string
	EventID        string
	IdempotencyKey string
	At, Ended      time.Time
	RunID          string // "": no run came of it
	// Told says that an answer with the run's id went out, so that a healthy
	// dispatcher knows.
	Told bool
}

// Event is an event's row as it stands at the end.
type Event struct {
	ID           string
	Subscription string
	Received     time.Time
	Status       trigger.Status
	Reason       string
	Code         string // of the error, when failed
	Attempts     int
	Retryable    bool // the last error was one that is tried again
}

// Attempt is an attempt that did not start a run.
type Attempt struct {
	EventID string
	Attempt int
	Outcome string
	Ended   time.Time // on the database's clock, at the start of the transaction
}

// Change is a state that an event got by a transaction.
type Change struct {
	EventID      string
	Subscription string
	Status       trigger.Status
	At           time.Time // when the row was written
	Began        time.Time // when its transaction began: what it takes for now
	Due          time.Time // when received
	Attempts     int
	Lease        time.Time // the lease's end: of the claim that begins, or of the one that ends
	Tx           string    // names the transaction
}

// Requeue is an operator's requeue that was answered 2xx, or got no answer.
type Requeue struct {
	EventID string
	At      time.Time
}

// Target says what a fault hits.
type Target string

// Targets. A fault of ingest or of a client alone explains no second start.
const (
	Ingest     Target = "ingest"
	Dispatcher Target = "dispatcher"
	Database   Target = "database"
	Network    Target = "network"
	Engine     Target = "engine"
)

// Fault is one fault and how long it lasted.
type Fault struct {
	Kind     string
	Target   Target
	From, To time.Time
}

// Rules are what the run allowed for.
type Rules struct {
	// Slack is how far apart two clocks of the history may be: 0 on one machine.
	Slack time.Duration
	// Settle is how long a fault's consequences may take to show: a lease, and
	// one look. A fault explains what happens that much after it.
	Settle time.Duration
	// Prompt, when not zero, is the longest that an event may wait for its start
	// while it is due, nothing else of its subscription is being started, and no
	// fault is near.
	Prompt time.Duration
}

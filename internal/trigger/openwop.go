package trigger

import (
	"encoding/json"
	"slices"
	"time"
)

// Surface is the API that a subscription was registered with. It is one row
// and one state machine either way.
type Surface string

// Surfaces.
const (
	SurfaceW6W     Surface = "w6w"
	SurfaceOpenWOP Surface = "openwop"
)

// BuiltinApp is the app of triggers that need no app: their definitions are the
// host's own and have no hooks.
const BuiltinApp = "tocsin"

// Keys of the built-in triggers.
const (
	BuiltinWebhook  = "webhook"  // a signed post (OpenWOP RFC 0230)
	BuiltinQueue    = "queue"    // a record handed in by the host
	BuiltinSchedule = "schedule" // a tick (w6w cron adapter; OpenWOP RFC 0052)
)

// CanBecome says whether a delivery state has an arrow to next; it is the one
// list of OpenWOP's transitions (docs/openwop.md).
func (s DeliveryState) CanBecome(next DeliveryState) bool {
	switch s {
	case DeliveryActive:
		return slices.Contains([]DeliveryState{DeliveryPaused, DeliveryFailed, DeliveryDeadLettered}, next)
	case DeliveryPaused, DeliveryDeadLettered:
		return next == DeliveryActive
	case DeliveryFailed:
		return next == DeliveryActive || next == DeliveryDeadLettered
	}
	return false
}

// Reasons of a change of state; a closed list (trigger-bridge §C).
const (
	ChangeRetryExhausted = "retry-exhausted"
	ChangeOperatorPaused = "operator-paused"
)

// BreakAfter is how many attempts of an OpenWOP subscription may fail in a row,
// across its events, before it becomes failed.
const BreakAfter = 100

// OpenWOP is what a subscription of that surface has beyond others.
type OpenWOP struct {
	DedupEnabled bool
	Verification VerificationMode
	InputMapping json.RawMessage // as registered; nil when none
	Fingerprint  string          // of the secret: keyed and cut short
	Secret       IngestSecret    // "" when the source has none
}

// IngestSecret is the key that posts are signed with, as whsec_ and base64. It
// does not print.
type IngestSecret string

// String hides the secret.
func (IngestSecret) String() string { return "[redacted]" }

// GoString hides the secret from %#v.
func (IngestSecret) GoString() string { return "[redacted]" }

// MarshalText hides the secret from encoders.
func (IngestSecret) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// Reveal gives the secret.
func (s IngestSecret) Reveal() string { return string(s) }

// VerificationMode is what a signature is worth (RFC 0099 §F.2).
type VerificationMode string

// The three modes.
const (
	VerifyRequired   VerificationMode = "required"
	VerifyBestEffort VerificationMode = "best-effort"
	VerifyNone       VerificationMode = "none"
)

// Backoff is how the waits between attempts grow.
type Backoff string

// The three backoffs.
const (
	BackoffNone        Backoff = "none"
	BackoffFixed       Backoff = "fixed"
	BackoffExponential Backoff = "exponential"
)

// RetryPolicy is a subscription's own (OpenWOP RFC 0083 §C-2).
type RetryPolicy struct {
	MaxAttempts int
	Backoff     Backoff
}

// Bounds of a RetryPolicy.
const (
	MaxPolicyAttempts = 50
	PolicyDelay       = time.Second
	PolicyCeiling     = maxWait
)

// DefaultPolicy is that of a registration that names none.
func DefaultPolicy() RetryPolicy {
	return RetryPolicy{MaxAttempts: MaxAttempts, Backoff: BackoffExponential}
}

// Wait is the wait after the given number of failed attempts (1-based).
func (p RetryPolicy) Wait(failed int) time.Duration {
	switch p.Backoff {
	case BackoffNone:
		return 0
	case BackoffFixed:
		return PolicyDelay
	case BackoffExponential:
		return min(PolicyDelay<<min(max(failed-1, 0), 20), PolicyCeiling)
	}
	return PolicyDelay
}

// RetryAfter says whether and when an event is tried again after its attempt
// failed so that it may be: by its subscription's policy, or the platform's.
func (e *PendingEvent) RetryAfter(attempt int) (wait time.Duration, again bool) {
	if e.Retry != nil {
		return e.Retry.Wait(attempt), attempt < e.Retry.MaxAttempts
	}
	return RetryWait(attempt), attempt < MaxAttempts
}

// MissedPolicy is what becomes of ticks that passed while nobody could fire
// them.
type MissedPolicy string

// The two policies. There is no backlog in either.
const (
	MissedSkip     MissedPolicy = "skip"
	MissedFireOnce MissedPolicy = "fire-once"
)

// Schedule is when a subscription's ticks are.
type Schedule struct {
	Cron     string // "" for one tick
	Timezone string // IANA
	Missed   MissedPolicy
	First    time.Time // the first slot
}

// DueSchedule is a schedule whose slot has come, or is to be worked out.
type DueSchedule struct {
	Subscription *Subscription
	Schedule
	Slot *time.Time // nil: to be worked out from Now
	Now  time.Time  // by the ledger's clock
}

// Tick is one firing, or one passing, of a schedule. It goes into the ledger in
// one transaction with the event that it makes.
type Tick struct {
	SID  int64
	Slot *time.Time
	Next *time.Time // nil: there is none
}

// DeadLetter is a delivery that ended without a run (OpenWOP RFC 0232 §B).
type DeadLetter struct {
	AttemptID string
	EventID   string
	Attempt   int
	Refused   bool // at the door, not by the engine
	DedupKey  string
	Change    *StateChange // nil: the subscription's state did not change
	At        time.Time
}

// DeadLetterPosition is where a page of dead letters ends.
type DeadLetterPosition struct {
	At        time.Time
	AttemptID string
}

// DeadLetterRetention is how long dead letters are shown.
const DeadLetterRetention = 7 * 24 * time.Hour

// StateChange is one change of a subscription's delivery state.
type StateChange struct {
	ID        string
	From, To  DeliveryState
	Reason    string // "" when none
	AttemptID string
	EventID   string
	At        time.Time
}

// Delivery is one attempt in a subscription's list of deliveries.
type Delivery struct {
	AttemptID string
	EventID   string
	DedupKey  string
	Attempt   int
	Outcome   string
	RunID     string
	At        time.Time
}

// EventOutcome is how an event ended.
type EventOutcome struct {
	EventID   string
	Status    Status // dispatched, failed or ignored
	RunID     string
	AttemptID string
}

// IdempotentRequest names a request with an Idempotency-Key (OpenWOP Layer 1).
type IdempotentRequest struct {
	Tenant, Operation string
	Key, Digest       []byte // hashes: the key itself is not kept
	Owner             string
}

// IdempotentAnswer is what became of an earlier request with the same key.
type IdempotentAnswer struct {
	SameRequest bool
	Pending     bool
	Status      int
	Body        []byte
}

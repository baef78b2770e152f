// Package trigger holds the nouns of Tocsin: apps' trigger definitions,
// subscriptions, calls, events and their statuses, in the words of the w6w
// Trigger RFC. It knows nothing of storage, transport or engines, and imports
// the standard library only.
package trigger

import (
	"encoding/json"
	"errors"
	"time"
)

// Errors of the TriggerManager. What a caller may do about one is its meaning;
// HTTP statuses are derived from them at the edge.
var (
	ErrUnknownSubscription = errors.New("unknown subscription")
	ErrUnknownApp          = errors.New("unknown app")
	ErrUnknownTrigger      = errors.New("unknown trigger")
	ErrUnknownWorkflow     = errors.New("unknown workflow")
	ErrUnknownEvent        = errors.New("unknown event")
	ErrUnknownRun          = errors.New("unknown run")
	ErrUnknownConnection   = errors.New("unknown connection")
	ErrNotRequeueable      = errors.New("the event cannot be requeued")
	ErrNotReingestable     = errors.New("the call cannot be ingested again")
	ErrBackPressure        = errors.New("the commit queue is full")
	ErrUnavailable         = errors.New("the database is unavailable")
	ErrIllegalState        = errors.New("the subscription's state has no such transition")
	ErrConflict            = errors.New("the object changed meanwhile")
)

// InvalidError is bad input; Details lists what is wrong by path.
type InvalidError struct {
	Code    string // invalid_body, param_invalid, …
	Message string
	Details []FieldError
}

// FieldError names one bad field.
type FieldError struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

func (e *InvalidError) Error() string { return e.Code + ": " + e.Message }

// Type is a trigger's form (RFC amendment §Two forms).
type Type string

// The two forms.
const (
	TypeWebhook Type = "webhook"
	TypePoll    Type = "poll"
)

// Hook names, in the order of TRIGGER_HOOK_KINDS.
const (
	HookOnSubscribe   = "onSubscribe"
	HookOnUnsubscribe = "onUnsubscribe"
	HookHandleIngest  = "handleIngest"
	HookPoll          = "poll"
	HookParseOutput   = "parseOutput"
)

// Definition is a TriggerDefinition as loaded: the declaration without
// behaviour, and which hooks the module has.
type Definition struct {
	AppID       string
	AppVersion  string // content hash of the bundle the hooks come from
	Key         string
	Title       string
	Description string
	Type        Type
	// RequiresAuth is resolved: the author's word, else whether the app has
	// auth methods.
	RequiresAuth bool
	MinInterval  time.Duration
	// Params, Output and Sample are the author's JSON, untouched.
	Params json.RawMessage
	Output json.RawMessage
	Sample json.RawMessage
	// Host-side data (DESIGN §6): preset, verify, handshake, dedup.
	Host  json.RawMessage
	Hooks map[string]bool
}

// Has says whether the trigger declares the hook.
func (d *Definition) Has(hook string) bool { return d != nil && d.Hooks[hook] }

// App is a loaded app.
type App struct {
	ID          string
	Version     string // author's version
	Hash        string // content hash of the bundle
	Title       string
	Description string
	State       AppState
	HasAuth     bool
	Auth        []AuthMethod
	Allow       []string // network.allow
	Manifest    json.RawMessage
	Triggers    []*Definition
	// LoadError is set when the app on disk is broken.
	LoadError string
}

// AppState is the operator's word on an app.
type AppState string

// States of an app. Calls to a disabled or archived app are stored and ignored.
const (
	AppActive   AppState = "active"
	AppDisabled AppState = "disabled"
	AppArchived AppState = "archived"
)

// DeliveryState is a subscription's state (OpenWOP RFC 0083 §B). w6w's
// enabled:false is paused.
type DeliveryState string

// The four states.
const (
	DeliveryActive       DeliveryState = "active"
	DeliveryPaused       DeliveryState = "paused"
	DeliveryFailed       DeliveryState = "failed"
	DeliveryDeadLettered DeliveryState = "dead-lettered"
)

// Lifecycle is where a subscription's row stands.
type Lifecycle string

// A row is reserved before onSubscribe runs, live once it has returned, and
// keeps as a tombstone after it failed or was deleted.
const (
	LifecycleReserved Lifecycle = "reserved"
	LifecycleLive     Lifecycle = "live"
	LifecycleFailed   Lifecycle = "failed"
	LifecycleDeleted  Lifecycle = "deleted"
)

// Subscription binds (trigger, connection, params) to one workflow.
type Subscription struct {
	// SID is the internal number. It is no secret and is what events refer to.
	SID          int64
	ID           SubscriptionID
	Tenant       string
	AppID        string
	TriggerKey   string
	ConnectionID string // "" when none
	WorkflowID   string
	Params       json.RawMessage // resolved; {} when none
	State        json.RawMessage // opaque, from onSubscribe or poll; nil when none
	// Host overrides the trigger's host-side data for this subscription. It may
	// hold secrets.
	Host json.RawMessage
	// HandshakeSecret is what a vendor's handshake brought; "" when none.
	HandshakeSecret IngestSecret

	Delivery  DeliveryState
	Lifecycle Lifecycle
	Version   int64 // grows with every change of the row
	// PollInterval schedules the checks of a poll subscription when it becomes
	// live; 0 for the webhook form.
	PollInterval time.Duration
	CreatedAt    time.Time
	UpdatedAt    time.Time

	Surface Surface
	// Source is where its calls come from.
	Source Source
	// Retry replaces the platform constant when not nil.
	Retry *RetryPolicy
	// OpenWOP is nil for a subscription of the w6w surface.
	OpenWOP *OpenWOP
	// Schedule, when not nil, is kept when the row becomes live; it is not read
	// back.
	Schedule *Schedule
}

// Enabled is the RFC's flag.
func (s *Subscription) Enabled() bool { return s.Delivery == DeliveryActive }

// Source says which adapter a call came through.
type Source string

// Sources.
const (
	SourceWebhook  Source = "webhook"
	SourcePoll     Source = "poll"
	SourceSchedule Source = "schedule"
	SourceQueue    Source = "queue"
	SourceTest     Source = "test"
)

// Field is one header or query pair, as sent.
type Field struct{ Name, Value string }

// Call is the RFC's TriggerCall as the adapter received it: exact bytes, header
// and query order kept. Package triggercall turns it into the hook's view and
// the masked, stored view.
type Call struct {
	Source   Source
	Method   string
	Path     string // the URL path exactly as sent, escapes kept
	RawQuery string // exactly as sent
	// Header names are lower case; order and repeats are kept.
	Header []Field
	Body   []byte
	// Trace is the W3C traceparent of the request, or "".
	Trace string
	// Tick, for a schedule, is committed with the call.
	Tick *Tick
}

// HeaderValue gives the first value of a lower-case header name.
func (c *Call) HeaderValue(name string) string {
	for _, f := range c.Header {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// Response is what a hook or a handshake wants answered in place of the
// default.
type Response struct {
	Status int
	Header []Field
	Body   []byte
}

// IngestResult is what Ingest stored and what to answer.
type IngestResult struct {
	CallID   string // the row that carries the call
	EventIDs []string
	// Status is the status of the call's first row: received, failed or ignored.
	Status Status
	Reason Reason
	// Response replaces the adapter's default answer when not nil.
	Response *Response
	// Err is why the ingest parser failed, nil when it did not.
	Err *StepError
	// Unwritten calls have no row: nobody vouches for them and there are too many.
	Unwritten bool
}

// PendingEvent is a claimed event (RFC §TriggerManager): one event as returned
// by handleIngest, with what the dispatcher needs to start its run.
type PendingEvent struct {
	ID           string
	SID          int64
	Subscription SubscriptionID
	Tenant       string
	WorkflowID   string
	AppID        string
	TriggerKey   string
	ConnectionID string
	Source       Source
	// Normalized is JSON text, byte for byte as stored.
	Normalized json.RawMessage
	ReceivedAt time.Time
	Attempts   int           // attempts made before this one
	Age        time.Duration // from receipt to claim, on the database's clock
	Trace      string
	Surface    Surface
	Retry      *RetryPolicy // nil: the platform constant
	DedupKey   string       // opaque, as OpenWOP's records show it; "" when none
	// AttemptID is that of the attempt under way, once the dispatcher has minted
	// it.
	AttemptID string
	// Claim fences the event: only its holder may mark it.
	Claim Claim
}

// Claim is a fenced lease on one subscription's events.
type Claim struct {
	SID   int64
	Token string
}

// Outcome is how one attempt ended, for MarkDispatched.
type Outcome struct {
	Event *PendingEvent
	// AttemptID was minted before the engine was called and is the run's
	// causation id.
	AttemptID string
	RunID     string // set when Err is nil
	Err       *StepError
	// Unattempted gives the event back without charging an attempt.
	Unattempted bool
	Started     time.Time
	Duration    time.Duration
}

// Attempt is one recorded delivery attempt.
type Attempt struct {
	ID       string
	Attempt  int // 1-based
	Outcome  string
	RunID    string
	Code     string
	Message  string
	EndedAt  time.Time
	Duration time.Duration
}

// Outcomes of an attempt, OpenWOP's words, and lost for a dispatcher that died.
const (
	AttemptDelivered    = "delivered"
	AttemptRetrying     = "retrying"
	AttemptDeadLettered = "dead-lettered"
	AttemptLost         = "lost"
)

// EventSummary is a line of a subscription's history.
type EventSummary struct {
	ID             string
	SID            int64
	Subscription   SubscriptionID
	WorkflowID     string
	Tenant         string
	Status         Status
	Reason         Reason
	Attempts       int
	ReceivedAt     time.Time
	DispatchedAt   *time.Time // when the run started
	RunID          string
	DuplicateOf    string
	NextAttemptAt  *time.Time
	LastErrorCode  string
	LastError      string
	Source         Source
	CallID         string
	AppVersion     string
	ClaimOwner     string
	ClaimExpiresAt *time.Time
	Delivery       DeliveryState
	Lifecycle      Lifecycle
}

// StoredCall is the masked, immutable call of an event.
type StoredCall struct {
	Source       Source
	Method       string
	Path         string
	RawQuery     string
	Header       []Field
	Body         []byte
	ReceivedAt   time.Time
	Verification json.RawMessage
}

// EventDetail is everything known of one event.
type EventDetail struct {
	EventSummary
	Call *StoredCall
	// Normalized is nil for a row that never had an event.
	Normalized json.RawMessage
	AttemptLog []Attempt
	// AttemptsAllowed is how many attempts its subscription's policy gives it.
	AttemptsAllowed int
	// ErrorStack is the hook's source-mapped stack when the parser threw, and
	// ErrorPhase where in the call it did.
	ErrorStack string
	ErrorPhase string
	Trace      string
}

// Run is a run on the embedded engine.
type Run struct {
	ID           string
	Tenant       string
	WorkflowID   string
	EventID      string
	SID          int64
	Subscription SubscriptionID
	AttemptID    string
	Trigger      string
	Status       string
	Event        json.RawMessage
	StartedAt    time.Time
	FinishedAt   *time.Time
	Log          json.RawMessage
}

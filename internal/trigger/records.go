package trigger

import (
	"encoding/json"
	"time"
)

// ClaimRequest bounds one claim.
type ClaimRequest struct {
	Owner string
	Limit int
	Lease time.Duration
	// PerSubscription is how many events of one subscription a claim may hold,
	// in order; 0 means one.
	PerSubscription int
	// Serial lists "app/trigger" keys whose events are claimed one at a time
	// all the same, since their parseOutput takes its time.
	Serial []string
}

// CallRecord is one call to be stored, with what ingest made of it.
type CallRecord struct {
	Subscription *Subscription
	AppVersion   string
	Call         *Call
	// The masked views of the call, as package triggercall makes them.
	MaskedQuery  string
	MaskedHeader json.RawMessage
	Verification json.RawMessage
	// Events are the normalized events, JSON text each. A nil entry means that
	// the call's body is the event as it stands.
	Events []EventRecord
	// Status and Reason say what to store when there is no event.
	Status Status
	Reason Reason
	Err    *StepError
	Stack  string // the hook's, source-mapped
	// Of is the call that is being ingested again, or "".
	Of string
	// NextState, for a poll, is committed with the events.
	NextState json.RawMessage
	// Tick, for a schedule, is committed with the event.
	Tick *Tick
	// DedupKey is the opaque key that OpenWOP's records of the delivery show.
	DedupKey string
}

// Fail notes that the ingest parser failed: the call becomes one failed row
// (amendment, first list).
func (r *CallRecord) Fail(err *StepError, stack string) {
	r.Events, r.Status, r.Reason, r.Err, r.Stack = nil, StatusFailed, ReasonParserFailed, err, stack
}

// EventRecord is one normalized event to be stored.
type EventRecord struct {
	Normalized json.RawMessage
	// DedupKey, when not empty, lets one event in per window; the store keeps a
	// hash of it.
	DedupKey    string
	DedupWindow time.Duration
}

// SavedCall says what was stored.
type SavedCall struct {
	// CallID names the row that carries the call.
	CallID string
	// EventIDs of the call's events; for a duplicate the first one's id.
	EventIDs []string
	Status   Status
	Reason   Reason
}

// DuePeek is one cheap look at the queue.
type DuePeek struct {
	Due     bool          // something can be claimed
	Expired bool          // a lease has run out
	Next    time.Duration // until the next retry or lease end; 0 when there is none
}

// LostAttempt is an event whose dispatcher did not report back in time.
type LostAttempt struct {
	EventID string
	SID     int64
	Owner   string
	Attempt int // the one that was lost, 1-based
}

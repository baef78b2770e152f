package trigger

import "slices"

// Status is where a trigger event stands (RFC amendment §Call record).
type Status string

// The six statuses are five words: ignored joined with the amendment.
const (
	StatusReceived    Status = "received"
	StatusDispatching Status = "dispatching"
	StatusDispatched  Status = "dispatched"
	StatusFailed      Status = "failed"
	StatusIgnored     Status = "ignored"
)

// Statuses lists every status, in the order of a life.
var Statuses = []Status{StatusReceived, StatusDispatching, StatusDispatched, StatusFailed, StatusIgnored}

// Next lists where a status may go.
func (s Status) Next() []Status {
	switch s {
	case StatusReceived:
		return []Status{StatusDispatching}
	case StatusDispatching:
		return []Status{StatusDispatched, StatusReceived, StatusFailed}
	case StatusFailed:
		return []Status{StatusReceived} // requeue
	case StatusDispatched, StatusIgnored:
		return nil
	}
	return nil
}

// CanBecome says whether the ladder has an arrow from s to next.
func (s Status) CanBecome(next Status) bool { return slices.Contains(s.Next(), next) }

// Valid says whether s is one of Statuses.
func (s Status) Valid() bool { return slices.Contains(Statuses, s) }

// Reason says why a row is ignored, or failed before any dispatch.
type Reason string

// Reasons of rows that never reach the queue.
const (
	ReasonEmpty              Reason = "empty"               // handleIngest returned no event
	ReasonDuplicate          Reason = "duplicate"           // every event of the call was seen before
	ReasonHandshake          Reason = "handshake"           // answered as a vendor's handshake
	ReasonAppDisabled        Reason = "app_disabled"        // the app is disabled
	ReasonAppArchived        Reason = "app_archived"        // the app is archived
	ReasonSubscribeFailed    Reason = "subscribe_failed"    // the call came while onSubscribe ran, which then threw
	ReasonParserFailed       Reason = "parser_failed"       // handleIngest threw
	ReasonVerificationFailed Reason = "verification_failed" // the signature did not hold
)

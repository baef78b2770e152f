package trigger

import (
	"errors"
	"time"
)

// ErrUnknownOperation is an operation that the tenant does not have.
var ErrUnknownOperation = errors.New("unknown operation")

// RequeueFilter says which of a tenant's dead letters to requeue. What is empty
// does not matter; nothing set is all of them.
type RequeueFilter struct {
	Subscription SubscriptionID
	WorkflowID   string
	AppID        string
	ErrorCode    string
	FailedAfter  *time.Time
	FailedBefore *time.Time
}

// OperationState is where an operation stands.
type OperationState string

// States of an operation; only a running one changes.
const (
	OperationRunning   OperationState = "running"
	OperationDone      OperationState = "done"
	OperationCancelled OperationState = "cancelled"
)

// Operation is a requeue of many, under way or over.
type Operation struct {
	ID        string
	State     OperationState
	Total     int64 // dead letters that fitted when it was made
	Requeued  int64
	CreatedAt time.Time
	EndedAt   *time.Time
}

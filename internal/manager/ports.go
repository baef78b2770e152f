package manager

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Store is what the manager needs of the ledger. Package store implements it
// on PostgreSQL. Errors are trigger's sentinels, wrapped; anything else means
// the database could not be asked and wraps trigger.ErrUnavailable.
type Store interface {
	// ReserveSubscription writes the row before onSubscribe runs and fills in
	// SID, Version and the times.
	ReserveSubscription(ctx context.Context, s *trigger.Subscription) error
	// ActivateSubscription makes a reserved row live with the hook's state.
	ActivateSubscription(ctx context.Context, s *trigger.Subscription, state json.RawMessage) error
	// KeepHandshakeSecret keeps the secret that a handshake brought and gives the
	// row's new version; ErrConflict when the row changed or has one.
	KeepHandshakeSecret(ctx context.Context, s *trigger.Subscription, value string) (version int64, err error)
	// AbandonSubscription turns a reserved row into a tombstone and its stored
	// calls into ignored ones.
	AbandonSubscription(ctx context.Context, s *trigger.Subscription) error
	// DeleteSubscription turns a live row into a tombstone.
	DeleteSubscription(ctx context.Context, s *trigger.Subscription) error
	// SetDelivery changes the delivery state of a live row.
	SetDelivery(ctx context.Context, tenant string, id trigger.SubscriptionID, to trigger.DeliveryState) (*trigger.Subscription, error)
	// SubscriptionForCall finds a live or reserved row by the id alone: the id
	// is the credential. It may serve a cached row; SaveCall finds out.
	SubscriptionForCall(ctx context.Context, id trigger.SubscriptionID) (*trigger.Subscription, error)
	// Subscription finds a live row of the tenant.
	Subscription(ctx context.Context, tenant string, id trigger.SubscriptionID) (*trigger.Subscription, error)
	// SubscriptionsForWorkflow lists the tenant's live rows; workflow "" is all.
	SubscriptionsForWorkflow(ctx context.Context, tenant, workflow string, page trigger.Page) ([]*trigger.Subscription, string, error)
	// SubscriptionsOfConnection lists live rows of the tenant that use a
	// connection.
	SubscriptionsOfConnection(ctx context.Context, tenant, id string, limit int) ([]*trigger.Subscription, error)
	// DeleteConnection forgets a connection; ErrUnknownConnection when there is
	// none.
	DeleteConnection(ctx context.Context, tenant, id string) error
	// SaveCall commits a call with its events, many callers per transaction.
	// It returns after the commit. ErrConflict means the subscription changed
	// since it was read: read it again and decide anew.
	SaveCall(ctx context.Context, call *trigger.CallRecord) (*trigger.SavedCall, error)
	// ClaimDue claims due events under a lease.
	ClaimDue(ctx context.Context, claim trigger.ClaimRequest) ([]*trigger.PendingEvent, error)
	// Settle ends claims: fenced, all outcomes of one claim together.
	Settle(ctx context.Context, outcomes []trigger.Outcome) (lost []*trigger.PendingEvent, err error)
	// ClaimPolls takes due checks under a lease.
	ClaimPolls(ctx context.Context, limit int, lease time.Duration) ([]*trigger.DuePoll, error)
	// EndPoll ends a check; false when its lease was lost. A negative wait
	// keeps to the interval.
	EndPoll(ctx context.Context, poll *trigger.DuePoll, failure *trigger.StepError, wait time.Duration) (held bool, err error)
	// Event reads one event of the tenant.
	Event(ctx context.Context, tenant, eventID string) (*trigger.EventDetail, error)
	// DueSchedules lists schedules whose slot has come, and how long it is until
	// the next one.
	DueSchedules(ctx context.Context, limit int) ([]trigger.DueSchedule, time.Duration, error)
	// PassTick moves a schedule on without an event.
	PassTick(ctx context.Context, tick trigger.Tick) (moved bool, err error)
	// StoredCall reads the masked call of an event.
	StoredCall(ctx context.Context, eventID string) (*trigger.StoredCall, error)
}

// Apps is the registry of loaded apps.
type Apps interface {
	// App finds a loaded app; ErrUnknownApp when there is none.
	App(appID string) (*trigger.App, error)
	// Trigger finds a trigger of a loaded app; ErrUnknownApp or
	// ErrUnknownTrigger when there is none.
	Trigger(appID, key string) (*trigger.Definition, error)
}

// Hooks runs hooks; hook.Runtime fits.
type Hooks interface {
	Invoke(ctx context.Context, call hook.Call) (hook.Result, error)
}

// Workflows says whether a workflow exists; engine.Engine fits.
type Workflows interface {
	WorkflowExists(ctx context.Context, tenant, workflowID string) (bool, error)
}

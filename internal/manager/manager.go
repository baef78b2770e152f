// Package manager is the TriggerManager of the w6w Trigger RFC: it decides when
// something happens. It runs hooks, says what is stored and what an attempt's
// end means; how it is stored, and where calls come from, it does not know.
package manager

import (
	"context"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/vendors"
	"github.com/tocsin-dev/tocsin/internal/verify"
)

// Config of a TriggerManager. Store to HostURL are required.
type Config struct {
	Store     Store
	Apps      Apps
	Hooks     Hooks
	Workflows Workflows
	// Connections may be nil on a host that keeps none.
	Connections Connections
	// HostURL is the public origin, without a slash at its end.
	HostURL string
	// HookTimeout bounds one hook call; 0 means 30 s.
	HookTimeout time.Duration
	// PollInterval is a poll's interval when none is asked for, 0 means 1 min;
	// PollFloor is the least, 0 means 10 s.
	PollInterval time.Duration
	PollFloor    time.Duration
	// Keys gets vendors' certificates and key sets, Confirm what a handshake wants
	// fetched; both guarded. Nil refuses what needs them.
	Keys    verify.Fetcher
	Confirm verify.Fetcher
	Log     *zap.Logger
}

// TriggerManager is the RFC's §TriggerManager. It is safe for concurrent use.
type TriggerManager struct {
	store     Store
	apps      Apps
	hooks     Hooks
	workflows Workflows
	hostURL   string

	connections Connections
	limits      hook.Limits
	log         *zap.Logger

	pollDefault, pollFloor time.Duration

	policies  vendors.Cache
	keys      verify.Fetcher
	confirmer verify.Fetcher
	confirms  chan confirmation
	strangers *bounds
	patient   chan struct{}
}

// New makes a TriggerManager.
func New(cfg Config) *TriggerManager {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.HookTimeout == 0 {
		cfg.HookTimeout = 30 * time.Second
	}
	if cfg.PollInterval == 0 {
		cfg.PollInterval = time.Minute
	}
	if cfg.PollFloor == 0 {
		cfg.PollFloor = 10 * time.Second
	}
	if cfg.Connections == nil {
		cfg.Connections = noConnections{}
	}
	return &TriggerManager{
		connections: cfg.Connections,
		pollDefault: cfg.PollInterval, pollFloor: cfg.PollFloor,
		store: cfg.Store, apps: withBuiltins{cfg.Apps}, hooks: cfg.Hooks, workflows: cfg.Workflows,
		hostURL: strings.TrimRight(cfg.HostURL, "/"), limits: hook.Limits{Wall: cfg.HookTimeout}, log: cfg.Log,
		keys: cfg.Keys, confirmer: cfg.Confirm, confirms: make(chan confirmation, confirmQueue),
		strangers: newBounds(), patient: make(chan struct{}, maxPatient),
	}
}

// CallbackURL is the URL that a vendor calls for the subscription. It holds the
// secret.
func (m *TriggerManager) CallbackURL(id trigger.SubscriptionID) string {
	return m.hostURL + trigger.CallbackPath + id.Reveal()
}

// GetSubscription reads a live subscription of the tenant;
// trigger.ErrUnknownSubscription when there is none.
func (m *TriggerManager) GetSubscription(ctx context.Context, tenant string, id trigger.SubscriptionID) (*trigger.Subscription, error) {
	return m.store.Subscription(ctx, tenant, id)
}

// ListSubscriptionsForWorkflow lists the live subscriptions of a workflow,
// newest first, with the next page's cursor; workflow "" lists the tenant's.
func (m *TriggerManager) ListSubscriptionsForWorkflow(ctx context.Context, tenant, workflow string, page trigger.Page) ([]*trigger.Subscription, string, error) {
	return m.store.SubscriptionsForWorkflow(ctx, tenant, workflow, page)
}

// SetEnabled sets the RFC's enabled flag: a disabled subscription stores its
// events and starts none; enabling lets them run, oldest first.
func (m *TriggerManager) SetEnabled(ctx context.Context, tenant string, id trigger.SubscriptionID, enabled bool) (*trigger.Subscription, error) {
	to := trigger.DeliveryPaused
	if enabled {
		to = trigger.DeliveryActive
	}
	s, err := m.store.SetDelivery(ctx, tenant, id, to)
	if err != nil {
		return nil, err
	}
	m.log.Info("subscription.enabled", append(fields(s), zap.Bool("enabled", enabled))...)
	return s, nil
}

// DrainPending claims due events (RFC §drainPending): two callers never get the
// same one, and a subscription's events come oldest first.
func (m *TriggerManager) DrainPending(ctx context.Context, request trigger.ClaimRequest) ([]*trigger.PendingEvent, error) {
	return m.store.ClaimDue(ctx, request)
}

// MarkDispatched records how attempts ended (RFC §markDispatched). A claim's
// outcomes come together. Events whose claim was lost are left as they are and
// returned.
func (m *TriggerManager) MarkDispatched(ctx context.Context, outcomes ...trigger.Outcome) ([]*trigger.PendingEvent, error) {
	return m.store.Settle(ctx, outcomes)
}

func fields(s *trigger.Subscription) []zap.Field {
	return []zap.Field{
		zap.Stringer("subscription", s.ID), zap.String("app_id", s.AppID), zap.String("trigger_key", s.TriggerKey),
		zap.String("workflow_id", s.WorkflowID), zap.String("tenant", s.Tenant),
	}
}

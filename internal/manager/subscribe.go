package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/params"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/vendors"
)

// SubscribeRequest asks for a subscription.
type SubscribeRequest struct {
	AppID        string
	TriggerKey   string
	WorkflowID   string
	ConnectionID string          // "" when none
	Params       json.RawMessage // as supplied
	Host         json.RawMessage // overrides of the trigger's host-side data
	// PollInterval asks for a poll's interval; 0 takes the host's default.
	PollInterval time.Duration
	// OpenWOP, when not nil, makes it a subscription of that surface; Retry is its
	// policy.
	OpenWOP *trigger.OpenWOP
	Retry   *trigger.RetryPolicy
}

// HookFailedError is a hook of the app, or the vendor behind it, that refused.
type HookFailedError struct {
	Hook string
	Err  *trigger.StepError
}

func (e *HookFailedError) Error() string { return e.Hook + ": " + e.Err.Error() }

// Subscribe creates a subscription (RFC §subscribe). The id is reserved before
// onSubscribe runs, so that a vendor's handshake during the create call is
// answered; when it throws, no subscription is left and the id is unknown.
// Errors: trigger.ErrUnknownApp, ErrUnknownTrigger, ErrUnknownWorkflow,
// *trigger.InvalidError, *HookFailedError, trigger.ErrUnavailable.
func (m *TriggerManager) Subscribe(ctx context.Context, tenant string, request SubscribeRequest) (*trigger.Subscription, error) {
	def, err := m.apps.Trigger(request.AppID, request.TriggerKey)
	if err != nil {
		return nil, err
	}
	s, err := m.resolve(ctx, tenant, def, request)
	if err != nil {
		return nil, err
	}
	if err := m.store.ReserveSubscription(ctx, s); err != nil {
		return nil, err
	}
	state, err := m.onSubscribe(ctx, def, s)
	if err != nil {
		return nil, m.abandon(ctx, s, err)
	}
	if err := m.store.ActivateSubscription(ctx, s, state); err != nil {
		// The vendor knows the subscription and we do not: take it back.
		s.State = state
		_ = m.onUnsubscribe(context.WithoutCancel(ctx), def, s)
		return nil, m.abandon(ctx, s, err)
	}
	m.log.Info("subscription.created", fields(s)...)
	return s, nil
}

// resolve checks a request and makes the subscription it asks for.
func (m *TriggerManager) resolve(ctx context.Context, tenant string, def *trigger.Definition, request SubscribeRequest) (*trigger.Subscription, error) {
	if request.WorkflowID == "" {
		return nil, &trigger.InvalidError{Code: "invalid_body", Message: "workflowId is required"}
	}
	if request.PollInterval != 0 && def.Type != trigger.TypePoll {
		return nil, &trigger.InvalidError{Code: "invalid_body", Message: "pollIntervalMs is for triggers that poll"}
	}
	if err := m.checkConnection(ctx, tenant, def, request.ConnectionID); err != nil {
		return nil, err
	}
	resolved, err := params.ResolveWith(ctx, def.Params, request.Params, asker{m, def, tenant, request.ConnectionID})
	if err != nil {
		return nil, err
	}
	if _, err := vendors.Compile(def.Host, request.Host); err != nil {
		return nil, &trigger.InvalidError{Code: "invalid_verification", Message: err.Error()}
	}
	known, err := m.workflows.WorkflowExists(ctx, tenant, request.WorkflowID)
	if err != nil {
		return nil, fmt.Errorf("ask the engine for the workflow: %w: %w", trigger.ErrUnavailable, err)
	}
	if !known {
		return nil, trigger.ErrUnknownWorkflow
	}
	interval := time.Duration(0)
	if def.Type == trigger.TypePoll {
		interval = m.pollInterval(request.PollInterval, def.MinInterval)
	}
	s := &trigger.Subscription{
		PollInterval: interval, Source: trigger.SourceWebhook, OpenWOP: request.OpenWOP, Retry: request.Retry,
		ID: trigger.NewSubscriptionID(), Tenant: tenant, AppID: def.AppID, TriggerKey: def.Key, ConnectionID: request.ConnectionID,
		WorkflowID: request.WorkflowID, Params: resolved, Host: request.Host,
	}
	return s, m.classify(s, def)
}

// classify says which surface a subscription is of and where its calls come
// from, and reads its schedule.
func (m *TriggerManager) classify(s *trigger.Subscription, def *trigger.Definition) (err error) {
	if s.OpenWOP != nil {
		s.Surface = trigger.SurfaceOpenWOP
	}
	switch {
	case def.Type == trigger.TypePoll:
		s.Source = trigger.SourcePoll
	case def.AppID != trigger.BuiltinApp:
	case def.Key == trigger.BuiltinQueue:
		s.Source = trigger.SourceQueue
	case def.Key == trigger.BuiltinSchedule:
		s.Source = trigger.SourceSchedule
		s.Schedule, err = readSchedule(s.Params, time.Now())
	}
	return err
}

// pollInterval is what was asked for, or the default, but not below the
// vendor's floor nor the host's (amendment §Polling: “the larger of the two
// applies”).
func (m *TriggerManager) pollInterval(asked, vendor time.Duration) time.Duration {
	if asked <= 0 {
		asked = m.pollDefault
	}
	return max(asked, vendor, m.pollFloor)
}

// abandon takes a reservation back, also when the caller has gone, and gives
// the cause on.
func (m *TriggerManager) abandon(ctx context.Context, s *trigger.Subscription, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := m.store.AbandonSubscription(ctx, s); err != nil {
		m.log.Error("subscription.abandon_failed", append(fields(s), zap.Error(err))...)
	}
	m.log.Warn("subscription.refused", append(fields(s), zap.Error(cause))...)
	return cause
}

func (m *TriggerManager) onSubscribe(ctx context.Context, def *trigger.Definition, s *trigger.Subscription) (json.RawMessage, error) {
	if !def.Has(trigger.HookOnSubscribe) {
		return nil, nil
	}
	callback, host := quote(m.CallbackURL(s.ID)), quote(m.hostURL)
	result, err := m.invoke(ctx, def, s.Tenant, s.ConnectionID, trigger.HookOnSubscribe, hook.Call{
		Input: object(
			"params", orNull(s.Params), "subscriptionId", quote(s.ID.Reveal()),
			// The flat fields are what apps use; hostContext is the RFC's (DESIGN §6).
			"callbackUrl", callback, "hostUrl", host,
			"hostContext", object("callbackUrl", callback, "hostUrl", host),
		),
	})
	if errors.Is(err, trigger.ErrUnavailable) {
		return nil, err
	}
	if err != nil {
		step, _ := stepError(err, "execute")
		return nil, &HookFailedError{Hook: trigger.HookOnSubscribe, Err: step}
	}
	return result.Output, nil
}

// Unsubscribe deletes a subscription (RFC §unsubscribe): onUnsubscribe runs
// first, and its failure is logged and holds nothing up.
func (m *TriggerManager) Unsubscribe(ctx context.Context, tenant string, id trigger.SubscriptionID) error {
	s, err := m.store.Subscription(ctx, tenant, id)
	if err != nil {
		return err
	}
	if def, err := m.apps.Trigger(s.AppID, s.TriggerKey); err != nil {
		m.log.Warn("subscription.unsubscribe_skipped", append(fields(s), zap.Error(err))...)
	} else if err := m.onUnsubscribe(ctx, def, s); err != nil {
		m.log.Warn("subscription.unsubscribe_failed", append(fields(s), zap.Error(err))...)
	}
	if err := m.store.DeleteSubscription(context.WithoutCancel(ctx), s); err != nil {
		return err
	}
	m.log.Info("subscription.deleted", fields(s)...)
	return nil
}

func (m *TriggerManager) onUnsubscribe(ctx context.Context, def *trigger.Definition, s *trigger.Subscription) error {
	if !def.Has(trigger.HookOnUnsubscribe) {
		return nil
	}
	_, err := m.invoke(ctx, def, s.Tenant, s.ConnectionID, trigger.HookOnUnsubscribe, hook.Call{
		Input: object("params", orNull(s.Params), "state", orNull(s.State), "subscriptionId", quote(s.ID.Reveal())),
	})
	return err
}

// codeOf gives the w6w code of a missing app or trigger.
func codeOf(err error) string {
	if errors.Is(err, trigger.ErrUnknownApp) {
		return "unknown_app"
	}
	return "unknown_trigger"
}

package manager

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/triggercall"
)

// ParseOutput gives the payload that a claimed event's run is to see (amendment
// §Processing order): parseOutput's result, else the stored event. It may do
// network I/O and is run outside any transaction, anew on each attempt; its
// throw is a retryable failure of the attempt. parsed says that the payload is
// not what is stored.
func (m *TriggerManager) ParseOutput(ctx context.Context, event *trigger.PendingEvent) (payload json.RawMessage, parsed bool, failure *trigger.StepError) {
	if event.Normalized == nil {
		return nil, false, &trigger.StepError{
			Code: "payload_unreadable", Message: "the stored event cannot be opened with the configured ENCRYPTION_KEYS", Phase: "resolution",
			Retryable: true, // another dispatcher, or this one after a restart, may have the key
		}
	}
	if event.Surface == trigger.SurfaceOpenWOP && event.TriggerKey == trigger.BuiltinWebhook {
		return triggerEvent(event), true, nil
	}
	def, err := m.apps.Trigger(event.AppID, event.TriggerKey)
	if err != nil {
		// Without the app nobody can say whether it has a parseOutput.
		return nil, false, &trigger.StepError{Code: codeOf(err), Message: "the app or its trigger is not loaded", Phase: "resolution", Retryable: true}
	}
	if !def.Has(trigger.HookParseOutput) {
		return event.Normalized, false, nil
	}
	call, body, err := m.storedCall(ctx, event)
	if err != nil {
		return nil, false, &trigger.StepError{Code: "database_unavailable", Message: err.Error(), Phase: "resolution", Retryable: true}
	}
	result, err := m.invoke(ctx, def, event.Tenant, event.ConnectionID, trigger.HookParseOutput, hook.Call{
		RawBody: body,
		Input:   object("call", call, "normalized", event.Normalized, "subscriptionId", quote(event.Subscription.Reveal())),
	})
	if err != nil {
		failure, _ = stepError(err, "output")
		// What is wrong with a connection does not mend itself (w6w contract §6:
		// “phase auth never retried”), but for a refresh that failed this time.
		failure.Retryable = failure.Phase != "auth" || failure.Code == hook.CodeConnectionBroken
		return nil, false, failure
	}
	return result.Output, true, nil
}

// HasParseOutput says whether an event's trigger declares parseOutput.
func (m *TriggerManager) HasParseOutput(event *trigger.PendingEvent) bool {
	def, err := m.apps.Trigger(event.AppID, event.TriggerKey)
	return err == nil && def.Has(trigger.HookParseOutput)
}

// storedCall gives parseOutput's `call`: the stored, masked call of a webhook
// event, the polled event of a poll (amendment §Signatures).
func (m *TriggerManager) storedCall(ctx context.Context, event *trigger.PendingEvent) (view json.RawMessage, body []byte, err error) {
	if event.Source == trigger.SourcePoll {
		return event.Normalized, nil, nil
	}
	call, err := m.store.StoredCall(ctx, event.ID)
	if err != nil {
		return nil, nil, err
	}
	return triggercall.StoredView(call, m.hostURL), call.Body, nil
}

func appRef(def *trigger.Definition, tenant string) hook.AppRef {
	return hook.AppRef{ID: def.AppID, Version: def.AppVersion, Tenant: tenant}
}

// stepError turns a hook's failure into the RFC's StepError and the hook's
// stack.
func stepError(err error, phase string) (step *trigger.StepError, stack string) {
	var e *hook.Error
	if errors.Is(err, trigger.ErrUnavailable) {
		return &trigger.StepError{Code: "database_unavailable", Message: err.Error(), Phase: phase}, ""
	}
	if !errors.As(err, &e) {
		return &trigger.StepError{Code: hook.CodeWorkerLost, Message: err.Error(), Phase: phase}, ""
	}
	message := e.Message
	if e.Name != "" {
		message = e.Name + ": " + message
	}
	if e.Phase != "" {
		phase = e.Phase
	}
	return &trigger.StepError{Code: e.Code, Message: message, Phase: phase}, e.Stack
}

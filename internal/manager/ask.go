package manager

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/params"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// asker runs the checks that a trigger's params leave to its app (Param RFC
// §options, §validation), with the connection that the subscription is to have.
type asker struct {
	m            *TriggerManager
	def          *trigger.Definition
	tenant       string
	connectionID string
}

// Options implements params.Asker.
func (a asker) Options(ctx context.Context, source string, form, dependsOn json.RawMessage) ([]params.Option, error) {
	output, err := a.options(ctx, source, form, dependsOn)
	if err != nil {
		return nil, err
	}
	options := make([]params.Option, len(output))
	for i, entry := range output {
		if json.Unmarshal(entry, &options[i]) != nil || options[i].Value == nil {
			options[i] = params.Option{Value: entry} // the bare value
		}
	}
	return options, nil
}

func (a asker) options(ctx context.Context, source string, form, dependsOn json.RawMessage) ([]json.RawMessage, error) {
	output, err := a.ask(ctx, source, object("form", form, "dependsOn", dependsOn))
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if json.Unmarshal(output, &list) != nil || list == nil {
		return nil, a.invalid(source, "want a list of options")
	}
	return list, nil
}

// Validate implements params.Asker.
func (a asker) Validate(ctx context.Context, name string, value, form json.RawMessage) (string, error) {
	output, err := a.ask(ctx, name, object("value", value, "form", form))
	if err != nil {
		return "", err
	}
	var says struct {
		OK      *bool  `json:"ok"`
		Message string `json:"message"`
	}
	if json.Unmarshal(output, &says) != nil || says.OK == nil {
		return "", a.invalid(name, "want {ok, message?}")
	}
	switch {
	case *says.OK:
		return "", nil
	case says.Message == "":
		return "is not valid", nil
	}
	return says.Message, nil
}

func (a asker) ask(ctx context.Context, name string, input json.RawMessage) (json.RawMessage, error) {
	result, err := a.m.invoke(ctx, a.def, a.tenant, a.connectionID, name, hook.Call{Input: input})
	if errors.Is(err, trigger.ErrUnavailable) {
		return nil, err
	}
	if err != nil {
		step, _ := stepError(err, "resolution")
		return nil, &HookFailedError{Hook: name, Err: step}
	}
	return result.Output, nil
}

func (a asker) invalid(name, message string) error {
	return &HookFailedError{Hook: name, Err: &trigger.StepError{Code: hook.CodeReturnedInvalid, Message: message, Phase: "resolution"}}
}

// OptionsRequest asks what a param of a trigger may be.
type OptionsRequest struct {
	AppID, TriggerKey string
	Param             string // its path
	ConnectionID      string // "" when none
	Form              json.RawMessage
}

// ParamOptions gives the options of a param, given what is filled in so far, for
// whoever draws the form (Param RFC §options). Errors: trigger.ErrUnknownApp,
// ErrUnknownTrigger, ErrUnknownConnection, *trigger.InvalidError,
// *HookFailedError, trigger.ErrUnavailable.
func (m *TriggerManager) ParamOptions(ctx context.Context, tenant string, r OptionsRequest) (json.RawMessage, error) {
	def, err := m.apps.Trigger(r.AppID, r.TriggerKey)
	if err != nil {
		return nil, err
	}
	choices, ok := params.ChoicesOf(def.Params, r.Param, r.Form)
	if !ok {
		return nil, &trigger.InvalidError{Code: "unknown_param", Message: "the trigger has no such param with options"}
	}
	if choices.Source == "" {
		return choices.Static, nil
	}
	if err := m.checkConnection(ctx, tenant, def, r.ConnectionID); err != nil {
		return nil, err
	}
	form := r.Form
	if len(form) == 0 {
		form = json.RawMessage("{}")
	}
	list, err := asker{m, def, tenant, r.ConnectionID}.options(ctx, choices.Source, form, choices.DependsOn)
	if err != nil {
		return nil, err
	}
	return json.Marshal(list)
}

package manager

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Connections gives hooks their connection; package connection implements it.
type Connections interface {
	// Ready gives the redacted connection that a hook may see, once the gates of
	// the Connection RFC are passed and a due refresh is done. The error is a
	// *hook.Error of phase auth, or wraps trigger.ErrUnavailable.
	Ready(ctx context.Context, tenant, appID, connectionID string) (json.RawMessage, error)
}

// noConnections is for hosts that keep none.
type noConnections struct{}

func (noConnections) Ready(context.Context, string, string, string) (json.RawMessage, error) {
	return nil, &hook.Error{Code: hook.CodeUnknownConnection, Phase: "auth", Message: "this host keeps no connections"}
}

// invoke runs a hook of a trigger. With a connection, its gates come first and
// the hook gets it as ctx.connection (w6w contract §5).
func (m *TriggerManager) invoke(ctx context.Context, def *trigger.Definition, tenant, connectionID, name string, call hook.Call) (hook.Result, error) {
	call.App, call.Hook, call.Limits = appRef(def, tenant), def.Key+"/"+name, m.limits
	if connectionID != "" {
		connection, err := m.connections.Ready(ctx, tenant, def.AppID, connectionID)
		if err != nil {
			return hook.Result{}, err
		}
		call.Ctx = object("connection", connection)
	}
	return m.hooks.Invoke(ctx, call)
}

// checkConnection refuses a subscription whose hooks could not run: the trigger
// needs a connection, or the one given is not the app's, or not usable.
func (m *TriggerManager) checkConnection(ctx context.Context, tenant string, def *trigger.Definition, connectionID string) error {
	if connectionID == "" {
		if def.RequiresAuth {
			return &trigger.InvalidError{Code: "connection_required", Message: "this trigger needs a connection of its app: give connectionId"}
		}
		return nil
	}
	_, err := m.connections.Ready(ctx, tenant, def.AppID, connectionID)
	var gate *hook.Error
	switch {
	case !errors.As(err, &gate):
		return err
	case gate.Code == hook.CodeUnknownConnection:
		return trigger.ErrUnknownConnection
	}
	return &trigger.InvalidError{Code: gate.Code, Message: gate.Message}
}

package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// connectionJSON is a connection as readers see it (w6w Connection RFC): a
// credential goes in and never comes out.
type connectionJSON struct {
	ID              string                  `json:"id"`
	App             string                  `json:"app"`
	Auth            string                  `json:"auth"`
	State           trigger.ConnectionState `json:"state"`
	Owner           string                  `json:"owner,omitempty"`
	Label           string                  `json:"label,omitempty"`
	Display         json.RawMessage         `json:"display,omitempty"`
	Target          json.RawMessage         `json:"target,omitempty"`
	HasCredential   bool                    `json:"hasCredential"`
	ExpiresAt       *string                 `json:"expiresAt"`
	LastRefreshedAt *string                 `json:"lastRefreshedAt"`
	Error           string                  `json:"error,omitempty"`
	CreatedAt       string                  `json:"createdAt"`
	UpdatedAt       string                  `json:"updatedAt"`
}

type connectionBody struct {
	Connection connectionJSON `json:"connection"`
}

func connectionOf(c *trigger.Connection) connectionBody {
	return connectionBody{connectionJSON{
		ID: c.ID, App: c.AppID, Auth: c.Auth, State: c.State, Owner: c.Owner, Label: c.Label, Display: c.Display, Target: c.Target,
		HasCredential: c.Credential != nil, ExpiresAt: isoOrNull(c.ExpiresAt), LastRefreshedAt: isoOrNull(c.LastRefreshedAt), Error: c.Error,
		CreatedAt: iso(c.CreatedAt), UpdatedAt: iso(c.UpdatedAt),
	}}
}

func (a *API) getConnection(c echo.Context, who *apikey.Principal) error {
	id, ok := param(c, "id")
	if !ok {
		return trigger.ErrUnknownConnection
	}
	found, err := a.Ledger.Connection(c.Request().Context(), who.Tenant, id)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, connectionOf(found))
}

// wantedConnection is the body of a PUT. All of it replaces what was there, but
// the credential, and with it its state and expiry, stays when none is given:
// whoever renames a connection need not know it.
type wantedConnection struct {
	App        string                  `json:"app"`
	Auth       string                  `json:"auth"`
	State      trigger.ConnectionState `json:"state"`
	Owner      string                  `json:"owner"`
	Label      string                  `json:"label"`
	Display    json.RawMessage         `json:"display"`
	Target     json.RawMessage         `json:"target"`
	Credential json.RawMessage         `json:"credential"`
	ExpiresAt  *time.Time              `json:"expiresAt"`
}

func (a *API) putConnection(c echo.Context, who *apikey.Principal) error {
	id, ok := param(c, "id")
	if !ok {
		return &trigger.InvalidError{Code: "invalid_body", Message: "the connection's id has at most 256 bytes and no control characters"}
	}
	var body wantedConnection
	if err := readJSON(c, &body); err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := a.checkConnection(&body); err != nil {
		return err
	}
	if err := a.fillState(ctx, who.Tenant, id, &body); err != nil {
		return err
	}
	created, err := a.Ledger.PutConnection(ctx, &trigger.Connection{
		ID: id, Tenant: who.Tenant, AppID: body.App, Auth: body.Auth, State: body.State, Owner: body.Owner, Label: body.Label,
		Display: value(body.Display), Target: value(body.Target), Credential: trigger.Credential(value(body.Credential)), ExpiresAt: body.ExpiresAt,
	})
	if err != nil {
		return err
	}
	stored, err := a.Ledger.Connection(ctx, who.Tenant, id)
	if err != nil {
		return err
	}
	a.Log.Info("connection.put", zap.String("connection_id", id), zap.String("app_id", body.App), obs.Tenant(who.Tenant), zap.String("key_id", who.KeyID))
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return writeJSON(c, status, connectionOf(stored))
}

// fillState gives a connection whose state is not said its own: connected with a
// new credential, else what it was.
func (a *API) fillState(ctx context.Context, tenant, id string, body *wantedConnection) error {
	switch {
	case body.State != "":
		return nil
	case value(body.Credential) != nil:
		body.State = trigger.ConnectionConnected
		return nil
	}
	body.State = trigger.ConnectionPending
	before, err := a.Ledger.Connection(ctx, tenant, id)
	if errors.Is(err, trigger.ErrUnknownConnection) {
		return nil
	}
	if err != nil {
		return err
	}
	body.State = before.State
	return nil
}

// checkConnection holds a body against the app.
func (a *API) checkConnection(body *wantedConnection) error {
	app, err := a.Apps.App(body.App)
	if err != nil {
		return err
	}
	known := func(m trigger.AuthMethod) bool { return m.Key == body.Auth }
	if body.Auth != "" && !slices.ContainsFunc(app.Auth, known) {
		return &trigger.InvalidError{Code: "invalid_body", Message: "auth must be the key of one of the app's auth methods"}
	}
	if body.State != "" && !slices.Contains(trigger.ConnectionStates, body.State) {
		return &trigger.InvalidError{Code: "invalid_body", Message: "state must be one of pending, connected, needs_refresh, broken, revoked"}
	}
	if strings.ContainsRune(string(body.Display)+string(body.Target), 0) {
		return &trigger.InvalidError{Code: "invalid_body", Message: "display and target must not hold NUL"}
	}
	return nil
}

// value is a JSON value that is there; null is none.
func value(text json.RawMessage) json.RawMessage {
	if string(text) == "null" {
		return nil
	}
	return text
}

func (a *API) deleteConnection(c echo.Context, who *apikey.Principal) error {
	id, ok := param(c, "id")
	if !ok {
		return trigger.ErrUnknownConnection
	}
	n, err := a.Manager.DeleteConnection(c.Request().Context(), who.Tenant, id)
	if err != nil {
		return err
	}
	a.Log.Info("connection.deleted", zap.String("connection_id", id), zap.Int("subscriptions", n), obs.Tenant(who.Tenant), zap.String("key_id", who.KeyID))
	return writeJSON(c, http.StatusOK, destroyedJSON{true, n})
}

package api

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

type appJSON struct {
	ID           string           `json:"id"`
	Title        string           `json:"title"`
	Description  string           `json:"description,omitempty"`
	Version      string           `json:"version"`
	State        trigger.AppState `json:"state"`
	HasAuth      bool             `json:"hasAuth"`
	TriggerCount int              `json:"triggerCount"`
	LoadError    string           `json:"loadError,omitempty"`
}

type triggerJSON struct {
	Key           string          `json:"key"`
	Title         string          `json:"title"`
	Description   string          `json:"description,omitempty"`
	Type          trigger.Type    `json:"type"`
	RequiresAuth  bool            `json:"requiresAuth"`
	MinIntervalMs int64           `json:"minIntervalMs,omitempty"`
	Params        json.RawMessage `json:"params,omitempty"`
	Output        json.RawMessage `json:"output,omitempty"`
	Sample        json.RawMessage `json:"sample,omitempty"`
}

func appOf(app *trigger.App) appJSON {
	state := app.State
	if state == "" {
		state = trigger.AppActive
	}
	return appJSON{app.ID, app.Title, app.Description, app.Version, state, app.HasAuth, len(app.Triggers), app.LoadError}
}

func triggersOf(app *trigger.App) []triggerJSON {
	out := make([]triggerJSON, len(app.Triggers))
	for i, def := range app.Triggers {
		out[i] = triggerJSON{
			def.Key, def.Title, def.Description, def.Type, def.RequiresAuth, def.MinInterval.Milliseconds(), def.Params, def.Output, def.Sample,
		}
	}
	return out
}

func (a *API) listApps(c echo.Context, _ *apikey.Principal) error {
	apps := a.Apps.Apps()
	return writeJSON(c, http.StatusOK, appsOf(apps))
}

type appsJSON struct {
	Apps []appJSON `json:"apps"`
}

func appsOf(apps []*trigger.App) appsJSON {
	out := appsJSON{make([]appJSON, len(apps))}
	for i, app := range apps {
		out.Apps[i] = appOf(app)
	}
	return out
}

// getApp shows an app with its triggers (RFC §Conformance, Registry). Tocsin
// runs no actions.
func (a *API) getApp(c echo.Context, _ *apikey.Principal) error {
	app, err := a.app(c)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, struct {
		App      appJSON       `json:"app"`
		Actions  []struct{}    `json:"actions"`
		Triggers []triggerJSON `json:"triggers"`
		Version  string        `json:"version"`
		Digest   string        `json:"digest"`
	}{appOf(app), []struct{}{}, triggersOf(app), app.Version, app.Hash})
}

func (a *API) listTriggers(c echo.Context, _ *apikey.Principal) error {
	app, err := a.app(c)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, struct {
		Triggers []triggerJSON `json:"triggers"`
	}{triggersOf(app)})
}

func (a *API) app(c echo.Context) (*trigger.App, error) {
	id, ok := param(c, "id")
	if !ok {
		return nil, trigger.ErrUnknownApp
	}
	return a.Apps.App(id)
}

// changeApp takes the operator's word on an app. The other processes hear of it
// within seconds.
func (a *API) changeApp(c echo.Context, who *apikey.Principal) error {
	app, err := a.app(c)
	if err != nil {
		return err
	}
	var body struct {
		State trigger.AppState `json:"state"`
	}
	if err := readJSON(c, &body); err != nil {
		return err
	}
	switch body.State {
	case trigger.AppActive, trigger.AppDisabled, trigger.AppArchived:
	default:
		return &trigger.InvalidError{Code: "invalid_body", Message: "state must be active, disabled or archived"}
	}
	ctx := c.Request().Context()
	if err := a.Ledger.SetAppState(ctx, app.ID, body.State); err != nil {
		return err
	}
	if err := a.Apps.Refresh(ctx); err != nil {
		return err
	}
	if app, err = a.Apps.App(app.ID); err != nil {
		return err
	}
	a.Log.Info("app.state_set", zap.String("app_id", app.ID), zap.String("status", string(body.State)), zap.String("key_id", who.KeyID))
	return writeJSON(c, http.StatusOK, struct {
		App appJSON `json:"app"`
	}{appOf(app)})
}

// reloadApps reads APPS_DIR again, here at once and in every other process
// within seconds. An app that does not load is in the answer, with its error.
func (a *API) reloadApps(c echo.Context, who *apikey.Principal) error {
	ctx := c.Request().Context()
	if err := a.Ledger.RequestReload(ctx); err != nil {
		return err
	}
	if err := a.Apps.Reload(ctx); err != nil {
		return err
	}
	a.Log.Info("app.reload_requested", zap.String("key_id", who.KeyID))
	return writeJSON(c, http.StatusOK, appsOf(a.Apps.Apps()))
}

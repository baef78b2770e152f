package api

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

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
	out := struct {
		Apps []appJSON `json:"apps"`
	}{make([]appJSON, len(apps))}
	for i, app := range apps {
		out.Apps[i] = appOf(app)
	}
	return writeJSON(c, http.StatusOK, out)
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

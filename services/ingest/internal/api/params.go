package api

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// paramOptions gives what a param may be, for whoever draws the form: the app's
// own code computes dynamic options, from what is filled in so far.
func (a *API) paramOptions(c echo.Context, who *apikey.Principal) error {
	app, ok := param(c, "id")
	if !ok {
		return trigger.ErrUnknownApp
	}
	key, ok := param(c, "key")
	if !ok {
		return trigger.ErrUnknownTrigger
	}
	path, _ := param(c, "param") // what is no name is no param's
	var body struct {
		ConnectionID *string                    `json:"connectionId"`
		Form         map[string]json.RawMessage `json:"form"`
	}
	if err := readJSON(c, &body); err != nil {
		return err
	}
	request := manager.OptionsRequest{AppID: app, TriggerKey: key, Param: path}
	if body.ConnectionID != nil {
		request.ConnectionID = *body.ConnectionID
	}
	if body.Form != nil {
		form, err := json.Marshal(body.Form)
		if err != nil {
			return err
		}
		request.Form = form
	}
	options, err := a.Manager.ParamOptions(c.Request().Context(), who.Tenant, request)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, struct {
		Options json.RawMessage `json:"options"`
	}{options})
}

// pollJSON says how a poll subscription's checks go (issue 3: “state of each poll
// visible”).
type pollJSON struct {
	IntervalMs int64      `json:"intervalMs"`
	NextAt     string     `json:"nextAt"`
	LastAt     *string    `json:"lastAt"`
	Failures   int        `json:"failures"`
	Running    bool       `json:"running"`
	Error      *errorJSON `json:"error,omitempty"`
}

func pollOf(p *trigger.PollState) *pollJSON {
	if p == nil {
		return nil
	}
	out := &pollJSON{IntervalMs: p.Interval.Milliseconds(), NextAt: iso(p.NextAt), LastAt: isoOrNull(p.LastAt), Failures: p.Failures, Running: p.Running}
	if p.Code != "" {
		out.Error = &errorJSON{Code: p.Code, Message: p.Message}
	}
	return out
}

package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/params"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// subscriptionJSON is a Subscription as the hosted client reads it, with its
// callback URL beside.
type subscriptionJSON struct {
	ID           string                `json:"id"`
	AppID        string                `json:"appId"`
	TriggerKey   string                `json:"triggerKey"`
	ConnectionID *string               `json:"connectionId"`
	WorkflowID   string                `json:"workflowId"`
	Params       json.RawMessage       `json:"params"`
	State        json.RawMessage       `json:"state"`
	Enabled      bool                  `json:"enabled"`
	Delivery     trigger.DeliveryState `json:"delivery"`
	CreatedAt    string                `json:"createdAt"`
	UpdatedAt    string                `json:"updatedAt"`
	CallbackURL  string                `json:"callbackUrl,omitempty"`
	WebhookURL   string                `json:"webhookUrl,omitempty"`
	Poll         *pollJSON             `json:"poll,omitempty"`
}

type subscriptionBody struct {
	Subscription subscriptionJSON `json:"subscription"`
}

func (a *API) subscriptionJSON(s *trigger.Subscription) subscriptionJSON {
	def, err := a.Apps.Trigger(s.AppID, s.TriggerKey)
	if err != nil {
		def = &trigger.Definition{Type: trigger.TypeWebhook} // declares no param, so every value counts as secret
	}
	out := subscriptionJSON{
		ID: s.ID.Reveal(), AppID: s.AppID, TriggerKey: s.TriggerKey, ConnectionID: orNull(s.ConnectionID), WorkflowID: s.WorkflowID,
		Params: params.Mask(def.Params, s.Params), State: stateSummary(s.State), Enabled: s.Enabled(), Delivery: s.Delivery,
		CreatedAt: iso(s.CreatedAt), UpdatedAt: iso(s.UpdatedAt),
	}
	if def.Type != trigger.TypePoll {
		out.CallbackURL = a.Manager.CallbackURL(s.ID)
		out.WebhookURL = out.CallbackURL
	}
	return out
}

// stateSummary shows which keys the state has (RFC: "state summary"). The host
// never looks into state, and an app may keep a signing secret there.
func stateSummary(state json.RawMessage) json.RawMessage {
	state = bytes.TrimSpace(state)
	if len(state) == 0 || string(state) == "null" {
		return json.RawMessage("null")
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(state, &keys); err != nil {
		return json.RawMessage(`"` + params.Redacted + `"`)
	}
	for key := range keys {
		keys[key] = json.RawMessage(`"` + params.Redacted + `"`)
	}
	summary, err := json.Marshal(keys)
	if err != nil {
		return json.RawMessage(`"` + params.Redacted + `"`)
	}
	return summary
}

func (a *API) listSubscriptions(c echo.Context, who *apikey.Principal) error {
	workflow := "" // all
	if c.Param("id") != "" {
		var ok bool
		if workflow, ok = param(c, "id"); !ok {
			return trigger.ErrUnknownWorkflow
		}
	}
	p, err := page(c)
	if err != nil {
		return err
	}
	list, next, err := a.Manager.ListSubscriptionsForWorkflow(c.Request().Context(), who.Tenant, workflow, p)
	if err != nil {
		return err
	}
	out := struct {
		Subscriptions []subscriptionJSON `json:"subscriptions"`
		NextCursor    string             `json:"nextCursor,omitempty"`
	}{make([]subscriptionJSON, len(list)), next}
	for i, s := range list {
		out.Subscriptions[i] = a.subscriptionJSON(s)
	}
	return writeJSON(c, http.StatusOK, out)
}

func (a *API) getSubscription(c echo.Context, who *apikey.Principal) error {
	id, err := subscriptionParam(c)
	if err != nil {
		return err
	}
	s, err := a.Manager.GetSubscription(c.Request().Context(), who.Tenant, id)
	if err != nil {
		return err
	}
	checks, err := a.Ledger.PollState(c.Request().Context(), s.SID)
	if err != nil {
		return err
	}
	out := a.subscriptionJSON(s)
	out.Poll = pollOf(checks)
	return writeJSON(c, http.StatusOK, subscriptionBody{out})
}

func (a *API) createSubscription(c echo.Context, who *apikey.Principal) error {
	app, ok := param(c, "id")
	if !ok {
		return trigger.ErrUnknownApp
	}
	key, ok := param(c, "key")
	if !ok {
		return trigger.ErrUnknownTrigger
	}
	var body struct {
		WorkflowID   string          `json:"workflowId"`
		ConnectionID *string         `json:"connectionId"`
		Params       json.RawMessage `json:"params"`
		PollMs       int64           `json:"pollIntervalMs"`
		hostData
	}
	if err := readJSON(c, &body); err != nil {
		return err
	}
	request := manager.SubscribeRequest{AppID: app, TriggerKey: key, WorkflowID: body.WorkflowID, Host: body.json()}
	if body.ConnectionID != nil {
		request.ConnectionID = *body.ConnectionID
	}
	if len(body.Params) > 0 && string(body.Params) != "null" {
		request.Params = body.Params
	}
	const most = 365 * 24 * time.Hour
	if body.PollMs < 0 || body.PollMs > most.Milliseconds() {
		return &trigger.InvalidError{Code: "invalid_body", Message: "pollIntervalMs must be a number of milliseconds, up to a year"}
	}
	request.PollInterval = time.Duration(body.PollMs) * time.Millisecond
	if !plain(request.WorkflowID) || request.ConnectionID != "" && !plain(request.ConnectionID) {
		return &trigger.InvalidError{Code: "invalid_body", Message: "workflowId is required; ids have at most 256 bytes and no control characters"}
	}
	s, err := a.Manager.Subscribe(c.Request().Context(), who.Tenant, request)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusCreated, subscriptionBody{a.subscriptionJSON(s)})
}

// hostData is what the host does with the subscription's calls before any hook,
// in place of what its trigger declares (docs/vendors.md). It may hold secrets and is
// never shown.
type hostData struct {
	Preset    json.RawMessage `json:"preset,omitempty"`
	Verify    json.RawMessage `json:"verify,omitempty"`
	Handshake json.RawMessage `json:"handshake,omitempty"`
	Dedup     json.RawMessage `json:"dedup,omitempty"`
}

func (h hostData) json() json.RawMessage {
	for _, member := range []*json.RawMessage{&h.Preset, &h.Verify, &h.Handshake, &h.Dedup} {
		if string(*member) == "null" {
			*member = nil
		}
	}
	text, _ := json.Marshal(h) //nolint:errchkjson // its members were JSON before
	if string(text) == "{}" {
		return nil
	}
	return text
}

func (a *API) changeSubscription(c echo.Context, who *apikey.Principal) error {
	id, err := subscriptionParam(c)
	if err != nil {
		return err
	}
	var body struct {
		Enabled *bool `json:"enabled"`
	}
	if err := readJSON(c, &body); err != nil {
		return err
	}
	if body.Enabled == nil {
		return &trigger.InvalidError{Code: "invalid_body", Message: "enabled is required: true or false"}
	}
	s, err := a.Manager.SetEnabled(c.Request().Context(), who.Tenant, id, *body.Enabled)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, subscriptionBody{a.subscriptionJSON(s)})
}

type okJSON struct {
	OK bool `json:"ok"`
}

func (a *API) deleteSubscription(c echo.Context, who *apikey.Principal) error {
	id, err := subscriptionParam(c)
	if err != nil {
		return err
	}
	if err := a.Manager.Unsubscribe(c.Request().Context(), who.Tenant, id); err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, okJSON{true})
}

// testSubscription sends a call as a vendor would: the body given, else the
// trigger's sample.
func (a *API) testSubscription(c echo.Context, who *apikey.Principal) error {
	id, err := subscriptionParam(c)
	if err != nil {
		return err
	}
	s, err := a.Manager.GetSubscription(c.Request().Context(), who.Tenant, id)
	if err != nil {
		return err
	}
	call, err := a.testCall(c, s)
	if err != nil {
		return err
	}
	result, err := a.Manager.Ingest(c.Request().Context(), s.ID, call)
	if err != nil {
		return err
	}
	a.Log.Info("subscription.tested", obs.Subscription(s.ID), obs.Events(result.EventIDs), obs.Status(result.Status), zap.String("key_id", who.KeyID))
	return writeJSON(c, http.StatusOK, ingestedOf(result))
}

// ingestedJSON says what became of a call.
type ingestedJSON struct {
	EventIDs []string       `json:"eventIds"`
	Status   trigger.Status `json:"status"`
	Reason   trigger.Reason `json:"reason,omitempty"`
	Error    *errorJSON     `json:"error,omitempty"`
}

func ingestedOf(result trigger.IngestResult) ingestedJSON {
	ids := result.EventIDs
	if ids == nil {
		ids = []string{}
	}
	return ingestedJSON{ids, result.Status, result.Reason, stepErrorJSON(result.Err)}
}

// deleteWorkflow destroys what depends on a workflow that is gone. Tocsin keeps
// no workflows itself, so one that nothing depends on is no error.
func (a *API) deleteWorkflow(c echo.Context, who *apikey.Principal) error {
	id, ok := param(c, "id")
	if !ok {
		return trigger.ErrUnknownWorkflow
	}
	n, err := a.Manager.UnsubscribeWorkflow(c.Request().Context(), who.Tenant, id)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, destroyedJSON{true, n})
}

// destroyedJSON is the answer of a delete that took subscriptions with it.
type destroyedJSON struct {
	OK            bool `json:"ok"`
	Subscriptions int  `json:"subscriptions"`
}

func (a *API) testCall(c echo.Context, s *trigger.Subscription) (*trigger.Call, error) {
	body, err := readBody(c)
	if err != nil {
		return nil, err
	}
	contentType := c.Request().Header.Get("Content-Type")
	if len(body) == 0 {
		contentType, body = "application/json", a.sample(s)
	}
	call := &trigger.Call{Source: trigger.SourceTest, Method: http.MethodPost, Path: trigger.CallbackPath + s.ID.Reveal(), Body: body}
	if contentType != "" {
		call.Header = []trigger.Field{{Name: "content-type", Value: contentType}}
	}
	return call, nil
}

func (a *API) sample(s *trigger.Subscription) []byte {
	if def, err := a.Apps.Trigger(s.AppID, s.TriggerKey); err == nil && len(def.Sample) > 0 {
		return def.Sample
	}
	return []byte(`{"test":true}`)
}

func stepErrorJSON(err *trigger.StepError) *errorJSON {
	if err == nil {
		return nil
	}
	return &errorJSON{Code: err.Code, Phase: err.Phase, Message: err.Message}
}

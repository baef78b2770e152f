package api

import (
	"encoding/json"
	"mime"
	"net/http"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/explain"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/triggercall"
)

// eventJSON is a line of the history as the hosted client reads it: metadata
// only. reason is there for rows that never reached the queue.
type eventJSON struct {
	ID             string         `json:"id"`
	SubscriptionID string         `json:"subscriptionId"`
	Status         trigger.Status `json:"status"`
	Attempts       int            `json:"attempts"`
	ReceivedAt     string         `json:"receivedAt"`
	DispatchedAt   *string        `json:"dispatchedAt"`
	RunID          *string        `json:"runId"`
	Reason         trigger.Reason `json:"reason,omitempty"`
}

func eventOf(e *trigger.EventSummary) eventJSON {
	return eventJSON{
		ID: e.ID, SubscriptionID: e.Subscription.Reveal(), Status: e.Status, Attempts: e.Attempts, ReceivedAt: iso(e.ReceivedAt),
		DispatchedAt: isoOrNull(e.DispatchedAt), RunID: orNull(e.RunID), Reason: e.Reason,
	}
}

// eventDetailJSON adds what an operator asks next.
type eventDetailJSON struct {
	eventJSON
	WorkflowID    string          `json:"workflowId"`
	Source        trigger.Source  `json:"source"`
	CallID        string          `json:"callId,omitempty"`
	AppVersion    string          `json:"appVersion,omitempty"`
	DuplicateOf   string          `json:"duplicateOf,omitempty"`
	NextAttemptAt *string         `json:"nextAttemptAt,omitempty"`
	Claim         *claimJSON      `json:"claim,omitempty"`
	Error         *errorJSON      `json:"error,omitempty"`
	ErrorStack    string          `json:"errorStack,omitempty"`
	Traceparent   string          `json:"traceparent,omitempty"`
	Verification  json.RawMessage `json:"verification,omitempty"`
}

type claimJSON struct {
	Owner     string  `json:"owner"`
	ExpiresAt *string `json:"expiresAt"`
}

type attemptJSON struct {
	ID         string     `json:"id"`
	Attempt    int        `json:"attempt"`
	Outcome    string     `json:"outcome"`
	RunID      *string    `json:"runId"`
	Error      *errorJSON `json:"error"`
	EndedAt    string     `json:"endedAt"`
	DurationMs int64      `json:"durationMs"`
}

func (a *API) listEvents(c echo.Context, who *apikey.Principal) error {
	id, err := subscriptionParam(c)
	if err != nil {
		return err
	}
	p, err := page(c)
	if err != nil {
		return err
	}
	status := trigger.Status(c.QueryParam("status"))
	if status != "" && !status.Valid() {
		return &trigger.InvalidError{Code: "invalid_status", Message: "status must be one of received, dispatching, dispatched, failed, ignored"}
	}
	list, next, err := a.Ledger.Events(c.Request().Context(), who.Tenant, id, status, p)
	if err != nil {
		return err
	}
	out := struct {
		Events     []eventJSON `json:"events"`
		NextCursor string      `json:"nextCursor,omitempty"`
	}{make([]eventJSON, len(list)), next}
	for i := range list {
		out.Events[i] = eventOf(&list[i])
	}
	return writeJSON(c, http.StatusOK, out)
}

// getEvent shows everything known of an event: {event, call, payload, attempts,
// explain}. The call is masked, the payload the stored text, byte for byte.
func (a *API) getEvent(c echo.Context, who *apikey.Principal) error {
	d, err := a.event(c, who)
	if err != nil {
		return err
	}
	mask, err := a.bodyMask(c, d)
	if err != nil {
		return err
	}
	var out document
	return out.
		value("event", detailOf(d)).
		raw("call", a.call(d, mask)).
		raw("payload", mask(d.Normalized)).
		value("attempts", attemptsOf(d)).
		value("explain", explain.Event(d, "")).
		write(c)
}

func (a *API) event(c echo.Context, who *apikey.Principal) (*trigger.EventDetail, error) {
	id, err := eventParam(c)
	if err != nil {
		return nil, err
	}
	return a.Ledger.Event(c.Request().Context(), who.Tenant, id)
}

// call is the masked call, nil when the event came without one, as from a poll.
func (a *API) call(d *trigger.EventDetail, mask func(json.RawMessage) json.RawMessage) json.RawMessage {
	if d.Call == nil || d.Call.Method == "" {
		return nil
	}
	return triggercall.StoredViewWith(d.Call, a.HostURL, mask)
}

// bodyMask hides the credentials that the vendor puts into its bodies. The
// stored bytes are as they came; /raw gives them.
func (a *API) bodyMask(c echo.Context, d *trigger.EventDetail) (func(json.RawMessage) json.RawMessage, error) {
	s, err := a.Ledger.SubscriptionBySID(c.Request().Context(), d.SID)
	if err != nil {
		return nil, err
	}
	return a.Manager.BodyMask(s), nil
}

func detailOf(d *trigger.EventDetail) eventDetailJSON {
	out := eventDetailJSON{
		eventJSON: eventOf(&d.EventSummary), WorkflowID: d.WorkflowID, Source: d.Source, CallID: d.CallID, AppVersion: d.AppVersion,
		DuplicateOf: d.DuplicateOf, NextAttemptAt: isoOrNull(d.NextAttemptAt), ErrorStack: d.ErrorStack, Traceparent: d.Trace,
	}
	if d.ClaimOwner != "" {
		out.Claim = &claimJSON{d.ClaimOwner, isoOrNull(d.ClaimExpiresAt)}
	}
	if d.LastErrorCode != "" || d.LastError != "" {
		out.Error = &errorJSON{Code: d.LastErrorCode, Phase: d.ErrorPhase, Message: d.LastError}
	}
	if d.Call != nil && json.Valid(d.Call.Verification) {
		out.Verification = d.Call.Verification
	}
	return out
}

func attemptsOf(d *trigger.EventDetail) []attemptJSON {
	out := make([]attemptJSON, len(d.AttemptLog))
	for i, attempt := range d.AttemptLog {
		out[i] = attemptJSON{
			ID: attempt.ID, Attempt: attempt.Attempt, Outcome: attempt.Outcome, RunID: orNull(attempt.RunID), EndedAt: iso(attempt.EndedAt),
			DurationMs: attempt.Duration.Milliseconds(),
		}
		if attempt.Code != "" || attempt.Message != "" {
			out[i].Error = &errorJSON{Code: attempt.Code, Message: attempt.Message}
		}
	}
	return out
}

// getRaw gives the request's bytes as they came. They are a stranger's: nothing
// may run them in a browser.
func (a *API) getRaw(c echo.Context, who *apikey.Principal) error {
	d, err := a.event(c, who)
	if err != nil {
		return err
	}
	if d.Call == nil || d.Call.Method == "" {
		return trigger.ErrUnknownEvent // it came without a call
	}
	contentType := "application/octet-stream"
	for _, field := range d.Call.Header {
		if _, _, err := mime.ParseMediaType(field.Value); field.Name == "content-type" && err == nil {
			contentType = field.Value
		}
	}
	header := c.Response().Header()
	header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": d.ID + ".bin"}))
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("Cache-Control", "no-store")
	return c.Blob(http.StatusOK, contentType, d.Call.Body)
}

// requeue sets a dead letter up to run again (RFC §Retry backoff: "failed →
// received, reset attempts = 0").
func (a *API) requeue(c echo.Context, who *apikey.Principal) error {
	const code = "requeue_failed" // for an event that is not there, as the hosted client has it
	id, err := eventParam(c)
	if err != nil {
		return &codedError{code, err}
	}
	err = a.Ledger.Requeue(c.Request().Context(), who.Tenant, id)
	if status, _ := statusOf(err); err != nil && status == http.StatusNotFound {
		return &codedError{code, err}
	}
	if err != nil {
		return err
	}
	a.Log.Info("event.requeued", obs.Event(id), obs.Tenant(who.Tenant), zap.String("key_id", who.KeyID))
	return writeJSON(c, http.StatusOK, okJSON{true})
}

// reingest runs a call whose parser threw through handleIngest again (DESIGN §5).
func (a *API) reingest(c echo.Context, who *apikey.Principal) error {
	id, err := eventParam(c)
	if err != nil {
		return err
	}
	result, err := a.Manager.Reingest(c.Request().Context(), who.Tenant, id)
	if err != nil {
		return err
	}
	a.Log.Info("event.reingested", obs.Event(id), obs.Tenant(who.Tenant), obs.Events(result.EventIDs), obs.Status(result.Status), zap.String("key_id", who.KeyID))
	return writeJSON(c, http.StatusOK, ingestedOf(result))
}

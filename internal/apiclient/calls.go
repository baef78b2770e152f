package apiclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
)

// App is one app as lists show it.
type App struct {
	ID           string    `json:"id"`
	Version      string    `json:"version"`
	Title        string    `json:"title"`
	Description  string    `json:"description"`
	State        string    `json:"state"`
	LoadError    string    `json:"loadError"`
	TriggerCount int       `json:"triggerCount"`
	Triggers     []Trigger `json:"triggers"`
}

// Trigger is one trigger of an app.
type Trigger struct {
	Key          string          `json:"key"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	Type         string          `json:"type"`
	RequiresAuth bool            `json:"requiresAuth"`
	Params       json.RawMessage `json:"params"`
}

// Subscription is one subscription.
type Subscription struct {
	ID           string          `json:"id"`
	AppID        string          `json:"appId"`
	TriggerKey   string          `json:"triggerKey"`
	ConnectionID string          `json:"connectionId"`
	WorkflowID   string          `json:"workflowId"`
	Params       json.RawMessage `json:"params"`
	State        json.RawMessage `json:"state"`
	Enabled      bool            `json:"enabled"`
	Delivery     string          `json:"delivery"`
	CallbackURL  string          `json:"callbackUrl"`
	Poll         *Poll           `json:"poll"`
	CreatedAt    string          `json:"createdAt"`
	UpdatedAt    string          `json:"updatedAt"`
}

// Poll says how a poll subscription's checks go.
type Poll struct {
	IntervalMs int64  `json:"intervalMs"`
	NextAt     string `json:"nextAt"`
	LastAt     string `json:"lastAt"`
	Failures   int    `json:"failures"`
	Running    bool   `json:"running"`
	Error      *Fault `json:"error"`
}

// NewSubscription asks for a subscription.
type NewSubscription struct {
	WorkflowID   string          `json:"workflowId"`
	ConnectionID string          `json:"connectionId,omitempty"`
	Params       json.RawMessage `json:"params,omitempty"`
	PollMs       int64           `json:"pollIntervalMs,omitempty"`
	// Preset is what the host does with its calls before any hook; nil keeps what
	// the trigger declares.
	Preset *Preset `json:"preset,omitempty"`
}

// Preset is a vendor and the secrets that it may sign with.
type Preset struct {
	Name   string   `json:"name"`
	Secret []string `json:"secret,omitempty"`
}

// Event is one trigger event; the second half is set by Client.Event alone.
type Event struct {
	ID             string `json:"id"`
	SubscriptionID string `json:"subscriptionId"`
	Status         string `json:"status"`
	Reason         string `json:"reason"`
	Attempts       int    `json:"attempts"`
	ReceivedAt     string `json:"receivedAt"`
	DispatchedAt   string `json:"dispatchedAt"`
	RunID          string `json:"runId"`

	WorkflowID    string `json:"workflowId"`
	Source        string `json:"source"`
	AppVersion    string `json:"appVersion"`
	DuplicateOf   string `json:"duplicateOf"`
	NextAttemptAt string `json:"nextAttemptAt"`
	Error         *Fault `json:"error"`
	ErrorStack    string `json:"errorStack"`
}

// Fault is an error as the API shows it.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (f *Fault) String() string {
	if f == nil {
		return ""
	}
	return f.Code + ": " + f.Message
}

// Attempt is one recorded attempt to start an event's run.
type Attempt struct {
	Attempt    int    `json:"attempt"`
	Outcome    string `json:"outcome"`
	RunID      string `json:"runId"`
	Error      *Fault `json:"error"`
	EndedAt    string `json:"endedAt"`
	DurationMs int64  `json:"durationMs"`
}

// Run is one run of the embedded engine.
type Run struct {
	ID         string `json:"runId"`
	WorkflowID string `json:"workflowId"`
	Status     string `json:"status"`
	Trigger    string `json:"trigger"`
	EventID    string `json:"eventId"`
	StartedAt  string `json:"startedAt"`
	FinishedAt string `json:"finishedAt"`
}

// Page asks for one page of a list.
type Page struct {
	Limit  int
	Cursor string
}

func (p Page) query() url.Values {
	q := url.Values{}
	if p.Limit > 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}
	if p.Cursor != "" {
		q.Set("cursor", p.Cursor)
	}
	return q
}

// AppList is the answer of Apps.
type AppList struct {
	Apps []App `json:"apps"`
}

// Apps lists the apps.
func (c *Client) Apps(ctx context.Context) (Answer[AppList], error) {
	return get[AppList](ctx, c, "/apps", nil)
}

// AppDetail is the answer of App.
type AppDetail struct {
	App      App       `json:"app"`
	Triggers []Trigger `json:"triggers"`
}

// App reads one app with its triggers.
func (c *Client) App(ctx context.Context, id string) (Answer[AppDetail], error) {
	return get[AppDetail](ctx, c, "/apps/"+url.PathEscape(id), nil)
}

// OneApp is the answer of SetAppState.
type OneApp struct {
	App App `json:"app"`
}

// SetAppState takes the operator's word on an app: active, disabled or archived.
func (c *Client) SetAppState(ctx context.Context, id, state string) (Answer[OneApp], error) {
	return ask[OneApp](ctx, c, http.MethodPatch, "/apps/"+url.PathEscape(id), nil, map[string]string{"state": state})
}

// ReloadApps has every process read its apps again.
func (c *Client) ReloadApps(ctx context.Context) (Answer[AppList], error) {
	return ask[AppList](ctx, c, http.MethodPost, "/apps/reload", nil, nil)
}

// TriggerList is the answer of Triggers.
type TriggerList struct {
	Triggers []Trigger `json:"triggers"`
}

// Triggers lists an app's triggers.
func (c *Client) Triggers(ctx context.Context, app string) (Answer[TriggerList], error) {
	return get[TriggerList](ctx, c, "/apps/"+url.PathEscape(app)+"/triggers", nil)
}

// OneSubscription is the answer of the calls on one subscription.
type OneSubscription struct {
	Subscription Subscription `json:"subscription"`
}

// CreateSubscription subscribes a workflow to a trigger.
func (c *Client) CreateSubscription(ctx context.Context, app, key string, wanted NewSubscription) (Answer[OneSubscription], error) {
	path := "/apps/" + url.PathEscape(app) + "/triggers/" + url.PathEscape(key) + "/subscriptions"
	return ask[OneSubscription](ctx, c, http.MethodPost, path, nil, wanted)
}

// Subscription reads one subscription.
func (c *Client) Subscription(ctx context.Context, id string) (Answer[OneSubscription], error) {
	return get[OneSubscription](ctx, c, "/subscriptions/"+url.PathEscape(id), nil)
}

// SubscriptionList is the answer of Subscriptions.
type SubscriptionList struct {
	Subscriptions []Subscription `json:"subscriptions"`
	NextCursor    string         `json:"nextCursor"`
}

// Subscriptions lists a workflow's subscriptions, or all when workflow is "".
func (c *Client) Subscriptions(ctx context.Context, workflow string, page Page) (Answer[SubscriptionList], error) {
	path := "/subscriptions"
	if workflow != "" {
		path = "/workflows/" + url.PathEscape(workflow) + "/subscriptions"
	}
	return get[SubscriptionList](ctx, c, path, page.query())
}

// SetEnabled pauses or resumes a subscription.
func (c *Client) SetEnabled(ctx context.Context, id string, enabled bool) (Answer[OneSubscription], error) {
	body := map[string]bool{"enabled": enabled}
	return ask[OneSubscription](ctx, c, http.MethodPatch, "/subscriptions/"+url.PathEscape(id), nil, body)
}

// DeleteSubscription unsubscribes.
func (c *Client) DeleteSubscription(ctx context.Context, id string) (json.RawMessage, error) {
	return c.Do(ctx, http.MethodDelete, "/subscriptions/"+url.PathEscape(id), nil, nil)
}

// EventList is the answer of Events.
type EventList struct {
	Events     []Event `json:"events"`
	NextCursor string  `json:"nextCursor"`
}

// Events lists a subscription's events, newest first; status "" is any.
func (c *Client) Events(ctx context.Context, subscription, status string, page Page) (Answer[EventList], error) {
	query := page.query()
	if status != "" {
		query.Set("status", status)
	}
	return get[EventList](ctx, c, "/subscriptions/"+url.PathEscape(subscription)+"/events", query)
}

// OneEvent is the answer of Event: everything known of an event.
type OneEvent struct {
	Event    Event           `json:"event"`
	Call     json.RawMessage `json:"call"`
	Payload  json.RawMessage `json:"payload"`
	Attempts []Attempt       `json:"attempts"`
	Explain  string          `json:"explain"`
}

// Event reads one event with its call, payload and attempts.
func (c *Client) Event(ctx context.Context, id string) (Answer[OneEvent], error) {
	return get[OneEvent](ctx, c, "/trigger-events/"+url.PathEscape(id), nil)
}

// RawEvent reads the exact bytes of an event's request.
func (c *Client) RawEvent(ctx context.Context, id string) ([]byte, error) {
	return c.Do(ctx, http.MethodGet, "/trigger-events/"+url.PathEscape(id)+"/raw", nil, nil)
}

// Requeue gives a failed event a new set of attempts.
func (c *Client) Requeue(ctx context.Context, id string) (json.RawMessage, error) {
	return c.Do(ctx, http.MethodPost, "/trigger-events/"+url.PathEscape(id)+"/requeue", nil, nil)
}

// RequeueFilter says which dead letters to requeue; what is empty does not
// matter, and All takes all of them.
type RequeueFilter struct {
	SubscriptionID string `json:"subscriptionId,omitempty"`
	WorkflowID     string `json:"workflowId,omitempty"`
	AppID          string `json:"appId,omitempty"`
	ErrorCode      string `json:"errorCode,omitempty"`
	FailedAfter    string `json:"failedAfter,omitempty"`
	FailedBefore   string `json:"failedBefore,omitempty"`
	All            bool   `json:"all,omitempty"`
}

// OneOperation is an operation under way, or over.
type OneOperation struct {
	Operation struct {
		ID        string `json:"id"`
		State     string `json:"state"`
		Total     int64  `json:"total"`
		Requeued  int64  `json:"requeued"`
		CreatedAt string `json:"createdAt"`
		EndedAt   string `json:"endedAt"`
	} `json:"operation"`
}

// RequeueAll begins to requeue every dead letter that fits.
func (c *Client) RequeueAll(ctx context.Context, filter RequeueFilter) (Answer[OneOperation], error) {
	return ask[OneOperation](ctx, c, http.MethodPost, "/trigger-events/requeue", nil, filter)
}

// Operation reads how far an operation is.
func (c *Client) Operation(ctx context.Context, id string) (Answer[OneOperation], error) {
	return ask[OneOperation](ctx, c, http.MethodGet, "/operations/"+url.PathEscape(id), nil, nil)
}

// CancelOperation stops an operation where it is.
func (c *Client) CancelOperation(ctx context.Context, id string) (Answer[OneOperation], error) {
	return ask[OneOperation](ctx, c, http.MethodDelete, "/operations/"+url.PathEscape(id), nil, nil)
}

// Ingested is the answer of Reingest.
type Ingested struct {
	EventIDs []string `json:"eventIds"`
	Status   string   `json:"status"`
	Reason   string   `json:"reason"`
	Error    *Fault   `json:"error"`
}

// Reingest runs a call whose ingest parser failed through it again.
func (c *Client) Reingest(ctx context.Context, id string) (Answer[Ingested], error) {
	return ask[Ingested](ctx, c, http.MethodPost, "/trigger-events/"+url.PathEscape(id)+"/reingest", nil, nil)
}

// OneRun is the answer of Run.
type OneRun struct {
	Run Run `json:"run"`
}

// Run reads one run.
func (c *Client) Run(ctx context.Context, id string) (Answer[OneRun], error) {
	return get[OneRun](ctx, c, "/runs/"+url.PathEscape(id), nil)
}

// RunList is the answer of Runs.
type RunList struct {
	Runs       []Run  `json:"runs"`
	NextCursor string `json:"nextCursor"`
}

// Runs lists a workflow's runs, newest first.
func (c *Client) Runs(ctx context.Context, workflow string, page Page) (Answer[RunList], error) {
	return get[RunList](ctx, c, "/workflows/"+url.PathEscape(workflow)+"/runs", page.query())
}

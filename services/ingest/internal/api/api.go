// Package api is the management API: the RFC's routes (w6w Trigger RFC §API
// endpoints) in the shapes the hosted client uses, behind bearer keys that
// decide what exists. Handlers translate; what happens is decided in the
// TriggerManager, and an error becomes a status in one function.
package api

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Manager is the part of the TriggerManager this API calls.
type Manager interface {
	Subscribe(ctx context.Context, tenant string, request manager.SubscribeRequest) (*trigger.Subscription, error)
	Unsubscribe(ctx context.Context, tenant string, id trigger.SubscriptionID) error
	GetSubscription(ctx context.Context, tenant string, id trigger.SubscriptionID) (*trigger.Subscription, error)
	ListSubscriptionsForWorkflow(ctx context.Context, tenant, workflow string, page trigger.Page) ([]*trigger.Subscription, string, error)
	SetEnabled(ctx context.Context, tenant string, id trigger.SubscriptionID, enabled bool) (*trigger.Subscription, error)
	Ingest(ctx context.Context, id trigger.SubscriptionID, call *trigger.Call) (trigger.IngestResult, error)
	Reingest(ctx context.Context, tenant, eventID string) (trigger.IngestResult, error)
	UnsubscribeWorkflow(ctx context.Context, tenant, workflowID string) (int, error)
	DeleteConnection(ctx context.Context, tenant, id string) (int, error)
	ParamOptions(ctx context.Context, tenant string, request manager.OptionsRequest) (json.RawMessage, error)
	CallbackURL(id trigger.SubscriptionID) string
	BodyMask(s *trigger.Subscription) func(json.RawMessage) json.RawMessage
}

// Ledger is the part of the store this API calls.
type Ledger interface {
	Events(ctx context.Context, tenant string, id trigger.SubscriptionID, status trigger.Status, page trigger.Page) ([]trigger.EventSummary, string, error)
	Event(ctx context.Context, tenant, eventID string) (*trigger.EventDetail, error)
	SubscriptionBySID(ctx context.Context, sid int64) (*trigger.Subscription, error)
	Requeue(ctx context.Context, tenant, eventID string) error
	RequeueAll(ctx context.Context, tenant string, filter trigger.RequeueFilter) (*trigger.Operation, error)
	Operation(ctx context.Context, tenant, id string) (*trigger.Operation, error)
	CancelOperation(ctx context.Context, tenant, id string) (*trigger.Operation, error)
	SetAppState(ctx context.Context, appID string, state trigger.AppState) error
	RequestReload(ctx context.Context) error
	Connection(ctx context.Context, tenant, id string) (*trigger.Connection, error)
	PollState(ctx context.Context, sid int64) (*trigger.PollState, error)
	PutConnection(ctx context.Context, c *trigger.Connection) (created bool, err error)
	Run(ctx context.Context, tenant, runID string) (*trigger.Run, error)
	RunsOfWorkflow(ctx context.Context, tenant, workflowID string, page trigger.Page) ([]trigger.Run, string, error)
}

// Apps is the registry of loaded apps.
type Apps interface {
	Apps() []*trigger.App
	App(appID string) (*trigger.App, error)
	Trigger(appID, key string) (*trigger.Definition, error)
	// Refresh reads the operator's word on the apps.
	Refresh(ctx context.Context) error
	// Reload reads APPS_DIR again.
	Reload(ctx context.Context) error
}

// Authenticator knows keys; apikey.Authenticator fits.
type Authenticator interface {
	Authenticate(ctx context.Context, key secret.Text) (*apikey.Principal, error)
}

// Config of an API. Every field is required.
type Config struct {
	Manager Manager
	Ledger  Ledger
	Apps    Apps
	Keys    Authenticator
	HostURL string
	Health  *obs.Health
	Metrics *prometheus.Registry
	Log     *zap.Logger
}

// API serves the management listener.
type API struct {
	Config
	sampled  *zap.Logger
	requests *prometheus.CounterVec
}

// New makes an API.
func New(c Config) *API {
	a := &API{Config: c, sampled: obs.Sampled(c.Log), requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_api_requests_total", Help: "Requests to the management API by route and status.",
	}, []string{"method", "route", "status"})}
	c.Metrics.MustRegister(a.requests)
	return a
}

// handler is a handler behind a key.
type handler func(c echo.Context, who *apikey.Principal) error

// route is one route and the scope it takes.
type route struct {
	method, path string
	scope        apikey.Scope
	handle       handler
}

func (a *API) routes() []route {
	return []route{
		{http.MethodGet, "/subscriptions", apikey.SubscriptionsRead, a.listSubscriptions},
		{http.MethodGet, "/workflows/:id/subscriptions", apikey.SubscriptionsRead, a.listSubscriptions},
		{http.MethodGet, "/subscriptions/:id", apikey.SubscriptionsRead, a.getSubscription},
		{http.MethodPost, "/apps/:id/triggers/:key/subscriptions", apikey.SubscriptionsWrite, a.createSubscription},
		{http.MethodPatch, "/subscriptions/:id", apikey.SubscriptionsWrite, a.changeSubscription},
		{http.MethodDelete, "/subscriptions/:id", apikey.SubscriptionsWrite, a.deleteSubscription},
		{http.MethodPost, "/subscriptions/:id/test", apikey.EventsWrite, a.testSubscription},

		{http.MethodGet, "/subscriptions/:id/events", apikey.EventsRead, a.listEvents},
		{http.MethodGet, "/trigger-events/:id", apikey.EventsRead, a.getEvent},
		{http.MethodGet, "/trigger-events/:id/raw", apikey.EventsRead, a.getRaw},
		{http.MethodPost, "/trigger-events/:id/requeue", apikey.EventsWrite, a.requeue},
		{http.MethodPost, "/trigger-events/:id/reingest", apikey.EventsWrite, a.reingest},
		{http.MethodPost, "/trigger-events/requeue", apikey.EventsWrite, a.requeueAll},
		{http.MethodGet, "/operations/:id", apikey.EventsRead, a.getOperation},
		{http.MethodDelete, "/operations/:id", apikey.EventsWrite, a.cancelOperation},

		{http.MethodGet, "/apps", apikey.AppsRead, a.listApps},
		{http.MethodGet, "/apps/:id", apikey.AppsRead, a.getApp},
		{http.MethodGet, "/apps/:id/triggers", apikey.AppsRead, a.listTriggers},
		{http.MethodPatch, "/apps/:id", apikey.AppsWrite, a.changeApp},
		{http.MethodPost, "/apps/:id/triggers/:key/params/:param/options", apikey.SubscriptionsWrite, a.paramOptions},
		{http.MethodPost, "/apps/reload", apikey.AppsWrite, a.reloadApps},

		{http.MethodGet, "/connections/:id", apikey.ConnectionsRead, a.getConnection},
		{http.MethodPut, "/connections/:id", apikey.ConnectionsWrite, a.putConnection},
		{http.MethodDelete, "/connections/:id", apikey.ConnectionsWrite, a.deleteConnection},

		{http.MethodDelete, "/workflows/:id", apikey.SubscriptionsWrite, a.deleteWorkflow},

		{http.MethodGet, "/runs/:id", apikey.RunsRead, a.getRun},
		{http.MethodGet, "/workflows/:id/runs", apikey.RunsRead, a.listRuns},
	}
}

// Handler serves the API, and health and metrics without a key.
func (a *API) Handler() http.Handler {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = a.answerError
	e.Use(a.observe, a.recover)
	for _, r := range a.routes() {
		e.Add(r.method, r.path, a.behindKey(r))
	}
	for path, handler := range map[string]http.Handler{
		"/healthz": http.HandlerFunc(a.Health.Live), "/readyz": http.HandlerFunc(a.Health.Ready), "/metrics": obs.MetricsHandler(a.Metrics),
	} {
		e.Match([]string{http.MethodGet, http.MethodHead}, path, echo.WrapHandler(handler)) // load balancers ask with either
	}
	return e
}

// observe counts requests, answers errors and says nothing of good ones: what
// changed has a line of its own.
func (a *API) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		c.Response().Header().Set("X-Content-Type-Options", "nosniff")
		if err := next(c); err != nil {
			a.answerError(err, c)
		}
		route := c.Path()
		if route == "" {
			route = "none"
		}
		a.requests.WithLabelValues(methodLabel(c.Request().Method), route, strconv.Itoa(c.Response().Status)).Inc()
		return nil
	}
}

// methodLabel keeps strangers from making up label values.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// recover keeps one request's bug from ending the process.
func (a *API) recover(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if cause := recover(); cause != nil {
				a.Log.Error("api.panicked", zap.String("route", c.Path()), zap.Any("panic", cause), zap.ByteString("stack", debug.Stack()))
				err = echo.NewHTTPError(http.StatusInternalServerError)
			}
		}()
		return next(c)
	}
}

// iso is how every time looks in this API.
func iso(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func isoOrNull(t *time.Time) *string {
	if t == nil {
		return nil
	}
	text := iso(*t)
	return &text
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

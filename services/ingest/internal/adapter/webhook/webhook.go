// Package webhook is the HTTPS adapter (w6w Trigger RFC §HTTPS; amendment
// §Listener): it turns any request to a callback URL into a TriggerCall, hands
// it to the TriggerManager and answers what came of it. It knows nothing below
// the manager.
package webhook

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Ingester is the part of the TriggerManager this adapter calls. It returns
// after the commit.
type Ingester interface {
	Ingest(ctx context.Context, id trigger.SubscriptionID, call *trigger.Call) (trigger.IngestResult, error)
}

// Config of an Adapter.
type Config struct {
	Ingester Ingester
	// MaxBody is the size of the largest body that is taken.
	MaxBody int64
	Log     *zap.Logger
	Metrics prometheus.Registerer
}

// Adapter serves the public listener.
type Adapter struct {
	ingester Ingester
	maxBody  int64
	log      *zap.Logger
	sampled  *zap.Logger
	metrics  *metrics
	lower    map[string]string
}

// New makes an Adapter.
func New(c Config) *Adapter {
	return &Adapter{
		ingester: c.Ingester, maxBody: c.MaxBody, log: c.Log, sampled: obs.Sampled(c.Log),
		metrics: newMetrics(c.Metrics), lower: commonHeaders(),
	}
}

// Handler serves callback URLs and nothing else. There is one route for
// everything: the router would know methods only from a list, and this path
// takes any.
func (a *Adapter) Handler() http.Handler {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.RouteNotFound("/*", func(c echo.Context) error {
		a.serve(c.Response(), c.Request())
		return nil
	})
	return e
}

func (a *Adapter) serve(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	defer a.recover(w)
	answer := a.handle(w, r, started)
	a.metrics.observe(answer.outcome, time.Since(started))
	answer.write(w)
}

// handle does everything but answer.
func (a *Adapter) handle(w http.ResponseWriter, r *http.Request, started time.Time) *answer {
	path := rawPath(r)
	id, ok := subscriptionID(path)
	if !ok {
		return unknown()
	}
	body, refusal := a.readBody(w, r)
	if refusal != nil {
		a.sampled.Info("call.refused", obs.Subscription(id), obs.Status(refusal.outcome), zap.Int(obs.KeyHTTPStatus, refusal.status))
		return refusal
	}
	call := &trigger.Call{
		Source: trigger.SourceWebhook, Method: r.Method, Path: path, RawQuery: r.URL.RawQuery,
		Header: a.header(r), Body: body, Trace: traceparent(r),
	}
	result, err := a.ingester.Ingest(r.Context(), id, call)
	if err != nil {
		return a.failed(r, id, call, err)
	}
	answer := answerTo(result)
	if result.Unwritten {
		a.sampled.Warn("call.unwritten", obs.Subscription(id), obs.Status(result.Status), obs.Reason(result.Reason), zap.Int(obs.KeyHTTPStatus, answer.status))
		return answer
	}
	a.logIngested(id, call, result, answer, time.Since(started))
	return answer
}

// logIngested writes the one wide line of a call.
func (a *Adapter) logIngested(id trigger.SubscriptionID, call *trigger.Call, result trigger.IngestResult, answer *answer, took time.Duration) {
	code := ""
	if result.Err != nil {
		code = result.Err.Code // its message is the app's and may quote the call
	}
	a.log.Info("call.ingested",
		obs.Subscription(id), obs.Events(result.EventIDs), obs.Status(result.Status), obs.Reason(result.Reason), obs.ErrorCode(code),
		zap.String(obs.KeySource, string(call.Source)), zap.String(obs.KeyMethod, call.Method), zap.Int(obs.KeyBytes, len(call.Body)),
		zap.Int(obs.KeyHTTPStatus, answer.status), obs.Duration(took), obs.Trace(call.Trace),
	)
}

// failed answers a call that was not stored.
func (a *Adapter) failed(r *http.Request, id trigger.SubscriptionID, call *trigger.Call, err error) *answer {
	switch {
	case errors.Is(err, trigger.ErrUnknownSubscription):
		return unknown()
	case errors.Is(err, trigger.ErrBackPressure):
		a.sampled.Warn("call.refused", obs.Subscription(id), obs.Status(outcomeBackPressure), obs.Err(err))
		return refuse(http.StatusTooManyRequests, outcomeBackPressure, "back_pressure", "too many calls are waiting to be stored; try again", "1")
	case r.Context().Err() != nil:
		a.log.Debug("call.aborted", obs.Subscription(id), obs.Trace(call.Trace))
		return refuse(http.StatusServiceUnavailable, outcomeAborted, "aborted", "the call was not stored; try again", "1") // nobody reads it
	}
	// Whatever it is, the call is not stored and its sender must try again.
	a.sampled.Error("call.not_stored", obs.Subscription(id), obs.Status(outcomeUnavailable), obs.Err(err), obs.Trace(call.Trace))
	return refuse(http.StatusServiceUnavailable, outcomeUnavailable, "unavailable", "the call was not stored; try again", "5")
}

// recover keeps one call's bug from ending the process.
func (a *Adapter) recover(w http.ResponseWriter) {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	a.metrics.observe(outcomePanic, 0)
	a.log.Error("call.panicked", zap.Any("panic", cause), zap.ByteString("stack", debug.Stack()))
	if response, ok := w.(*echo.Response); ok && response.Committed {
		return
	}
	refuse(http.StatusInternalServerError, outcomePanic, "internal", "the call was not stored; try again", "5").write(w)
}

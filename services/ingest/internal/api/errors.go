package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// envelope is the body of every error.
type envelope struct {
	Error errorJSON `json:"error"`
}

type errorJSON struct {
	Code    string               `json:"code"`
	Phase   string               `json:"phase,omitempty"` // of a hook's error
	Message string               `json:"message"`
	Details []trigger.FieldError `json:"details,omitempty"`
}

// codedError gives an error another code than its own.
type codedError struct {
	code string
	error
}

func (e *codedError) Unwrap() error { return e.error }

// statusOf gives an error its status, code and message. An error of the app or
// the vendor behind it is 424: proxies take a 5xx for our own.
func statusOf(err error) (int, errorJSON) {
	status, body := meaningOf(err)
	var coded *codedError
	if errors.As(err, &coded) && status < http.StatusInternalServerError {
		body.Code = coded.code
	}
	return status, body
}

func meaningOf(err error) (int, errorJSON) {
	var (
		invalid *trigger.InvalidError
		hook    *manager.HookFailedError
		large   *http.MaxBytesError
		web     *echo.HTTPError
	)
	switch {
	case errors.As(err, &invalid):
		return http.StatusBadRequest, errorJSON{Code: invalid.Code, Message: invalid.Message, Details: invalid.Details}
	case errors.As(err, &hook):
		return http.StatusFailedDependency, errorJSON{Code: hook.Err.Code, Phase: hook.Err.Phase, Message: hook.Hook + ": " + hook.Err.Message}
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge, errorJSON{Code: "body_too_large", Message: "the body is larger than this API takes"}
	case errors.Is(err, errUnauthorized):
		return http.StatusUnauthorized, errorJSON{Code: "unauthorized", Message: errUnauthorized.Error()}
	case errors.Is(err, errForbidden):
		return http.StatusForbidden, errorJSON{Code: "forbidden", Message: err.Error()}
	case errors.Is(err, trigger.ErrUnknownSubscription):
		return http.StatusNotFound, errorJSON{Code: "unknown_subscription", Message: "there is no such subscription"}
	case errors.Is(err, trigger.ErrUnknownApp):
		return http.StatusNotFound, errorJSON{Code: "unknown_app", Message: "there is no such app"}
	case errors.Is(err, trigger.ErrUnknownTrigger):
		return http.StatusNotFound, errorJSON{Code: "unknown_trigger", Message: "the app has no such trigger"}
	case errors.Is(err, trigger.ErrUnknownWorkflow):
		return http.StatusNotFound, errorJSON{Code: "unknown_workflow", Message: "the engine knows no such workflow"}
	case errors.Is(err, trigger.ErrUnknownEvent):
		return http.StatusNotFound, errorJSON{Code: "unknown_event", Message: "there is no such event"}
	case errors.Is(err, trigger.ErrUnknownOperation):
		return http.StatusNotFound, errorJSON{Code: "unknown_operation", Message: "there is no such operation"}
	case errors.Is(err, trigger.ErrUnknownRun):
		return http.StatusNotFound, errorJSON{Code: "unknown_run", Message: "there is no such run"}
	case errors.Is(err, trigger.ErrUnknownConnection):
		return http.StatusNotFound, errorJSON{Code: "unknown_connection", Message: "the app has no such connection"}
	case errors.Is(err, trigger.ErrNotRequeueable):
		return http.StatusConflict, errorJSON{Code: "not_requeueable", Message: "only a failed event with a payload, of a subscription that is still there, can be requeued"}
	case errors.Is(err, trigger.ErrNotReingestable):
		return http.StatusConflict, errorJSON{Code: "not_requeueable", Message: "only a call whose handleIngest failed, of a subscription that is still there, can be ingested again"}
	case errors.Is(err, trigger.ErrIllegalState):
		return http.StatusConflict, errorJSON{Code: "illegal_state", Message: "the subscription's state has no such transition; enable it first"}
	case errors.Is(err, trigger.ErrConflict):
		return http.StatusConflict, errorJSON{Code: "conflict", Message: "the object changed meanwhile; read it again"}
	case errors.Is(err, trigger.ErrBackPressure):
		return http.StatusTooManyRequests, errorJSON{Code: "back_pressure", Message: "too many calls are waiting to be stored; try again"}
	case errors.Is(err, trigger.ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, errorJSON{Code: "unavailable", Message: "the database or the engine cannot be asked now; try again"}
	case errors.As(err, &web):
		return web.Code, webError(web.Code)
	}
	return http.StatusInternalServerError, webError(http.StatusInternalServerError)
}

func webError(status int) errorJSON {
	switch status {
	case http.StatusNotFound:
		return errorJSON{Code: "not_found", Message: "there is no such route"}
	case http.StatusMethodNotAllowed:
		return errorJSON{Code: "method_not_allowed", Message: "the route does not take this method"}
	case http.StatusInternalServerError:
		return errorJSON{Code: "internal", Message: "something went wrong here; the log says what"}
	}
	return errorJSON{Code: "http_" + strconv.Itoa(status), Message: http.StatusText(status)}
}

// answerError answers with an error's envelope.
func (a *API) answerError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	status, body := statusOf(err)
	header := c.Response().Header()
	switch status {
	case http.StatusUnauthorized:
		header.Set("WWW-Authenticate", `Bearer realm="tocsin"`)
	case http.StatusTooManyRequests:
		header.Set("Retry-After", "1")
	case http.StatusServiceUnavailable:
		header.Set("Retry-After", "5")
		a.sampled.Warn("api.unavailable", zap.String("route", c.Path()), obs.Err(err))
	case http.StatusInternalServerError:
		a.Log.Error("api.failed", zap.String("route", c.Path()), zap.String(obs.KeyMethod, c.Request().Method), obs.Err(err))
	}
	_ = writeJSON(c, status, envelope{body}) // the caller may be gone
}

package openwop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"runtime/debug"
	"strconv"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/manager"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// problem is the body of every answer that is not 2xx (error-envelope.schema.json),
// with its status.
type problem struct {
	status  int
	Code    string         `json:"error"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

func (p *problem) Error() string { return p.Code + ": " + p.Message }

func invalid(message string) error {
	return &problem{http.StatusBadRequest, "validation_error", message, nil}
}

// notFound is the one answer about everything that is not there, or is another
// tenant's.
func notFound() *problem {
	return &problem{http.StatusNotFound, "not_found", "there is nothing of this id", nil}
}

// problemOf gives an error its status and its words.
func problemOf(err error) *problem {
	var (
		known *problem
		bad   *trigger.InvalidError
		large *http.MaxBytesError
		hook  *manager.HookFailedError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &bad) && bad.Code == manager.CodeHorizon:
		return &problem{http.StatusBadRequest, bad.Code, bad.Message, map[string]any{"maxFutureHorizon": manager.HorizonText}}
	case errors.As(err, &bad):
		return &problem{http.StatusBadRequest, "validation_error", bad.Message, nil}
	case errors.As(err, &large):
		return &problem{http.StatusRequestEntityTooLarge, "payload_too_large", "the body is larger than this host takes", nil}
	case errors.As(err, &hook):
		return &problem{http.StatusFailedDependency, "dependency_failed", hook.Hook + " refused", nil}
	case errors.Is(err, trigger.ErrUnknownSubscription), errors.Is(err, trigger.ErrUnknownRun), errors.Is(err, trigger.ErrUnknownEvent):
		return notFound()
	case errors.Is(err, trigger.ErrUnknownWorkflow):
		return &problem{http.StatusNotFound, "not_found", "the engine knows no such workflow", nil}
	case errors.Is(err, trigger.ErrIllegalState):
		return &problem{http.StatusConflict, "invalid_state_transition", "the subscription's state has no such transition", nil}
	case errors.Is(err, trigger.ErrConflict):
		return &problem{http.StatusConflict, "conflict", "the object changed meanwhile; read it again", nil}
	case errors.Is(err, trigger.ErrBackPressure):
		return &problem{http.StatusServiceUnavailable, "unavailable", "too much is waiting to be stored; try again", map[string]any{"retryAfter": 1}}
	case errors.Is(err, trigger.ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &problem{http.StatusServiceUnavailable, "unavailable", "the database or the engine cannot be asked now; try again", map[string]any{"retryAfter": 5}}
	}
	return &problem{http.StatusInternalServerError, "internal_error", "something went wrong here; the log says what", nil}
}

// answerError answers with an error's envelope.
func (s *Surface) answerError(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	switch p.status {
	case http.StatusUnauthorized:
		if p.Code == "unauthenticated" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="tocsin"`)
		}
	case http.StatusServiceUnavailable:
		s.sampled.Warn("openwop.unavailable", zap.String("route", r.Pattern), obs.Err(err))
	case http.StatusInternalServerError:
		s.Log.Error("openwop.failed", zap.String("route", r.Pattern), zap.String(obs.KeyMethod, r.Method), obs.Err(err))
	}
	if after, ok := p.Details["retryAfter"].(int); ok {
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	writeJSON(w, p.status, p)
}

// writeJSON answers with a value as JSON; the caller may be gone.
func writeJSON(w http.ResponseWriter, status int, value any) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		http.Error(w, `{"error":"internal_error","message":"the answer cannot be written"}`, http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	if header.Get("Cache-Control") == "" {
		header.Set("Cache-Control", "no-store")
	}
	header.Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// recovering keeps one request's bug from ending the process.
func (s *Surface) recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause)
			}
			s.Log.Error("openwop.panicked", zap.String("route", r.Pattern), zap.Any("panic", cause), zap.ByteString("stack", debug.Stack()))
			s.answerError(w, r, errors.New("panic"))
		}()
		next.ServeHTTP(w, r)
	})
}

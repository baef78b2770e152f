package obs

import (
	"fmt"
	"iter"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Keys of log fields (DESIGN §9). They are an interface: alerts and scripts
// read them.
const (
	KeyService      = "service"
	KeyInstance     = "instance"
	KeyEventID      = "event_id"
	KeyEventIDs     = "event_ids"
	KeySubscription = "subscription"
	KeyTenant       = "tenant"
	KeyAppID        = "app_id"
	KeyTriggerKey   = "trigger_key"
	KeyWorkflowID   = "workflow_id"
	KeyAttempt      = "attempt"
	KeyStatus       = "status"
	KeyReason       = "reason"
	KeyRunID        = "run_id"
	KeyDuration     = "duration_ms"
	KeyError        = "error"
	KeyErrorCode    = "error.code"
	KeyTraceID      = "trace_id"
	KeySource       = "source"
	KeyMethod       = "method"
	KeyHTTPStatus   = "http_status"
	KeyBytes        = "bytes"
	KeyAddr         = "addr"
)

// Event is an event's id.
func Event(id string) zap.Field { return zap.String(KeyEventID, id) }

// Events are the ids of one call's events.
func Events(ids []string) zap.Field { return zap.Strings(KeyEventIDs, ids) }

// Subscription is the short form of a subscription id. It takes a Stringer and
// no string, so that the id itself, which opens a webhook, cannot be passed.
func Subscription(id fmt.Stringer) zap.Field { return zap.String(KeySubscription, id.String()) }

// Tenant is whose object this is about.
func Tenant(tenant string) zap.Field { return zap.String(KeyTenant, tenant) }

// App is the app's id.
func App(id string) zap.Field { return zap.String(KeyAppID, id) }

// Trigger is the trigger's key within its app.
func Trigger(key string) zap.Field { return zap.String(KeyTriggerKey, key) }

// Workflow is the workflow's id.
func Workflow(id string) zap.Field { return zap.String(KeyWorkflowID, id) }

// Attempt is the number of a delivery attempt, from 1.
func Attempt(n int) zap.Field { return zap.Int(KeyAttempt, n) }

// Status is what an event, attempt or subscription has become.
func Status[T ~string](status T) zap.Field { return zap.String(KeyStatus, string(status)) }

// Reason says why a row is ignored or failed.
func Reason[T ~string](reason T) zap.Field {
	if reason == "" {
		return zap.Skip()
	}
	return zap.String(KeyReason, string(reason))
}

// Run is the id of a run.
func Run(id string) zap.Field { return zap.String(KeyRunID, id) }

// Duration is how long it took, in milliseconds.
func Duration(d time.Duration) zap.Field {
	return zap.Float64(KeyDuration, float64(d.Microseconds())/1000)
}

// Err is an error's text; nil adds nothing.
func Err(err error) zap.Field {
	if err == nil {
		return zap.Skip()
	}
	return zap.String(KeyError, err.Error())
}

// ErrorCode is the code of a StepError or hook error; "" adds nothing.
func ErrorCode(code string) zap.Field {
	if code == "" {
		return zap.Skip()
	}
	return zap.String(KeyErrorCode, code)
}

// Trace is the trace id of a W3C traceparent; anything else adds nothing.
func Trace(traceparent string) zap.Field {
	// 00-<32 hex>-<16 hex>-<2 hex>
	if len(traceparent) < 55 || traceparent[2] != '-' || traceparent[35] != '-' {
		return zap.Skip()
	}
	return zap.String(KeyTraceID, traceparent[3:35])
}

// Configured says whether a secret is set, and nothing else of it.
func Configured(name string, set bool) zap.Field { return zap.Bool(name+"_configured", set) }

// Pairs is an object of texts, such as the settings at start.
func Pairs(key string, pairs iter.Seq2[string, string]) zap.Field {
	return zap.Object(key, zapcore.ObjectMarshalerFunc(func(out zapcore.ObjectEncoder) error {
		for name, value := range pairs {
			out.AddString(name, value)
		}
		return nil
	}))
}

package manager

import (
	"encoding/json"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// withBuiltins adds the host's own app to the registry's: triggers that need no
// code of anybody's, and so no hook.
type withBuiltins struct{ Apps }

// App finds an app.
func (b withBuiltins) App(appID string) (*trigger.App, error) {
	if appID != trigger.BuiltinApp {
		return b.Apps.App(appID)
	}
	return &trigger.App{ID: appID, Title: "Tocsin", State: trigger.AppActive}, nil
}

// Trigger finds a trigger.
func (b withBuiltins) Trigger(appID, key string) (*trigger.Definition, error) {
	if appID != trigger.BuiltinApp {
		return b.Apps.Trigger(appID, key)
	}
	def := &trigger.Definition{AppID: appID, Key: key, Type: trigger.TypeWebhook}
	switch key {
	case trigger.BuiltinWebhook:
		def.Title = "Webhook"
	case trigger.BuiltinQueue:
		def.Title = "Queue record"
	case trigger.BuiltinSchedule:
		def.Title, def.Params = "Schedule", json.RawMessage(scheduleParams)
	default:
		return nil, trigger.ErrUnknownTrigger
	}
	return def, nil
}

// scheduleParams declares what a schedule is made of.
const scheduleParams = `[
	{"key": "cron", "label": "Cron expression, five or six fields", "type": "string"},
	{"key": "at", "label": "One time, RFC 3339, in place of cron", "type": "string"},
	{"key": "timezone", "label": "IANA time zone", "type": "string", "default": "UTC"},
	{"key": "missedFirePolicy", "label": "Ticks that were missed", "type": "string", "default": "fire-once"}
]`

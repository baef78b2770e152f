package registry

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/params"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/vendors"
)

// declaration is an AppDefinition without its functions.
type declaration struct {
	Actions      listOf `json:"actions"`
	Auth         listOf `json:"auth"`
	Triggers     listOf `json:"triggers"`
	HealthChecks listOf `json:"healthChecks"`
}

type fields = map[string]json.RawMessage

// listOf reads a list of objects; a single object is a list of one, and what
// is no object is one without any field.
type listOf []fields

// UnmarshalJSON reads the list.
func (l *listOf) UnmarshalJSON(text []byte) error {
	var entries []json.RawMessage
	if json.Unmarshal(text, &entries) != nil {
		entries = []json.RawMessage{text}
	}
	for _, entry := range entries {
		var o fields
		_ = json.Unmarshal(entry, &o)
		*l = append(*l, o)
	}
	return nil
}

func readDeclaration(text json.RawMessage) (*declaration, error) {
	d := &declaration{}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, refuse(CodeInvalidManifest, "the app's definition must be an object")
	}
	return d, nil
}

// check refuses actions and health checks that cannot be named.
func (d *declaration) check() error {
	for i, action := range d.Actions {
		if textOf(action["key"]) == "" {
			return refuse(CodeInvalidAction, "actions[%d] has no key", i)
		}
	}
	seen := map[string]bool{}
	for i, check := range d.HealthChecks {
		key := textOf(check["key"])
		if key == "" {
			return refuse(CodeInvalidHealthCheck, "healthChecks[%d] has no key", i)
		}
		if seen[key] {
			return refuse(CodeInvalidHealthCheck, "the health check %q is declared twice", key)
		}
		seen[key] = true
	}
	return nil
}

// pathHooks lists the hooks given as a path instead of a function (Hook
// Runtime RFC), as they are written.
func (d *declaration) pathHooks() []string {
	var paths []string
	for _, t := range d.Triggers {
		for _, name := range params.Hooks(t["params"]) {
			if isPath(name) && !slices.Contains(paths, name) {
				paths = append(paths, name)
			}
		}
		for _, kind := range hook.Kinds() {
			if p := textOf(t[kind]); p != "" && !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
	}
	return paths
}

func isPath(name string) bool { return strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../") }

// triggers assembles the definitions. With duplicate keys the last one counts,
// as in the reference.
func (d *declaration) triggers(s *source, app *trigger.App, hooks []string) ([]*trigger.Definition, error) {
	var list []*trigger.Definition
	for i, declared := range d.Triggers {
		key := textOf(declared["key"])
		if key == "" {
			return nil, refuse(CodeInvalidTrigger, "triggers[%d] has no key", i)
		}
		def := definition(app, declared, key, hooks)
		if err := checkForm(def); err != nil {
			return nil, err.at(s.keyLine(key))
		}
		if err := lostPath(declared, def); err != nil {
			return nil, err.at(s.keyLine(key))
		}
		if err := params.Check(def.Params); err != nil {
			return nil, paramsError(key, err).at(s.keyLine(key))
		}
		if _, err := vendors.Compile(def.Host, nil); err != nil {
			return nil, refuse(CodeInvalidTrigger, "the trigger %q: %s", key, err).at(s.keyLine(key))
		}
		list = slices.DeleteFunc(list, func(before *trigger.Definition) bool { return before.Key == key })
		list = append(list, def)
	}
	return list, nil
}

// auth assembles the app's auth methods with the hooks that each has.
func (d *declaration) auth(hooks []string) []trigger.AuthMethod {
	var list []trigger.AuthMethod
	for _, declared := range d.Auth {
		method := trigger.AuthMethod{Key: authKey(declared), Type: textOf(declared["type"]), Hooks: map[string]bool{}}
		for _, name := range hooks {
			if kind, ok := strings.CutPrefix(name, "auth:"+method.Key+"/"); ok {
				method.Hooks[kind] = true
			}
		}
		list = append(list, method)
	}
	return list
}

// authKey names an auth method: one without a key goes by its type, as in the
// sandbox.
func authKey(declared fields) string {
	if key := textOf(declared["key"]); key != "" {
		return key
	}
	return textOf(declared["type"])
}

func definition(app *trigger.App, declared fields, key string, hooks []string) *trigger.Definition {
	def := &trigger.Definition{
		AppID: app.ID, AppVersion: app.Hash, Key: key,
		Title: textOf(declared["title"]), Description: textOf(declared["description"]),
		Type: trigger.TypeWebhook, RequiresAuth: app.HasAuth, MinInterval: minInterval(declared["minIntervalMs"]),
		Params: declared["params"], Output: declared["output"], Sample: declared["sample"],
		Host: hostData(declared), Hooks: map[string]bool{},
	}
	for _, kind := range hook.Kinds() {
		if slices.Contains(hooks, key+"/"+kind) {
			def.Hooks[kind] = true
		}
	}
	if def.Hooks[trigger.HookPoll] {
		def.Type = trigger.TypePoll // whatever the author wrote (amendment §Two forms)
	}
	_ = json.Unmarshal(orNull(declared["requiresAuth"]), &def.RequiresAuth) // null and non-booleans leave the default
	return def
}

// checkForm refuses what breaks the two forms (amendment §Two forms).
func checkForm(def *trigger.Definition) *LoadError {
	switch {
	case def.Has(trigger.HookPoll) && def.Has(trigger.HookOnSubscribe):
		return refuse(CodeInvalidTrigger, "the trigger %q has poll and onSubscribe; a poll trigger registers nothing", def.Key)
	case def.Has(trigger.HookOnSubscribe) && !def.Has(trigger.HookOnUnsubscribe):
		return refuse(CodeInvalidTrigger, "the trigger %q has onSubscribe without onUnsubscribe; whatever is registered must be destroyable", def.Key)
	}
	return nil
}

// lostPath refuses a path hook whose module exports no function to call.
func lostPath(declared fields, def *trigger.Definition) *LoadError {
	for _, kind := range hook.Kinds() {
		if p := textOf(declared[kind]); p != "" && !def.Has(kind) {
			return refuse(CodeInvalidBundle, "the trigger %q takes %s from %s, which exports neither a default function nor %s", def.Key, kind, p, kind)
		}
	}
	return nil
}

func paramsError(key string, err error) *LoadError {
	out := refuse(CodeInvalidManifest, "the trigger %q: params: %s", key, err)
	if invalid, ok := errors.AsType[*trigger.InvalidError](err); ok {
		out.Message = "the trigger \"" + key + "\": params: " + strings.TrimPrefix(invalid.Message, "params: ")
		out.Details = invalid.Details
	}
	return out
}

// minInterval reads minIntervalMs; what is no positive number is no floor.
func minInterval(text json.RawMessage) time.Duration {
	const most = 365 * 24 * time.Hour
	var ms float64
	if json.Unmarshal(orNull(text), &ms) != nil || ms <= 0 {
		return 0
	}
	if ms > float64(most.Milliseconds()) {
		return most
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// hostData keeps what the host does before any hook runs (DESIGN §6).
func hostData(declared fields) json.RawMessage {
	kept := fields{}
	for _, name := range []string{"preset", "verify", "handshake", "dedup"} {
		if value, ok := declared[name]; ok && string(value) != "null" {
			kept[name] = value
		}
	}
	if len(kept) == 0 {
		return nil
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return nil // cannot be: the values were JSON before
	}
	return text
}

// withOAuthHosts adds the host names of the app's OAuth endpoints to its
// egress list (contract §2.3).
func withOAuthHosts(allow []string, auth listOf) []string {
	for _, method := range auth {
		for _, block := range []fields{method, objectOf(method["oauth2"])} {
			for _, name := range []string{"authorizationUrl", "tokenUrl", "refreshUrl", "revokeUrl"} {
				u, err := url.Parse(textOf(block[name]))
				if err != nil || u.Hostname() == "" {
					continue
				}
				if host := strings.ToLower(u.Hostname()); !slices.Contains(allow, host) {
					allow = append(allow, host)
				}
			}
		}
	}
	return allow
}

func objectOf(text json.RawMessage) fields {
	var o fields
	if len(text) == 0 || json.Unmarshal(text, &o) != nil {
		return nil
	}
	return o
}

// missingHooks lists what a built app's manifest promises and its code lacks.
func missingHooks(promised, found []string) []string {
	return slices.DeleteFunc(slices.Clone(promised), func(name string) bool { return slices.Contains(found, name) })
}

package apikey

import (
	"fmt"
	"slices"
	"strings"
)

// Scope is one thing a key may do.
type Scope string

// The closed list of scopes. A write scope holds its read scope, and admin
// holds everything.
const (
	SubscriptionsRead  Scope = "subscriptions:read"
	SubscriptionsWrite Scope = "subscriptions:write"
	EventsRead         Scope = "events:read"
	EventsWrite        Scope = "events:write" // requeue
	AppsRead           Scope = "apps:read"
	AppsWrite          Scope = "apps:write" // disable, archive
	ConnectionsRead    Scope = "connections:read"
	ConnectionsWrite   Scope = "connections:write"
	RunsRead           Scope = "runs:read"
	RunsCreate         Scope = "runs:create"
	WebhooksManage     Scope = "webhooks:manage" // OpenWOP trigger subscriptions
	KeysManage         Scope = "keys:manage"
	Admin              Scope = "admin"
)

// Scopes lists every scope.
func Scopes() []Scope {
	return []Scope{
		SubscriptionsRead, SubscriptionsWrite, EventsRead, EventsWrite, AppsRead, AppsWrite, ConnectionsRead, ConnectionsWrite,
		RunsRead, RunsCreate, WebhooksManage, KeysManage, Admin,
	}
}

// ParseScopes reads "a,b" and refuses unknown scopes; there must be one.
func ParseScopes(text string) ([]Scope, error) {
	var scopes []Scope
	for word := range strings.SplitSeq(text, ",") {
		scope := Scope(strings.TrimSpace(word))
		switch {
		case scope == "" || slices.Contains(scopes, scope):
			continue
		case !slices.Contains(Scopes(), scope):
			return nil, fmt.Errorf("scope %q is not known; there are %v", string(scope), Scopes())
		}
		scopes = append(scopes, scope)
	}
	if len(scopes) == 0 {
		return nil, fmt.Errorf("a key needs a scope; there are %v", Scopes())
	}
	return scopes, nil
}

// holds says whether one scope includes another.
func (s Scope) holds(wanted Scope) bool {
	if s == wanted || s == Admin {
		return true
	}
	subject, ok := strings.CutSuffix(string(s), ":write")
	return ok && wanted == Scope(subject+":read")
}

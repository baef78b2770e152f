package trigger

import (
	"encoding/json"
	"time"
)

// ConnectionState is where a connection stands (w6w Connection RFC).
type ConnectionState string

// States of a connection. Hooks run with a connected one; one that needs a
// refresh gets it first.
const (
	ConnectionPending      ConnectionState = "pending"
	ConnectionConnected    ConnectionState = "connected"
	ConnectionNeedsRefresh ConnectionState = "needs_refresh"
	ConnectionBroken       ConnectionState = "broken"
	ConnectionRevoked      ConnectionState = "revoked"
)

// ConnectionStates lists every state.
var ConnectionStates = []ConnectionState{ConnectionPending, ConnectionConnected, ConnectionNeedsRefresh, ConnectionBroken, ConnectionRevoked}

// Connection is a tenant's access to the vendor behind an app (w6w Connection
// RFC).
type Connection struct {
	ID     string
	Tenant string
	AppID  string
	Auth   string // key of the app's auth method; "" is the first one
	State  ConnectionState
	Owner  string
	Label  string
	// Target and Display are JSON; nil when none.
	Target  json.RawMessage
	Display json.RawMessage
	// Credential is JSON that the app's auth hooks alone may see; nil when none.
	Credential      Credential
	ExpiresAt       *time.Time
	CreatedAt       time.Time
	UpdatedAt       time.Time
	LastRefreshedAt *time.Time
	Version         int64 // grows with every change
	// RefreshDue says, by the database's clock, that the credential has to be
	// refreshed before use; RefreshHeld that somebody is at it, or has failed a
	// moment ago: Refreshing tells which.
	RefreshDue  bool
	RefreshHeld bool
	Refreshing  bool
	Error       string // why the last refresh failed, "" when it did not
}

// Credential is JSON that does not print.
type Credential json.RawMessage

// String hides the credential.
func (Credential) String() string { return "[redacted]" }

// GoString hides the credential from %#v.
func (Credential) GoString() string { return "[redacted]" }

// MarshalJSON hides the credential from encoders; Reveal gives it.
func (Credential) MarshalJSON() ([]byte, error) { return []byte(`"[redacted]"`), nil }

// Reveal gives the JSON text.
func (c Credential) Reveal() json.RawMessage { return json.RawMessage(c) }

// AuthMethod is one way to connect that an app declares, and which hooks it has.
type AuthMethod struct {
	Key   string
	Type  string
	Hooks map[string]bool // sign, refresh, …
}

// AuthFor gives the method that a connection names, else the app's first one
// (w6w contract §5); nil when the app has none.
func (a *App) AuthFor(key string) *AuthMethod {
	for i := range a.Auth {
		if a.Auth[i].Key == key {
			return &a.Auth[i]
		}
	}
	if len(a.Auth) == 0 {
		return nil
	}
	return &a.Auth[0]
}

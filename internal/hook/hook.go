// Package hook runs the trigger hooks of apps: TypeScript written by
// strangers. It is the seam between the host and the sandbox: Runtime is what
// the host calls, Host is what a hook may ask of the host. The package knows
// nothing of storage, transport or engines.
//
// The sandbox is a pool of worker processes (package hook/workerpool), each
// the running binary executed again, each with many app VMs. JSON text goes in
// and JSON text comes out.
package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// AppRef names the code and the tenant a hook runs for. Two calls share a VM
// only when all three agree, so module-level state never crosses tenants.
type AppRef struct {
	ID      string // reverse-DNS app id
	Version string // content hash of the bundle, not the author's version
	Tenant  string
}

// Kinds lists the hooks a trigger may declare.
func Kinds() []string {
	return []string{"onSubscribe", "onUnsubscribe", "handleIngest", "poll", "parseOutput"}
}

// BundleGlobal is the global variable in which a bundle's script leaves
// { app: the entry module, modules: { "./path.ts": module } }.
const BundleGlobal = "__tocsin_app"

// Bundle is one app, ready to run: a single import-free script.
type Bundle struct {
	JS        []byte   // IIFE that leaves the module's exports in a global
	SourceMap []byte   // maps JS back to the author's files; may be empty
	Hash      string   // content hash of JS, lower-case hex
	Allow     []string // egress allow-list entries, w6w form ("host", "*.host", "*")
}

// Limits bounds one call. A zero field takes the Runtime's default.
type Limits struct {
	Wall       time.Duration // soft interrupt
	Grace      time.Duration // SIGKILL this long after Wall
	MemBytes   int64         // per VM
	MaxIn      int64         // bytes of Input plus RawBody
	MaxOut     int64         // bytes of Output
	MaxHostOps int           // outstanding fetches; negative: the hook may not fetch
	MaxTimers  int           // live timers
	MaxLog     int           // log bytes per call
}

// Call asks for one run of one hook.
type Call struct {
	App  AppRef
	Hook string // "<trigger key>/<hook name>", e.g. "push/handleIngest"
	// Input is the hook's first argument as JSON text.
	Input json.RawMessage
	// RawBody, when not nil, is handed over beside Input and reaches the hook
	// as input.raw.rawBody (valid UTF-8 only) and input.raw.rawBodyBase64.
	RawBody []byte
	// Ctx is the serialisable part of the hook's second argument
	// ({"connection": …} or absent).
	Ctx    json.RawMessage
	Limits Limits
}

// Result is what a hook gave back.
type Result struct {
	// Output is JSON text; "null" when the hook returned undefined.
	Output json.RawMessage
	Usage  Usage
}

// Usage says what a call cost.
type Usage struct {
	Wall  time.Duration
	CPU   time.Duration
	Fresh bool // a new VM was made for this call
}

// LogLine is one ctx.log call of a hook.
type LogLine struct {
	Level   string // debug, info, warn or error
	Message string
	Data    json.RawMessage // may be nil
}

// FetchRequest is ctx.fetch as the hook made it.
type FetchRequest struct {
	Method  string
	URL     string
	Headers [][2]string
	Body    []byte
	Call    *Call    // the call that asked, for its app and connection
	Allow   []string // the egress allow-list of its bundle
}

// FetchResponse is what the hook sees of the answer.
type FetchResponse struct {
	Status     int
	StatusText string
	URL        string
	Headers    [][2]string
	Body       []byte
}

// Host is what hooks may ask of the host. Its methods run in the parent
// process, are called concurrently, and must honour ctx, which ends with the
// call.
type Host interface {
	// Fetch performs one ctx.fetch. An *Error keeps its code in the hook
	// (err.code); any other error becomes a plain TypeError.
	Fetch(ctx context.Context, request FetchRequest) (FetchResponse, error)
	// Log takes one ctx.log line; it must not block.
	Log(call *Call, line LogLine)
}

// Description is what an app module declares, functions left out.
type Description struct {
	// Definition is the exported AppDefinition as JSON with every function
	// removed (w6w contract §1.2).
	Definition json.RawMessage
	// Hooks lists the function-valued members found, as "<trigger key>/<hook>"
	// for triggers and "auth:<auth key>/<hook>" for auth methods.
	Hooks []string
}

// Runtime runs hooks. It is safe for concurrent use.
type Runtime interface {
	// Load evaluates the bundle once and says what it declares. Loading the
	// same App again replaces the bundle for later calls.
	Load(ctx context.Context, app AppRef, bundle Bundle) (Description, error)
	// Invoke runs one hook to its end. The error is an *Error.
	Invoke(ctx context.Context, call Call) (Result, error)
	// Unload forgets an app; running calls finish.
	Unload(app AppRef)
	// Stats is a snapshot for metrics.
	Stats() Stats
	// Close ends all workers and waits for them.
	Close() error
}

// Stats is a snapshot of a Runtime.
type Stats struct {
	Workers, VMs, Running, Queued int
	Calls, Kills, Respawns        uint64
}

// Codes of Error, the closed list of the Hook Runtime RFC plus the host's own
// resource codes.
const (
	CodeThrew           = "hook_threw"
	CodeTimeout         = "hook_timeout"
	CodeReturnedInvalid = "hook_returned_invalid"
	CodeMemory          = "hook_out_of_memory"
	CodeUnsettled       = "hook_unsettled" // idle with a promise that can never settle
	CodeTooLarge        = "hook_too_large" // input or output over its limit
	CodeWorkerLost      = "hook_crashed"
	CodeCancelled       = "hook_cancelled"   // the caller's context was cancelled
	CodeQuarantined     = "hook_quarantined" // the app's circuit breaker is open
	CodeOverloaded      = "hook_overloaded"  // the queue for a worker is full
	CodeNotDeclared     = "hook_not_declared"
	CodeUnknownApp      = "unknown_app"

	CodeUnknownConnection = "unknown_connection"
	CodeConnectionPending = "connection_pending"
	CodeConnectionBroken  = "connection_broken"
	CodeConnectionRevoked = "connection_revoked"

	CodeFetchTimeout    = "fetch_timeout"
	CodeEgressDenied    = "egress_denied"
	CodeTooManyRedirect = "too_many_redirects"
	CodeInvalidURL      = "invalid_request_url"
	CodeInvalidBundle   = "invalid_bundle"
)

// Error is how a hook failed. Its text never holds the hook's input.
type Error struct {
	Code    string
	Phase   string // load, resolution, auth, execute or output
	Message string
	Name    string // the JS error's name, when one was thrown
	Stack   string // source-mapped JS stack, when there is one
}

func (e *Error) Error() string {
	if e.Name != "" {
		return fmt.Sprintf("%s: %s: %s", e.Code, e.Name, e.Message)
	}
	return e.Code + ": " + e.Message
}

// CodeOf gives the code of a hook error, or "" when err is none.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

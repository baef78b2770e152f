package config

import (
	"errors"
	"net/url"
	"time"

	"github.com/tocsin-dev/tocsin/internal/secret"
)

// Database is where the ledger is. Every program has it.
type Database struct{ URL DSN }

// Bind declares DATABASE_URL.
func (d *Database) Bind(s *Set) {
	Add(s, &d.URL, Var{
		Name: "DATABASE_URL", Required: true,
		Doc: "PostgreSQL; a transaction-pooling PgBouncer is allowed here",
	}, PostgreSQL())
}

// Sealing is how secrets are encrypted at rest.
type Sealing struct {
	Dev  bool
	Keys *secret.Keyring
}

// Bind declares TOCSIN_DEV and ENCRYPTION_KEYS.
func (k *Sealing) Bind(s *Set) {
	Add(s, &k.Dev, Var{
		Name: "TOCSIN_DEV",
		Doc:  "1 allows the built-in encryption key, which protects nothing; for local use",
	}, Bool())
	keys := Keys()
	given := false // else a list that cannot be read would be reported as missing, too
	parse := keys.Parse
	keys.Parse = func(text string) (*secret.Keyring, error) {
		given = true
		return parse(text)
	}
	Add(s, &k.Keys, Var{
		Name: "ENCRYPTION_KEYS",
		Doc:  "keys for secrets at rest, id:base64,…; the first encrypts, all decrypt; required unless TOCSIN_DEV=1",
	}, keys)
	s.Check(func() error {
		switch {
		case given:
			return nil
		case !k.Dev:
			return errors.New("ENCRYPTION_KEYS: is not set; expected " + keys.Want + " (or TOCSIN_DEV=1 for local use)")
		}
		ring, err := secret.ParseKeyring(secret.DevKeys)
		k.Keys = ring
		return err
	})
}

// Engine is where runs are started.
type Engine struct {
	URL       *url.URL
	Token     secret.Text
	Workflows []string
	TestSeams bool
}

// Bind declares ENGINE_URL, ENGINE_TOKEN and EMBEDDED_WORKFLOWS.
func (e *Engine) Bind(s *Set) {
	Add(s, &e.URL, Var{
		Name: "ENGINE_URL", Default: "embedded:",
		Doc: "embedded: records runs in PostgreSQL; http(s):// starts them on an engine with the w6w host API",
	}, URL("embedded", "http", "https"))
	Add(s, &e.Token, Var{Name: "ENGINE_TOKEN", Doc: "bearer token for the engine"}, Secret("a token"))
	Add(s, &e.Workflows, Var{
		Name: "EMBEDDED_WORKFLOWS",
		Doc:  "workflow ids the embedded engine knows, separated by commas; none: any",
	}, List("ids separated by commas"))
	Add(s, &e.TestSeams, Var{
		Name: "OPENWOP_TEST_SEAMS", Default: "false", Doc: "1 mounts the routes of OpenWOP's conformance suite; never for use",
	}, Bool())
}

// Hook bounds the sandbox.
type Hook struct {
	Timeout  time.Duration
	MemoryMB int
}

// Bind declares HOOK_TIMEOUT and HOOK_MEMORY_MB.
func (h *Hook) Bind(s *Set) {
	Add(s, &h.Timeout, Var{
		Name: "HOOK_TIMEOUT", Default: "30s", Doc: "longest time one hook call may take",
	}, Duration(100*time.Millisecond, 10*time.Minute))
	Add(s, &h.MemoryMB, Var{
		Name: "HOOK_MEMORY_MB", Default: "64", Doc: "most memory one hook call may use, in MiB",
	}, Int(8, 4096))
}

// MemoryBytes is MemoryMB in bytes.
func (h *Hook) MemoryBytes() int64 { return int64(h.MemoryMB) << 20 }

// Log is how log lines look.
type Log struct{ Level, Format string }

// Bind declares LOG_LEVEL and LOG_FORMAT.
func (l *Log) Bind(s *Set) {
	Add(s, &l.Level, Var{Name: "LOG_LEVEL", Default: "info", Doc: "least level that is logged"}, OneOf("debug", "info", "warn", "error"))
	Add(s, &l.Format, Var{
		Name: "LOG_FORMAT", Default: "json", Doc: "json: one object a line on standard output; console: for people",
	}, OneOf("json", "console"))
}

// Service holds what ingest and the dispatcher both read.
type Service struct {
	Database           Database
	Sealing            Sealing
	Engine             Engine
	Hook               Hook
	Log                Log
	AppsDir            string
	AllowPrivateEgress bool
	ShutdownGrace      time.Duration
}

// Bind declares all of them, in the order of the documentation.
func (c *Service) Bind(s *Set) {
	c.Database.Bind(s)
	c.Sealing.Bind(s)
	Add(s, &c.AppsDir, Var{Name: "APPS_DIR", Default: "./apps", Doc: "folder whose app packages are loaded at start"}, Text("a folder"))
	c.Engine.Bind(s)
	c.Hook.Bind(s)
	Add(s, &c.AllowPrivateEgress, Var{
		Name: "ALLOW_PRIVATE_EGRESS", Default: "false",
		Doc: "lets hooks and engines reach private and loopback addresses; for local use",
	}, Bool())
	Add(s, &c.ShutdownGrace, Var{
		Name: "SHUTDOWN_GRACE", Default: "20s", Doc: "longest time to finish what is running after SIGTERM",
	}, Duration(0, 10*time.Minute))
	c.Log.Bind(s)
}

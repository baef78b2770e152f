// Package config is what the dispatcher reads from its environment.
package config

import (
	"io"
	"time"

	"github.com/tocsin-dev/tocsin/internal/config"
)

// Config is every setting of the dispatcher.
type Config struct {
	config.Service
	Listen        Listen
	Addr          string
	HostURL       string
	Fallback      time.Duration
	Lease         time.Duration
	Concurrency   int
	Batch         int
	EngineTimeout time.Duration
	BacklogAlert  int
	MaxBody       int64

	set config.Set
}

// Listen is where the bell is heard. The zero Listen means where the ledger is.
type Listen struct {
	config.DSN
	Off bool // poll only
}

// FromEnv reads the environment. The error lists everything that is wrong.
func FromEnv(getenv func(string) string) (*Config, error) {
	c := declared()
	if err := c.set.FromEnv(getenv); err != nil {
		return nil, err
	}
	if c.Listen.IsZero() {
		c.Listen.DSN = c.Database.URL
	}
	return c, nil
}

// Help writes every setting with its default.
func Help(w io.Writer) error { return declared().set.Help(w) }

// Set is the table of settings, for the summary at start and the documentation.
func (c *Config) Set() *config.Set { return &c.set }

func declared() *Config {
	c := &Config{}
	config.Add(&c.set, &c.Addr, config.Var{
		Name: "DISPATCHER_ADDR", Default: ":8082", Doc: "listener for /metrics, /healthz, /readyz",
	}, config.Listen())
	config.Add(&c.set, &c.Listen, config.Var{
		Name: "LISTEN_DATABASE_URL", Doc: "direct connection for LISTEN; none: DATABASE_URL; off: poll only",
	}, listen())
	config.Add(&c.set, &c.Fallback, config.Var{
		Name: "FALLBACK_INTERVAL", Default: "1s", Doc: "longest sleep between two looks for due events",
	}, config.Duration(50*time.Millisecond, time.Hour))
	config.Add(&c.set, &c.Lease, config.Var{
		Name: "LEASE", Default: "30s", Doc: "how long a claim is owned; it is renewed while a start is under way",
	}, config.Duration(time.Second, time.Hour))
	config.Add(&c.set, &c.Concurrency, config.Var{
		Name: "DISPATCH_CONCURRENCY", Default: "64", Doc: "most starts under way at once",
	}, config.Int(1, 10_000))
	config.Add(&c.set, &c.Batch, config.Var{
		Name: "DISPATCH_BATCH", Default: "200", Doc: "events of one claim, for an engine that starts many at once",
	}, config.Int(1, 1000))
	config.Add(&c.set, &c.EngineTimeout, config.Var{
		Name: "ENGINE_TIMEOUT", Default: "30s", Doc: "longest time one engine call may take",
	}, config.Duration(100*time.Millisecond, time.Hour))
	config.Add(&c.set, &c.BacklogAlert, config.Var{
		Name: "BACKLOG_ALERT", Default: "10000", Doc: "number of due events from which backlog.high is logged",
	}, config.Int(1, 100_000))
	config.Add(&c.set, &c.HostURL, config.Var{
		Name: "HOST_URL", Default: "http://localhost:8080", Doc: "public origin, as ingest has it; parseOutput sees it in the call's url",
	}, config.Origin())
	config.Add(&c.set, &c.MaxBody, config.Var{
		Name: "MAX_BODY_BYTES", Default: "1048576", Doc: "as ingest has it: parseOutput must be able to see the largest call",
	}, config.Bytes(1, 256<<20))
	c.Bind(&c.set)
	return c
}

func listen() config.Parser[Listen] {
	dsn := config.PostgreSQL()
	return config.Parser[Listen]{
		Want: dsn.Want + ", or off", Secret: true,
		Show: func(l Listen) string {
			if l.Off {
				return "off"
			}
			return l.String()
		},
		Parse: func(text string) (Listen, error) {
			if text == "off" {
				return Listen{Off: true}, nil
			}
			value, err := dsn.Parse(text)
			return Listen{DSN: value}, err
		},
	}
}

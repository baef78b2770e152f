// Package config is what ingest reads from its environment.
package config

import (
	"io"
	"time"

	"github.com/tocsin-dev/tocsin/internal/config"
	"github.com/tocsin-dev/tocsin/internal/secret"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Config is every setting of ingest.
type Config struct {
	config.Service
	IngestAddr   string
	APIAddr      string
	HostURL      string
	MaxBody      int64
	PollInterval time.Duration
	PollFloor    time.Duration
	BootstrapKey secret.Text
	// How long what is over is kept.
	Retention      trigger.Retention
	RetentionEvery time.Duration
	// Listen is where outcomes are heard; PostWait bounds how long a post waits
	// for its own.
	Listen   config.DSN
	PostWait time.Duration

	set config.Set
}

// FromEnv reads the environment. The error lists everything that is wrong.
func FromEnv(getenv func(string) string) (*Config, error) {
	c := declared()
	if err := c.set.FromEnv(getenv); err != nil {
		return nil, err
	}
	if c.Listen.IsZero() {
		c.Listen = c.Database.URL
	}
	return c, nil
}

// Help writes every setting with its default.
func Help(w io.Writer) error { return declared().set.Help(w) }

// Set is the table of settings, for the summary at start and the documentation.
func (c *Config) Set() *config.Set { return &c.set }

func declared() *Config {
	c := &Config{}
	config.Add(&c.set, &c.IngestAddr, config.Var{
		Name: "INGEST_ADDR", Default: ":8080", Doc: "public listener: only /triggers/webhooks/* and /openwop/ingest/*",
	}, config.Listen())
	config.Add(&c.set, &c.APIAddr, config.Var{
		Name: "API_ADDR", Default: ":8081", Doc: "management listener: API, /v1, /.well-known/openwop, /metrics, /healthz, /readyz",
	}, config.Listen())
	config.Add(&c.set, &c.HostURL, config.Var{
		Name: "HOST_URL", Default: "http://localhost:8080", Doc: "public origin; callback URLs are built from it, never from a request",
	}, config.Origin())
	config.Add(&c.set, &c.MaxBody, config.Var{
		Name: "MAX_BODY_BYTES", Default: "1048576", Doc: "larger bodies are answered with 413",
	}, config.Bytes(1, 256<<20))
	config.Add(&c.set, &c.PollInterval, config.Var{
		Name: "POLL_INTERVAL", Default: "1m", Doc: "how often a poll trigger is checked when a subscription does not say",
	}, config.Duration(100*time.Millisecond, 30*24*time.Hour))
	config.Add(&c.set, &c.PollFloor, config.Var{
		Name: "POLL_MIN_INTERVAL", Default: "10s", Doc: "no poll trigger is checked more often than this, whatever is asked for",
	}, config.Duration(100*time.Millisecond, 24*time.Hour))
	for _, keep := range []struct {
		target              *time.Duration
		name, fallback, doc string
	}{
		{&c.Retention.Events, "RETENTION_EVENTS", "720h", "how long calls and their events are kept once they are over; 0: for ever"},
		{&c.Retention.DeadLetters, "RETENTION_DEAD_LETTERS", "2160h", "how long failed events are kept, and can be requeued; 0: for ever"},
		{&c.Retention.Runs, "RETENTION_RUNS", "720h", "how long runs of the embedded engine are kept; 0: for ever"},
	} {
		config.Add(&c.set, keep.target, config.Var{Name: keep.name, Default: keep.fallback, Doc: keep.doc}, config.Duration(0, 100*365*24*time.Hour))
	}
	config.Add(&c.set, &c.RetentionEvery, config.Var{
		Name: "RETENTION_INTERVAL", Default: "15m", Doc: "how often what is past its time is looked for",
	}, config.Duration(time.Second, 24*time.Hour))
	config.Add(&c.set, &c.Listen, config.Var{
		Name: "LISTEN_DATABASE_URL", Doc: "direct connection for LISTEN; none: DATABASE_URL",
	}, config.PostgreSQL())
	config.Add(&c.set, &c.PostWait, config.Var{
		Name: "OPENWOP_POST_WAIT", Default: "10s", Doc: "longest time a signed post waits for its run before it is told to come again",
	}, config.Duration(10*time.Millisecond, 25*time.Second))
	c.Bind(&c.set)
	config.Add(&c.set, &c.BootstrapKey, config.Var{
		Name: "BOOTSTRAP_API_KEY", Doc: "a management key accepted as tenant default with all scopes; for local use",
	}, config.Secret("a key"))
	return c
}

// Package open turns ENGINE_URL into the engine it names. It is the one list of
// the engines there are.
package open

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/tocsin-dev/tocsin/internal/egress"
	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/engine/embedded"
	"github.com/tocsin-dev/tocsin/internal/engine/httpengine"
)

// Config of Open. URL is required.
type Config struct {
	URL *url.URL // ENGINE_URL
	// Token is sent to an engine elsewhere; nil or empty is none.
	Token interface{ Reveal() string }
	// Workflows are what the embedded engine knows; none means any.
	Workflows []string
	// Runs is where the embedded engine records.
	Runs embedded.RunStore
	// AllowPrivate lets an engine be on a private or loopback address.
	AllowPrivate bool
	// Concurrency is how many starts go out at once; as many connections are
	// kept.
	Concurrency int
	// Seams lets tests see an engine fail (OPENWOP_TEST_SEAMS).
	Seams bool
}

// Open makes the engine; it does not call it.
func Open(cfg Config) (engine.Engine, error) {
	switch cfg.URL.Scheme {
	case "embedded":
		e := embedded.New(cfg.Runs, cfg.Workflows)
		e.Seams = cfg.Seams
		return e, nil
	case "http", "https":
		e, err := httpengine.New(httpengine.Config{URL: cfg.URL, Token: cfg.Token, Client: client(cfg)})
		if err != nil {
			return nil, fmt.Errorf("ENGINE_URL: %w", err)
		}
		return e, nil
	}
	return nil, fmt.Errorf("ENGINE_URL: the scheme %q is not supported by this build; it supports embedded, http and https", cfg.URL.Scheme)
}

// client is the guarded client, with a kept connection for each start that may
// be under way: a new one costs more than a call.
func client(cfg Config) *http.Client {
	c := egress.NewClient(cfg.AllowPrivate, 0) // the caller's context bounds each call
	if transport, ok := c.Transport.(*http.Transport); ok {
		transport.MaxIdleConnsPerHost = max(cfg.Concurrency, transport.MaxIdleConnsPerHost)
		transport.MaxIdleConns = max(transport.MaxIdleConnsPerHost, transport.MaxIdleConns)
		transport.DisableCompression = true // answers are a few bytes
	}
	return c
}

package main

import (
	"net/http"

	"github.com/tocsin-dev/tocsin/db"
	"github.com/tocsin-dev/tocsin/internal/bell"
	"github.com/tocsin-dev/tocsin/services/ingest/internal/config"
	"github.com/tocsin-dev/tocsin/services/ingest/internal/openwop"
)

// newOpenWOP makes the OpenWOP surface and the listener that wakes it when
// events come to their end.
func newOpenWOP(cfg *config.Config, c openwop.Config, seams openwop.SeamLedger) (*openwop.Surface, *bell.Listener, error) {
	outcomes := bell.New(bell.Config{URL: cfg.Listen, Channel: db.OutcomeChannel, Application: "tocsin-" + service + "-outcomes", Log: c.Log})
	c.Wake, c.Wait, c.HostURL, c.MaxBody = outcomes.Wake(), cfg.PostWait, cfg.HostURL, cfg.MaxBody
	c.Embedded = cfg.Engine.URL.Scheme == "embedded"
	if cfg.Engine.TestSeams {
		c.Seams = seams
	}
	surface, err := openwop.New(c)
	return surface, outcomes, err
}

// split serves the paths that one handler owns, and the rest by another. No
// router stands between: it would tidy up paths that are to be seen as sent.
func split(owns func(path string) bool, one, other http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if owns(r.URL.Path) {
			one.ServeHTTP(w, r)
			return
		}
		other.ServeHTTP(w, r)
	})
}

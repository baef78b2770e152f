package obs

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Check says whether something the service needs is there.
type Check func(ctx context.Context) error

// Health answers /healthz and /readyz. The process is alive while it answers
// at all; it is ready while every check passes and it is not shutting down.
type Health struct {
	log     *zap.Logger
	timeout time.Duration // of one round of checks
	keep    time.Duration // how long its result is served: anybody may ask, the database need not answer each

	mu       sync.Mutex // also keeps rounds from overlapping
	checks   []namedCheck
	last     map[string]string
	lastOK   bool
	lastTime time.Time

	stopping atomic.Pointer[string] // not under mu: Stop must not wait for a check that hangs
}

type namedCheck struct {
	name  string
	check Check
	bad   bool // as of the last round, so that a change is logged once
}

// NewHealth makes a Health without checks.
func NewHealth(log *zap.Logger) *Health {
	return &Health{log: log, timeout: 2 * time.Second, keep: 500 * time.Millisecond}
}

// Add adds a readiness check.
func (h *Health) Add(name string, check Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, namedCheck{name: name, check: check})
	h.lastTime = time.Time{}
}

// Stop makes the service not ready for good, before it stops serving.
func (h *Health) Stop(reason string) {
	h.stopping.Store(&reason)
}

// Register puts both endpoints on a mux.
func (h *Health) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", h.Live)
	mux.HandleFunc("GET /readyz", h.Ready)
}

// Live serves /healthz.
func (h *Health) Live(w http.ResponseWriter, _ *http.Request) {
	writeHealth(w, http.StatusOK, map[string]any{"status": "ok"})
}

// Ready serves /readyz. A failing check is named; why it fails is in the log,
// since anybody may read this page.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) {
	checks, reason := h.round(r.Context())
	if reason == "" {
		writeHealth(w, http.StatusOK, map[string]any{"status": "ready", "checks": checks})
		return
	}
	writeHealth(w, http.StatusServiceUnavailable, map[string]any{"status": "not ready", "reason": reason, "checks": checks})
}

// round gives every check's state, and why the service is not ready, or "".
func (h *Health) round(ctx context.Context) (map[string]string, string) {
	if reason := h.stopping.Load(); reason != nil {
		return nil, *reason
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lastTime.IsZero() || time.Since(h.lastTime) >= h.keep {
		h.ask(ctx)
	}
	if !h.lastOK {
		return h.last, "a check fails"
	}
	return h.last, ""
}

func (h *Health) ask(ctx context.Context) {
	// The result is served to others too, so one caller's hanging up must not
	// fail it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.timeout)
	defer cancel()
	errs := make([]error, len(h.checks))
	var wait sync.WaitGroup
	for i, c := range h.checks {
		wait.Go(func() { errs[i] = c.check(ctx) })
	}
	wait.Wait()

	h.last, h.lastOK, h.lastTime = map[string]string{}, true, time.Now()
	for i := range h.checks {
		h.last[h.checks[i].name] = h.noteChange(&h.checks[i], errs[i])
		h.lastOK = h.lastOK && errs[i] == nil
	}
}

func (h *Health) noteChange(c *namedCheck, err error) string {
	was := c.bad
	c.bad = err != nil
	switch {
	case c.bad && !was:
		h.log.Warn("health.check_failed", zap.String("check", c.name), Err(err))
	case was && !c.bad:
		h.log.Info("health.check_recovered", zap.String("check", c.name))
	}
	if c.bad {
		return "failing"
	}
	return "ok"
}

func writeHealth(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller may be gone
}

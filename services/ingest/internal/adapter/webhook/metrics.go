package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Outcomes of calls that are not stored; those that are have their status.
const (
	outcomeUnwritten    = "unwritten" // answered without a row: not verified, and too many
	outcomeUnknown      = "unknown"
	outcomeTooLarge     = "too_large"
	outcomeBadRequest   = "bad_request"
	outcomeBackPressure = "back_pressure"
	outcomeUnavailable  = "unavailable"
	outcomeAborted      = "aborted"
	outcomePanic        = "panic"
)

type metrics struct {
	calls   *prometheus.CounterVec
	seconds prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_ingest_calls_total", Help: "Calls to the public listener by what came of them.",
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tocsin_ingest_call_seconds", Help: "Time from a call's header to its answer, for calls that were stored.", Buckets: obs.LatencyBuckets(),
		}),
	}
	registry.MustRegister(m.calls, m.seconds)
	for _, outcome := range []string{ // so that each is there from the start
		string(trigger.StatusReceived), string(trigger.StatusFailed), string(trigger.StatusIgnored),
		outcomeUnwritten, outcomeUnknown, outcomeTooLarge, outcomeBadRequest, outcomeBackPressure, outcomeUnavailable, outcomeAborted, outcomePanic,
	} {
		m.calls.WithLabelValues(outcome)
	}
	return m
}

func (m *metrics) observe(outcome string, took time.Duration) {
	m.calls.WithLabelValues(outcome).Inc()
	switch trigger.Status(outcome) {
	case trigger.StatusReceived, trigger.StatusFailed, trigger.StatusIgnored:
		m.seconds.Observe(took.Seconds())
	case trigger.StatusDispatching, trigger.StatusDispatched: // no call starts as one
	}
}

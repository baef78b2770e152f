package dispatch

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Metrics of a dispatcher (DESIGN §9).
type Metrics struct {
	attempts    *prometheus.CounterVec
	deadLetters prometheus.Counter
	wakeLatency prometheus.Histogram
	startTime   prometheus.Histogram
	settleTime  prometheus.Histogram
	settleBatch prometheus.Histogram
	inFlight    prometheus.Gauge
	engineUp    prometheus.Gauge
	backlog     prometheus.Gauge
	oldest      prometheus.Gauge
}

// NewMetrics makes the metrics and registers them; a nil registry keeps them to
// themselves.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_dispatch_attempts_total", Help: "Delivery attempts by how they ended.",
		}, []string{"outcome"}),
		deadLetters: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tocsin_dead_letters", Help: "Events that this dispatcher moved to failed.",
		}),
		wakeLatency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tocsin_wake_latency_seconds", Help: "From an event's receipt to its first claim, on the database's clock.", Buckets: obs.LatencyBuckets(),
		}),
		startTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tocsin_start_seconds", Help: "parseOutput and the engine call of one attempt.", Buckets: obs.LatencyBuckets(),
		}),
		settleTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tocsin_settle_seconds", Help: "Recording the outcomes of one batch.", Buckets: obs.LatencyBuckets(),
		}),
		settleBatch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tocsin_settle_batch_size", Help: "Outcomes recorded in one statement.", Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tocsin_starts_in_flight", Help: "Events that are being started."}),
		engineUp: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tocsin_engine_up", Help: "0 while the breaker keeps events from an engine that cannot be reached."}),
		backlog:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "tocsin_backlog_due", Help: "Due events, counted up to a bound."}),
		oldest:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "tocsin_oldest_due_seconds", Help: "Age of the oldest due event."}),
	}
	for _, outcome := range []string{
		trigger.AttemptDelivered, trigger.AttemptRetrying, trigger.AttemptDeadLettered, trigger.AttemptLost, outcomeUnattempted, outcomeLeaseLost,
	} {
		m.attempts.WithLabelValues(outcome) // a rate needs a zero to start from
	}
	if registry != nil {
		registry.MustRegister(m.attempts, m.deadLetters, m.wakeLatency, m.startTime, m.settleTime, m.settleBatch, m.inFlight, m.engineUp, m.backlog, m.oldest)
	}
	return m
}

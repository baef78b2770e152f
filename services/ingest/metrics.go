package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsin-dev/tocsin/internal/hook"
)

// observeHooks publishes what the sandbox is doing.
func observeHooks(registry prometheus.Registerer, runtime hook.Runtime) {
	gauge := func(name, help string, value func(hook.Stats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(runtime.Stats()) })
	}
	counter := func(name, help string, value func(hook.Stats) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value(runtime.Stats())) })
	}
	registry.MustRegister(
		gauge("tocsin_hook_workers", "Worker processes that run hooks.", func(s hook.Stats) float64 { return float64(s.Workers) }),
		gauge("tocsin_hook_running", "Hook calls that are running.", func(s hook.Stats) float64 { return float64(s.Running) }),
		gauge("tocsin_hook_queued", "Hook calls that wait for a worker.", func(s hook.Stats) float64 { return float64(s.Queued) }),
		counter("tocsin_hook_calls_total", "Hook calls made.", func(s hook.Stats) uint64 { return s.Calls }),
		counter("tocsin_hook_kills_total", "Workers killed because a hook would not end.", func(s hook.Stats) uint64 { return s.Kills }),
	)
}

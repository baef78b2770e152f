// Package load makes load and takes it: callers in closed and open loops, an
// HTTP caller that costs little, and an engine that answers at once.
package load

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Closed runs f from a number of callers, each as fast as it is answered, until
// the time is over. It gives the latencies of all calls.
func Closed(ctx context.Context, callers int, d time.Duration, f func(caller, i int) error) ([]time.Duration, error) {
	var (
		next atomic.Int64
		end  = time.Now().Add(d)
	)
	return run(callers, func(caller int) ([]time.Duration, error) {
		latencies := make([]time.Duration, 0, 1<<14)
		for ctx.Err() == nil && time.Now().Before(end) {
			began := time.Now()
			if err := f(caller, int(next.Add(1)-1)); err != nil {
				return latencies, err
			}
			latencies = append(latencies, time.Since(began))
		}
		return latencies, ctx.Err()
	})
}

// Open runs f at a rate, whatever it takes to be answered, as long as one of
// the callers is free. Latencies count from the sending.
func Open(ctx context.Context, callers int, rate float64, d time.Duration, f func(caller, i int) error) ([]time.Duration, error) {
	var (
		next  atomic.Int64
		began = time.Now()
		total = int64(rate * d.Seconds())
	)
	return run(callers, func(caller int) ([]time.Duration, error) {
		var latencies []time.Duration
		for ctx.Err() == nil {
			i := next.Add(1) - 1
			if i >= total || time.Since(began) > d+d/4 {
				break
			}
			time.Sleep(time.Until(began.Add(time.Duration(float64(i) / rate * float64(time.Second)))))
			sent := time.Now()
			if err := f(caller, int(i)); err != nil {
				return latencies, err
			}
			latencies = append(latencies, time.Since(sent))
		}
		return latencies, ctx.Err()
	})
}

func run(callers int, loop func(caller int) ([]time.Duration, error)) ([]time.Duration, error) {
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		all   []time.Duration
		first error
	)
	for caller := range callers {
		wait.Go(func() {
			latencies, err := loop(caller)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, latencies...)
			if first == nil {
				first = err
			}
		})
	}
	wait.Wait()
	return all, first
}

// Quantile gives the q-quantile in milliseconds; it sorts.
func Quantile(latencies []time.Duration, q float64) float64 {
	if len(latencies) == 0 {
		return 0
	}
	slices.Sort(latencies)
	at := latencies[min(len(latencies)-1, int(q*float64(len(latencies))))]
	return float64(at.Nanoseconds()) / 1e6
}

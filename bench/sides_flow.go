package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tocsin-dev/tocsin/bench/internal/load"
	"github.com/tocsin-dev/tocsin/bench/internal/machine"
	"github.com/tocsin-dev/tocsin/bench/internal/peers"
	"github.com/tocsin-dev/tocsin/bench/internal/tocsin"
)

// flow has 64 callers store events while a dispatcher starts them on the embedded
// engine; the rate is that of the starts.
func flow(http bool) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		var (
			system   *tocsin.System
			database string
			call     func(caller, i int) error
			err      error
		)
		if http {
			var urls []string
			if system, urls, database, err = r.ingest(ctx, "plain", callers); err != nil {
				return err
			}
			if call, err = r.post(ctx, system, urls, callers, kib); err != nil {
				return err
			}
		} else {
			if database, err = r.database(ctx, "tocsin", tocsin.Migrate); err != nil {
				return err
			}
			ledger, err := tocsin.OpenLedger(ctx, database, callers)
			if err != nil {
				return err
			}
			r.later(ledger.Close)
			system = tocsin.New(r.root, r.dir, database, r.binaries, nil)
			r.later(system.Stop)
			call = func(_, i int) error { return ledger.Call(ctx, i, r.document(i)) }
		}
		if _, err := system.StartDispatcher(ctx); err != nil {
			return err
		}
		return r.flow(ctx, system.Parts(r.cluster.PID), call, func() int { return int(system.Delivered(ctx)) })
	}
}

func riverFlow(ctx context.Context, r *run) error {
	var worked atomic.Int64
	client, err := r.river(ctx, peers.RiverTuned, func(context.Context, []byte) error { worked.Add(1); return nil })
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	r.later(func() { client.Stop(ctx) })
	return r.flow(ctx, nil, func(_, i int) error { return client.Insert(ctx, r.document(i)) }, func() int { return int(worked.Load()) })
}

// mostOpen is how far the callers may be ahead: the rate is one that can be
// kept up, not that of callers who leave a backlog behind.
const mostOpen = 10_000

func (r *run) flow(ctx context.Context, parts map[string]int, store func(caller, i int) error, worked func() int) error {
	var kept, done atomic.Int64
	ctx, cancel := context.WithCancel(ctx)
	look := make(chan struct{})
	go func() {
		defer close(look)
		for ticks := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				ticks.Stop()
				return
			case <-ticks.C:
				done.Store(int64(worked()))
			}
		}
	}()
	defer func() { cancel(); <-look }()
	call := func(caller, i int) error {
		for kept.Load()-done.Load() > mostOpen && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		kept.Add(1)
		return store(caller, i)
	}
	if _, err := load.Closed(ctx, callers, 2*warmUp, call); err != nil {
		return err
	}
	stored := 0
	err := r.measure(parts, func() (int, error) {
		before := worked()
		latencies, err := load.Closed(ctx, callers, 2*r.seconds, call)
		stored = len(latencies)
		n := worked() - before
		return n, err
	})
	r.sample.Note = fmt.Sprintf("stored %.0f/s", float64(stored)/r.sample.Usage.Elapsed.Seconds())
	return err
}

// arrivals takes the times at which numbered events were stored and started.
type arrivals struct {
	mu              sync.Mutex
	stored, started map[int]time.Time
}

func newArrivals() *arrivals {
	return &arrivals{stored: map[int]time.Time{}, started: map[int]time.Time{}}
}

func (a *arrivals) start(i int) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.started[i]; !ok {
		a.started[i] = now
	}
}

func (a *arrivals) store(i int) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stored[i] = now
}

// latencies waits a moment for the last, and leaves out the warm-up.
func (a *arrivals) latencies(from, n int) ([]time.Duration, error) {
	for range 100 {
		a.mu.Lock()
		done := len(a.started) >= n
		a.mu.Unlock()
		if done {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []time.Duration
	for i, stored := range a.stored {
		started, ok := a.started[i]
		if !ok {
			return nil, errors.New("an event was stored and not started within five seconds")
		}
		if i >= from {
			list = append(list, max(0, started.Sub(stored)))
		}
	}
	return list, nil
}

// atRate stores numbered documents at a rate and measures until they start.
func (r *run) atRate(ctx context.Context, parts map[string]int, rate int, seen *arrivals, store func(caller, i int) error) error {
	const n = 8
	d := 2 * r.seconds
	total := int(float64(rate) * d.Seconds())
	warm := 2 * rate
	if warm+total > len(r.documents) {
		return fmt.Errorf("%d events are more than there are documents; make BENCH_SECONDS less", warm+total)
	}
	call := func(from int) func(caller, i int) error {
		return func(caller, i int) error {
			if err := store(caller, from+i); err != nil {
				return err
			}
			seen.store(from + i)
			return nil
		}
	}
	if _, err := load.Open(ctx, n, float64(rate), 2*time.Second, call(0)); err != nil {
		return err
	}
	machine.WaitQuiet(r.quiet)
	if err := r.measure(parts, func() (int, error) {
		latencies, err := load.Open(ctx, n, float64(rate), d, call(warm))
		return len(latencies), err
	}); err != nil {
		return err
	}
	latencies, err := seen.latencies(warm, warm+r.sample.N)
	r.sample.latencies(latencies)
	return err
}

func wakeTocsin(rate int) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		seen := newArrivals()
		engine, err := load.StartEngine(ctx, 0, func(body []byte) { seen.start(load.Number(body)) })
		if err != nil {
			return err
		}
		r.later(engine.Close)
		database, err := r.database(ctx, "tocsin", tocsin.Migrate)
		if err != nil {
			return err
		}
		system := tocsin.New(r.root, r.dir, database, r.binaries, map[string]string{"ENGINE_URL": engine.URL})
		r.later(system.Stop)
		if err := system.StartIngest(ctx); err != nil {
			return err
		}
		if _, err := system.StartDispatcher(ctx); err != nil {
			return err
		}
		const n = 8
		conns, err := load.DialMany(ctx, system.PublicURL, n)
		if err != nil {
			return err
		}
		r.later(conns.Close)
		urls := make([]string, n)
		for i := range urls {
			if urls[i], err = system.Subscribe(ctx, "plain", nil); err != nil {
				return err
			}
		}
		return r.atRate(ctx, system.Parts(r.cluster.PID), rate, seen, func(caller, i int) error {
			request, err := load.NewRequest(urls[i%n], r.document(i))
			if err != nil {
				return err
			}
			_, err = conns[caller].Post(request, i)
			return err
		})
	}
}

func wakeRiver(rate int, tuned bool) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		settings := peers.RiverDefault
		if tuned {
			settings = peers.RiverTuned
		}
		seen := newArrivals()
		client, err := r.river(ctx, settings, func(_ context.Context, payload []byte) error {
			seen.start(load.Number(payload))
			return nil
		})
		if err != nil {
			return err
		}
		if err := client.Start(ctx); err != nil {
			return err
		}
		r.later(func() { client.Stop(ctx) })
		return r.atRate(ctx, nil, rate, seen, func(_, i int) error { return client.Insert(ctx, r.document(i)) })
	}
}

// idle counts what four dispatchers ask when nothing happens.
func idle(ctx context.Context, r *run) error {
	database, err := r.database(ctx, "tocsin", tocsin.Migrate)
	if err != nil {
		return err
	}
	system := tocsin.New(r.root, r.dir, database, r.binaries, nil)
	r.later(system.Stop)
	for range 4 {
		if _, err := system.StartDispatcher(ctx); err != nil {
			return err
		}
	}
	const transactions = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
	time.Sleep(5 * time.Second)
	// Backends report what they did when they are next asked something, once a
	// second at most, so the window is long beside that.
	before, err := count(ctx, database, transactions)
	if err != nil {
		return err
	}
	window := max(20*time.Second, 4*r.seconds)
	began := time.Now()
	if err := r.measure(system.Parts(r.cluster.PID), func() (int, error) { time.Sleep(window); return 0, nil }); err != nil {
		return err
	}
	after, err := count(ctx, database, transactions)
	if err != nil {
		return err
	}
	r.value("queries", float64(after-before-1)/time.Since(began).Seconds())
	r.sample.Note = fmt.Sprintf("%.1f transactions/s", r.sample.Values["queries"])
	return nil
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-dev/tocsin/bench/internal/load"
	"github.com/tocsin-dev/tocsin/bench/internal/machine"
	"github.com/tocsin-dev/tocsin/bench/internal/peers"
	"github.com/tocsin-dev/tocsin/bench/internal/tocsin"
)

// backlog is what is to be drained.
type backlog struct{ events, subscriptions int }

var (
	spread = backlog{200_000, 1000}
	hot    = backlog{100_000, 1}
)

func (k backlog) name() string {
	return fmt.Sprintf("tocsin, %d events of %d", k.events, k.subscriptions)
}

// filled makes a database with a backlog, written by the ledger itself.
func (r *run) filled(ctx context.Context, k backlog) (string, error) {
	return r.database(ctx, k.name(), func(ctx context.Context, database string) error {
		if err := tocsin.Migrate(ctx, database); err != nil {
			return err
		}
		ledger, err := tocsin.OpenLedger(ctx, database, k.subscriptions)
		if err != nil {
			return err
		}
		defer ledger.Close()
		return ledger.Fill(ctx, k.events, r.documents)
	})
}

// drain measures how fast a counter grows: from the first event on until all are
// done or the time is over.
func (r *run) drain(parts func() map[string]int, total int, limit time.Duration, done func() int) error {
	const look = 50 * time.Millisecond
	patience := time.Now().Add(time.Minute)
	first := done()
	for first == 0 {
		if time.Now().After(patience) {
			return errors.New("nothing was worked within a minute")
		}
		time.Sleep(look / 5)
		first = done()
	}
	var (
		last   int
		fifths []time.Duration
		began  = time.Now()
	)
	usage, err := machine.Measure(parts(), func() error {
		for last = done(); last < total && time.Since(began) < limit; last = done() {
			for len(fifths) < 5 && last >= total*(len(fifths)+1)/5 {
				fifths = append(fifths, time.Since(began))
			}
			time.Sleep(look)
		}
		return nil
	})
	r.sample.N, r.sample.Usage = last-first, usage
	r.sample.Rate = float64(last-first) / usage.Elapsed.Seconds()
	r.sample.Note = fmt.Sprintf("%d of %d", last, total)
	for i, at := range fifths {
		before := time.Duration(0)
		if i > 0 {
			before = fifths[i-1]
		}
		r.sample.Note += fmt.Sprintf(" %.1f", float64(total)/5000/(at-before).Seconds())
	}
	if len(fifths) > 0 {
		r.sample.Note += " k/s by fifth"
	}
	return err
}

// dispatch starts dispatchers on a database and measures them.
func (r *run) dispatch(ctx context.Context, database string, total, dispatchers int, limit time.Duration, env map[string]string) error {
	system := tocsin.New(r.root, r.dir, database, r.binaries, env)
	r.later(system.Stop)
	machine.WaitQuiet(r.quiet)
	for range dispatchers {
		if _, err := system.StartDispatcher(ctx); err != nil {
			return err
		}
	}
	memory := r.watchMemory(ctx, system.Dispatchers[0].PID())
	err := r.drain(func() map[string]int { return system.Parts(r.cluster.PID) }, total, limit, func() int { return int(system.Delivered(ctx)) })
	r.value("rss", memory())
	r.sample.Note += fmt.Sprintf("; RSS %.0f MiB", r.sample.Values["rss"])
	if err != nil {
		return err
	}
	ended, err := count(ctx, database, "SELECT count(*) FROM trigger_deliveries WHERE status = 'dispatched' AND ended_at > now() - interval '10 minutes'")
	if err == nil && ended < r.sample.N {
		err = fmt.Errorf("%d starts were counted, %d deliveries are recorded", r.sample.N, ended)
	}
	return err
}

func drainEmbedded(k backlog) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		database, err := r.filled(ctx, k)
		if err != nil {
			return err
		}
		return r.dispatch(ctx, database, k.events, 1, 2*r.seconds, map[string]string{"ENGINE_URL": "embedded:"})
	}
}

func drainHTTP(ctx context.Context, r *run) error {
	database, err := r.filled(ctx, spread)
	if err != nil {
		return err
	}
	engine, err := load.StartEngine(ctx, 0, nil)
	if err != nil {
		return err
	}
	r.later(engine.Close)
	return r.dispatch(ctx, database, spread.events, 1, 2*r.seconds, map[string]string{"ENGINE_URL": engine.URL})
}

func drainSlow(dispatchers int) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		database, err := r.filled(ctx, spread)
		if err != nil {
			return err
		}
		engine, err := load.StartEngine(ctx, 20*time.Millisecond, nil)
		if err != nil {
			return err
		}
		r.later(engine.Close)
		return r.dispatch(ctx, database, spread.events, dispatchers, 2*r.seconds, map[string]string{"ENGINE_URL": engine.URL, "DISPATCH_CONCURRENCY": "16"})
	}
}

// drainLedger is claim and settle in this process, no engine.
func drainLedger(ctx context.Context, r *run) error {
	database, err := r.filled(ctx, spread)
	if err != nil {
		return err
	}
	ledger, err := tocsin.OpenLedger(ctx, database, 0)
	if err != nil {
		return err
	}
	r.later(ledger.Close)
	machine.WaitQuiet(r.quiet)
	var n atomic.Int64
	ctx, cancel := context.WithCancel(ctx)
	finished := make(chan error, 1)
	go func() { finished <- ledger.Drain(ctx, 2, 200, func(k int) { n.Add(int64(k)) }) }()
	err = r.drain(r.postgres, spread.events, 2*r.seconds, func() int { return int(n.Load()) })
	cancel()
	return errors.Join(err, <-finished)
}

func (r *run) postgres() map[string]int { return map[string]int{"postgres": r.cluster.PID} }

// drainHeld drains while a snapshot from before is held open.
func drainHeld(held bool) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		database, err := r.filled(ctx, spread)
		if err != nil {
			return err
		}
		if held {
			conn, err := pgx.Connect(ctx, database)
			if err != nil {
				return err
			}
			r.later(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
			if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"); err != nil {
				return err
			}
			if _, err := conn.Exec(ctx, "SELECT 1 FROM trigger_queue LIMIT 1"); err != nil {
				return err
			}
		}
		return r.dispatch(ctx, database, spread.events, 1, 12*r.seconds, map[string]string{"ENGINE_URL": "embedded:"})
	}
}

// drainHistory drains 50,000 events in a ledger that has seen many, or none.
func drainHistory(with bool) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		const events = 50_000
		database, err := r.history0(ctx, with)
		if err != nil {
			return err
		}
		ledger, err := tocsin.OpenLedger(ctx, database, 1000)
		if err != nil {
			return err
		}
		defer ledger.Close()
		if err := ledger.Fill(ctx, events, r.documents); err != nil {
			return err
		}
		for _, statement := range []string{"ANALYZE trigger_queue", "CHECKPOINT"} {
			if err := execute(ctx, database, statement); err != nil {
				return err
			}
		}
		return r.dispatch(ctx, database, events, 1, 4*r.seconds, map[string]string{"ENGINE_URL": "embedded:"})
	}
}

// history0 gives a fresh database, or the one with history: that is too big to
// be copied for each run.
func (r *run) history0(ctx context.Context, with bool) (string, error) {
	if !with {
		return r.database(ctx, "tocsin", tocsin.Migrate)
	}
	name, err := r.cluster.Template(ctx, "history", func(ctx context.Context, database string) error {
		say("  writing %d events of history", r.bench.history)
		if err := tocsin.Migrate(ctx, database); err != nil {
			return err
		}
		ledger, err := tocsin.OpenLedger(ctx, database, 1000)
		if err != nil {
			return err
		}
		ledger.Close()
		const chunk = 500_000
		for from := 0; from < r.bench.history; from += chunk {
			to := min(from+chunk, r.bench.history)
			if err := execute(ctx, database, fmt.Sprintf(historySQL, from, to-1)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return r.cluster.At(name), nil
}

// historySQL writes events that ended in the last month. Their bodies are
// shorter than real ones: no claim reads them.
const historySQL = `WITH n AS (SELECT i, 'evt_00' || lpad(i::text, 24, '0') AS id, now() - interval '30 days' + i * interval '200 milliseconds' AS at
	FROM generate_series(%d, %d) AS i), e AS (
	INSERT INTO trigger_events (event_id, call_id, sid, tenant, received_at, initial_status, source, method, headers, body)
	SELECT id, id, 1 + i %% 1000, 'bench', at, 'received', 'webhook', 'POST', '[["content-type","application/json"]]', decode(repeat(md5(id), 4), 'hex') FROM n)
INSERT INTO trigger_deliveries (event_id, sid, tenant, status, attempts, attempt_id, run_id, duration_ms, ended_at)
SELECT id, 1 + i %% 1000, 'bench', 'dispatched', 1, 'att_' || substr(id, 5), 'run_' || substr(id, 5), 3, at FROM n`

func execute(ctx context.Context, database, sql string) error {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// riverFilled makes a database with a backlog of River jobs.
func (r *run) riverFilled(ctx context.Context, n int) (string, error) {
	return r.database(ctx, fmt.Sprintf("river, %d jobs", n), func(ctx context.Context, database string) error {
		if err := peers.MigrateRiver(ctx, database); err != nil {
			return err
		}
		client, err := peers.OpenRiver(ctx, database, peers.RiverDefault, nil)
		if err != nil {
			return err
		}
		defer client.Close()
		const size = 1000
		for i := 0; i < n; i += size {
			at := i % len(r.documents)
			if err := client.InsertManyFast(ctx, r.documents[at:at+size]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *run) drainRiver(ctx context.Context, n int, settings peers.RiverSettings, work peers.Work) error {
	database, err := r.riverFilled(ctx, n)
	if err != nil {
		return err
	}
	var worked atomic.Int64
	client, err := peers.OpenRiver(ctx, database, settings, func(ctx context.Context, payload []byte) error {
		if work != nil {
			if err := work(ctx, payload); err != nil {
				return err
			}
		}
		worked.Add(1)
		return nil
	})
	if err != nil {
		return err
	}
	r.later(client.Close)
	machine.WaitQuiet(r.quiet)
	if err := client.Start(ctx); err != nil {
		return err
	}
	err = r.drain(r.postgres, n, 2*r.seconds, func() int { return int(worked.Load()) })
	client.Stop(ctx)
	return err
}

func riverDrain(n int) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error { return r.drainRiver(ctx, n, peers.RiverTuned, nil) }
}

func riverDrainDefault(ctx context.Context, r *run) error {
	return r.drainRiver(ctx, spread.events, peers.RiverDefault, nil)
}

// riverDrainHTTP has a worker that makes the call that a dispatcher makes, over
// as many connections.
func riverDrainHTTP(ctx context.Context, r *run) error {
	engine, err := load.StartEngine(ctx, 0, nil)
	if err != nil {
		return err
	}
	r.later(engine.Close)
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 64, MaxIdleConnsPerHost: 64}}
	return r.drainRiver(ctx, spread.events, peers.RiverTuned, func(ctx context.Context, payload []byte) error {
		body, err := json.Marshal(map[string]any{
			"trigger": "webhook", "variables": struct{}{}, "event": json.RawMessage(payload), "eventId": "evt_bench", "subscriptionId": "sub_bench", "attempt": 1,
		})
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, engine.URL+"/workflows/wf_bench/run", bytes.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", "evt_bench")
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		var answer struct {
			RunID string `json:"runId"`
		}
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &answer)
	})
}

func gueDrain(ctx context.Context, r *run) error {
	const n = 50_000
	database, err := r.database(ctx, "gue", func(ctx context.Context, database string) error {
		client, err := peers.OpenGue(ctx, database, true)
		if err != nil {
			return err
		}
		defer client.Close()
		for i := 0; i < n; i += 1000 {
			if err := client.InsertMany(ctx, r.documents[i%len(r.documents):][:1000]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	client, err := peers.OpenGue(ctx, database, false)
	if err != nil {
		return err
	}
	r.later(client.Close)
	var worked atomic.Int64
	machine.WaitQuiet(r.quiet)
	if err := client.Start(ctx, func(context.Context, []byte) error { worked.Add(1); return nil }); err != nil {
		return err
	}
	return r.drain(r.postgres, n, 2*r.seconds, func() int { return int(worked.Load()) })
}

func dbosDrain(ctx context.Context, r *run) error {
	const n = 10_000
	database, err := r.database(ctx, "empty", nil)
	if err != nil {
		return err
	}
	var worked atomic.Int64
	client, err := peers.OpenDBOS(ctx, database, func(context.Context, []byte) error { worked.Add(1); return nil })
	if err != nil {
		return err
	}
	r.later(client.Close)
	var wait sync.WaitGroup
	var failed atomic.Pointer[error]
	for c := range callers {
		wait.Go(func() {
			for i := c; i < n; i += callers {
				if err := client.Insert(ctx, r.document(i)); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	wait.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	machine.WaitQuiet(r.quiet)
	client.Start()
	return r.drain(r.postgres, n, 2*r.seconds, func() int { return int(worked.Load()) })
}

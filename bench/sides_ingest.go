package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-dev/tocsin/bench/internal/load"
	"github.com/tocsin-dev/tocsin/bench/internal/machine"
	"github.com/tocsin-dev/tocsin/bench/internal/peers"
	"github.com/tocsin-dev/tocsin/bench/internal/tocsin"
	"github.com/tocsin-dev/tocsin/db"
)

const (
	callers = 64
	warmUp  = time.Second
	secret  = "the secret of the benchmarks"
)

// payload lays out the requests of a callback URL.
type payload func(b *bench, url string) ([]*load.Request, error)

// kib are documents of 1 KiB.
func kib(b *bench, url string) ([]*load.Request, error) {
	var list []*load.Request
	for _, body := range b.documents[:32] {
		request, err := load.NewRequest(url, body)
		if err != nil {
			return nil, err
		}
		list = append(list, request)
	}
	return list, nil
}

// github are real deliveries with the header that GitHub sends.
func github(b *bench, url string) ([]*load.Request, error) { return signed(b.deliveries, url) }

// signed10 are those of about 10 KiB.
func signed10(b *bench, url string) ([]*load.Request, error) {
	return signed(load.OfSize(b.deliveries, 10<<10, 16), url)
}

func signed(deliveries []load.Delivery, url string) ([]*load.Request, error) {
	var list []*load.Request
	for _, d := range deliveries {
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = mac.Write(d.Payload)
		request, err := load.NewRequest(url, d.Payload, "User-Agent", "GitHub-Hookshot/044aadd", "Accept", "*/*; q=1", "X-GitHub-Event", d.Event,
			"X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-*", "X-GitHub-Hook-ID", "292430182",
			"X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		if err != nil {
			return nil, err
		}
		list = append(list, request)
	}
	return list, nil
}

// ingest starts ingest on a fresh database and gives callback URLs of n
// subscriptions.
func (r *run) ingest(ctx context.Context, trigger string, n int) (*tocsin.System, []string, string, error) {
	database, err := r.database(ctx, "tocsin", tocsin.Migrate)
	if err != nil {
		return nil, nil, "", err
	}
	system := tocsin.New(r.root, r.dir, database, r.binaries, nil)
	r.later(system.Stop)
	if err := system.StartIngest(ctx); err != nil {
		return nil, nil, "", err
	}
	var params map[string]any
	if trigger == "verified" || trigger == "github" {
		params = map[string]any{"secret": secret}
	}
	urls := make([]string, n)
	for i := range urls {
		if urls[i], err = system.Subscribe(ctx, trigger, params); err != nil {
			return nil, nil, "", err
		}
	}
	return system, urls, database, nil
}

// post is a caller's loop body: each has a connection, a subscription and
// requests of its own.
func (r *run) post(ctx context.Context, system *tocsin.System, urls []string, n int, payload payload) (func(caller, i int) error, error) {
	conns, err := load.DialMany(ctx, system.PublicURL, n)
	if err != nil {
		return nil, err
	}
	r.later(conns.Close)
	requests := make([][]*load.Request, n)
	for c := range n {
		if requests[c], err = payload(r.bench, urls[c%len(urls)]); err != nil {
			return nil, err
		}
	}
	return func(caller, i int) error {
		list := requests[caller]
		_, err := conns[caller].Post(list[i%len(list)], i)
		return err
	}, nil
}

// httpIngest calls a trigger of the bench app as fast as it answers.
func httpIngest(trigger string, connections int, payload payload) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		system, urls, database, err := r.ingest(ctx, trigger, connections)
		if err != nil {
			return err
		}
		post, err := r.post(ctx, system, urls, connections, payload)
		if err != nil {
			return err
		}
		if err := refusesForgeries(ctx, trigger, urls[0]); err != nil {
			return err
		}
		if _, err := load.Closed(ctx, connections, warmUp, post); err != nil {
			return err
		}
		rang, err := r.listen(ctx, database)
		if err != nil {
			return err
		}
		before, err := count(ctx, database, "SELECT count(*) FROM trigger_queue")
		if err != nil {
			return err
		}
		memory := r.watchMemory(ctx, system.Ingest.PID())
		var latencies []time.Duration
		rings := rang.Load()
		err = r.measure(system.Parts(r.cluster.PID), func() (int, error) {
			latencies, err = load.Closed(ctx, connections, r.seconds, func(caller, i int) error { return post(caller, i+1<<24) })
			return len(latencies), err
		})
		if err != nil {
			return err
		}
		r.value("notifications", 1000*float64(rang.Load()-rings)/float64(len(latencies)))
		r.value("rss", memory())
		r.sample.latencies(latencies)
		r.sample.Note = fmt.Sprintf("%.0f notifications per 1,000 calls; RSS %.0f MiB", r.sample.Values["notifications"], r.sample.Values["rss"])
		r.peaks["http"] = max(r.peaks["http"], r.sample.Rate)
		return r.checkStored(ctx, database, before+len(latencies))
	}
}

// refusesForgeries skips a figure about signatures where nobody looks at them.
func refusesForgeries(ctx context.Context, trigger, url string) error {
	if trigger != "verified" && trigger != "github" {
		return nil
	}
	conns, err := load.DialMany(ctx, url, 1)
	if err != nil {
		return err
	}
	defer conns.Close()
	forged, err := load.NewRequest(url, []byte("{}"), "X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64), "X-GitHub-Delivery", "forged", "X-GitHub-Event", "push")
	if err != nil {
		return err
	}
	if _, err := conns[0].Post(forged, 0); err == nil {
		return skipped("ingest took a call with a forged signature")
	}
	return nil
}

// checkStored refuses a run in which an answered call is not an open event.
func (r *run) checkStored(ctx context.Context, database string, want int) error {
	got, err := count(ctx, database, "SELECT count(*) FROM trigger_queue")
	if err == nil && got != want {
		err = fmt.Errorf("%d calls were answered, %d events are open", want, got)
	}
	return err
}

func count(ctx context.Context, database, sql string) (n int, err error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	return n, conn.QueryRow(ctx, sql).Scan(&n)
}

// listen counts the bell's rings.
func (r *run) listen(ctx context.Context, database string) (*atomic.Int64, error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+db.Channel); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var rings atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				_ = conn.Close(context.WithoutCancel(ctx))
				return
			}
			rings.Add(1)
		}
	}()
	r.later(func() { cancel(); <-done })
	return &rings, nil
}

// watchMemory samples a process; the returned func ends it and gives the most.
func (r *run) watchMemory(ctx context.Context, pid int) func() float64 {
	ctx, cancel := context.WithCancel(ctx)
	most := make(chan float64, 1)
	go func() {
		top := 0.0
		for ticks := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				ticks.Stop()
				most <- top
				return
			case <-ticks.C:
				now, _ := machine.RSS(pid)
				top = max(top, now)
			}
		}
	}()
	return func() float64 { cancel(); return <-most }
}

// peak finds the peak rate over HTTP once.
func (b *bench) peak(ctx context.Context) (float64, error) {
	if b.peaks["http"] == 0 {
		if s, err := b.once(ctx, side{"peak", httpIngest("plain", callers, kib)}); err != nil {
			return 0, err
		} else if s.Skipped != "" {
			return 0, skipped(s.Skipped)
		}
	}
	if b.peaks["half"] == 0 {
		b.peaks["half"] = b.peaks["http"] / 2
	}
	return b.peaks["half"], nil
}

func httpHalfPeak(ctx context.Context, r *run) error {
	rate, err := r.peak(ctx)
	if err != nil {
		return err
	}
	system, urls, _, err := r.ingest(ctx, "plain", callers)
	if err != nil {
		return err
	}
	post, err := r.post(ctx, system, urls, callers, kib)
	if err != nil {
		return err
	}
	return r.steady(ctx, system.Parts(r.cluster.PID), callers, rate, post)
}

func bareHalfPeak(ctx context.Context, r *run) error {
	rate, err := r.peak(ctx)
	if err != nil {
		return err
	}
	raw, err := r.raw(ctx)
	if err != nil {
		return err
	}
	return r.steady(ctx, nil, callers, rate, func(_, i int) error { return raw.Insert(ctx, r.document(i)) })
}

// steady measures calls at a rate.
func (r *run) steady(ctx context.Context, parts map[string]int, n int, rate float64, f func(caller, i int) error) error {
	if _, err := load.Open(ctx, n, rate, warmUp, f); err != nil {
		return err
	}
	err := r.measure(parts, func() (int, error) {
		latencies, err := load.Open(ctx, n, rate, r.seconds, f)
		r.sample.latencies(latencies)
		return len(latencies), err
	})
	r.sample.Note = fmt.Sprintf("asked for %.0f/s", rate)
	return err
}

func (b *bench) document(i int) []byte { return b.documents[i%len(b.documents)] }

const quietRate = 100

func httpQuiet(ctx context.Context, r *run) error {
	system, urls, _, err := r.ingest(ctx, "plain", 1)
	if err != nil {
		return err
	}
	post, err := r.post(ctx, system, urls, 1, kib)
	if err != nil {
		return err
	}
	return r.steady(ctx, system.Parts(r.cluster.PID), 1, quietRate, post)
}

func bareQuiet(ctx context.Context, r *run) error {
	raw, err := r.raw(ctx)
	if err != nil {
		return err
	}
	return r.steady(ctx, nil, 1, quietRate, func(_, i int) error { return raw.InsertNotify(ctx, r.document(i)) })
}

func (r *run) raw(ctx context.Context) (*peers.Raw, error) {
	database, err := r.database(ctx, "empty", nil)
	if err != nil {
		return nil, err
	}
	raw, err := peers.OpenRaw(ctx, database)
	if err != nil {
		return nil, err
	}
	r.later(raw.Close)
	return raw, nil
}

// inserts measures 64 callers that store one document a time.
func (r *run) inserts(ctx context.Context, f func(i int) error) error {
	return r.insertsOf(ctx, callers, 1, f)
}

// insertsOf measures n callers that store so many events a call.
func (r *run) insertsOf(ctx context.Context, n, events int, f func(i int) error) error {
	call := func(_, i int) error { return f(i) }
	if _, err := load.Closed(ctx, n, warmUp, call); err != nil {
		return err
	}
	return r.measure(nil, func() (int, error) {
		latencies, err := load.Closed(ctx, n, r.seconds, call)
		r.sample.latencies(latencies)
		return events * len(latencies), err
	})
}

func (r *run) river(ctx context.Context, settings peers.RiverSettings, work peers.Work) (*peers.River, error) {
	database, err := r.database(ctx, "river", peers.MigrateRiver)
	if err != nil {
		return nil, err
	}
	client, err := peers.OpenRiver(ctx, database, settings, work)
	if err != nil {
		return nil, err
	}
	r.later(client.Close)
	return client, nil
}

func riverInsert(ctx context.Context, r *run) error {
	client, err := r.river(ctx, peers.RiverDefault, nil)
	if err != nil {
		return err
	}
	return r.inserts(ctx, func(i int) error { return client.Insert(ctx, r.document(i)) })
}

func riverInsertGitHub(ctx context.Context, r *run) error {
	client, err := r.river(ctx, peers.RiverDefault, nil)
	if err != nil {
		return err
	}
	return r.inserts(ctx, func(i int) error { return client.Insert(ctx, r.deliveries[i%len(r.deliveries)].Payload) })
}

func riverMany(fast bool) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		const size = 500
		client, err := r.river(ctx, peers.RiverDefault, nil)
		if err != nil {
			return err
		}
		return r.insertsOf(ctx, 2, size, func(i int) error {
			at := i * size % len(r.documents)
			if fast {
				return client.InsertManyFast(ctx, r.documents[at:at+size])
			}
			return client.InsertMany(ctx, r.documents[at:at+size])
		})
	}
}

func gueInsert(ctx context.Context, r *run) error {
	database, err := r.database(ctx, "empty", nil)
	if err != nil {
		return err
	}
	client, err := peers.OpenGue(ctx, database, true)
	if err != nil {
		return err
	}
	r.later(client.Close)
	return r.inserts(ctx, func(i int) error { return client.Insert(ctx, r.document(i)) })
}

func dbosInsert(ctx context.Context, r *run) error {
	database, err := r.database(ctx, "empty", nil)
	if err != nil {
		return err
	}
	client, err := peers.OpenDBOS(ctx, database, func(context.Context, []byte) error { return nil })
	if err != nil {
		return err
	}
	r.later(client.Close)
	return r.inserts(ctx, func(i int) error { return client.Insert(ctx, r.document(i)) })
}

func rawSingle(notify bool) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		raw, err := r.raw(ctx)
		if err != nil {
			return err
		}
		return r.inserts(ctx, func(i int) error {
			if notify {
				return raw.InsertNotify(ctx, r.document(i))
			}
			return raw.Insert(ctx, r.document(i))
		})
	}
}

func rawBatched(how peers.Batching) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		raw, err := r.raw(ctx)
		if err != nil {
			return err
		}
		if err := raw.StartBatching(ctx, how); err != nil {
			return err
		}
		return r.inserts(ctx, func(i int) error { return raw.Batched(r.document(i)) })
	}
}

// storeInsert is the ledger in this process: no HTTP, no manager.
func storeInsert(ctx context.Context, r *run) error {
	database, err := r.database(ctx, "tocsin", tocsin.Migrate)
	if err != nil {
		return err
	}
	ledger, err := tocsin.OpenLedger(ctx, database, callers)
	if err != nil {
		return err
	}
	r.later(ledger.Close)
	return r.inserts(ctx, func(i int) error { return ledger.Call(ctx, i, r.document(i)) })
}

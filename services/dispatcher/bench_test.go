package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/store/storetest"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// BenchmarkDrain empties a backlog of 20,000 events of 1 KiB. Durable figures
// need a durable server: scripts/with-postgres.sh --durable.
func BenchmarkDrain(b *testing.B) {
	const events = 20_000
	for _, c := range []struct {
		name          string
		subscriptions int
		settings      []string
	}{
		{"embedded", 1000, []string{"ENGINE_URL", "embedded:"}},
		{"embedded-one-subscription", 1, []string{"ENGINE_URL", "embedded:"}},
		{"http", 1000, nil},
		{"http-one-subscription", 1, nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				l := setup(b)
				l.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = w.Write([]byte(`{"runId":"run_1"}`))
				})
				n := events
				if c.name == "http-one-subscription" {
					n /= 10
				}
				l.backlog(b, n, c.subscriptions)
				conn := storetest.Conn(b, l.url)
				b.StartTimer()
				began := time.Now()
				d := l.dispatcher(b, append(c.settings, "LOG_LEVEL", "warn")...)
				for left := 1; left > 0; {
					<-time.After(20 * time.Millisecond)
					if err := conn.QueryRow(b.Context(), "SELECT count(*) FROM (SELECT 1 FROM trigger_queue LIMIT 1) AS q").Scan(&left); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(n)/time.Since(began).Seconds(), "events/s")
				b.StopTimer()
				if err := d.stop(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// backlog stores events of several subscriptions in turn.
func (b *bundle) backlog(tb testing.TB, events, subscriptions int) {
	tb.Helper()
	subs := make([]*trigger.Subscription, subscriptions)
	for i := range subs {
		subs[i] = b.subscribe(tb)
	}
	body, _ := json.Marshal(map[string]string{"text": strings.Repeat("x", 1000)})
	var wait sync.WaitGroup
	for caller := range 64 {
		wait.Go(func() {
			for n := caller; n < events; n += 64 {
				b.call(tb, subs[n%len(subs)], string(body))
			}
		})
	}
	wait.Wait()
}

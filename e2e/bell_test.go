package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-dev/tocsin/db"
	"github.com/tocsin-dev/tocsin/e2e/checker"
	"github.com/tocsin-dev/tocsin/e2e/rig"
)

// C16: “terminate every LISTEN backend, post one event during the gap and one
// 3 s later. All run; the later ones within 1 s; the gap ones as soon as LISTEN
// is back, not at the 30 s tick; no growth in connection count; one warn line
// per cut.”
func TestACutListenCostsNoEventAFallbackInterval(t *testing.T) {
	t.Parallel()
	const cuts = 5
	engine := rig.StartEngine(t)
	s := rig.Start(t, rig.Options{Dispatchers: 2, Env: map[string]string{"ENGINE_URL": engine.URL, "FALLBACK_INTERVAL": "30s"}})
	id := s.Receiver("wf")
	listening := func() int {
		return s.Count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '%-bell'")
	}
	rig.Eventually(t, 20*time.Second, "both dispatchers listen", func() bool { return listening() == 2 })
	h := &checker.History{}
	post := func() {
		sent := time.Now()
		answer := s.Post(id, []byte(`{"n":1}`), "Content-Type", "application/json")
		h.Posts = append(h.Posts, checker.Post{Subscription: id, Sent: sent, Answered: time.Now(), Status: answer.Status, EventIDs: answer.EventIDs})
	}
	for range cuts {
		cut := time.Now()
		if n := s.Count(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE '%-bell'`); n == 0 {
			t.Error("nobody listened")
		}
		post()
		rig.Eventually(t, 10*time.Second, "both listen again", func() bool { return listening() == 2 })
		h.Faults = append(h.Faults, checker.Fault{Kind: "listeners terminated", Target: checker.Database, From: cut, To: time.Now()})
		rig.Pause(t.Context(), 1500*time.Millisecond)
		post()
		rig.Pause(t.Context(), 500*time.Millisecond)
	}
	rig.Eventually(t, 20*time.Second, "every event is dispatched", func() bool { return s.Open() == 0 })
	if err := rig.ReadHistory(t.Context(), s.Pool, engine.Engine, h); err != nil {
		t.Fatal(err)
	}
	for _, v := range checker.Check(h, checker.Rules{Prompt: time.Second}).Violations {
		t.Error(v)
	}
	for _, d := range s.Dispatchers {
		if lines := len(d.Logged("bell.lost")); lines > cuts {
			t.Errorf("%s wrote %d lines about %d cuts", d.Name, lines, cuts)
		}
	}
	if n := listening(); n != 2 {
		t.Errorf("%d LISTEN connections, want 2", n)
	}
}

// rings counts what a session hears on the bell's channel, and the longest
// payload.
func rings(ctx context.Context, t *testing.T, url string) (count func() (int, int), stop func()) {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{db.Channel}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	hearing, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var heard, longest int
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			n, err := conn.WaitForNotification(hearing)
			if err != nil {
				return
			}
			mu.Lock()
			heard, longest = heard+1, max(longest, len(n.Payload))
			mu.Unlock()
		}
	}()
	count = func() (int, int) { mu.Lock(); defer mu.Unlock(); return heard, longest }
	return count, func() { cancel(); <-done; _ = conn.Close(context.WithoutCancel(ctx)) }
}

// C18: “no payload string too long; payload at most a few bytes; 5,000 events
// of one call ring at most a handful of times; 1,000 posts far fewer rings than
// posts”.
func TestTheBellCarriesNothingAndIsRungRarely(t *testing.T) {
	t.Parallel()
	s := rig.Start(t, rig.Options{Dispatchers: -1, Apps: "testdata/apps", Env: map[string]string{"MAX_BODY_BYTES": "2097152"}})
	id := s.Subscribe("io.tocsin.e2e.fan", "fan", "wf", nil)
	count, stop := rings(t.Context(), t, s.Database)
	defer stop()

	large := append(append([]byte(`{"text":"`), bytes.Repeat([]byte("x"), 1<<20)...), `"}`...)
	if answer := s.Post(id, large, "Content-Type", "application/json"); answer.Status != http.StatusOK {
		t.Fatalf("a body of 1 MiB: %d %s", answer.Status, answer.Body)
	}
	rig.Eventually(t, 5*time.Second, "the bell rang", func() bool { n, _ := count(); return n > 0 })

	before, _ := count()
	if answer := s.Post(id, []byte(`{"count":5000}`), "Content-Type", "application/json"); answer.Status != http.StatusOK || len(answer.EventIDs) != 5000 {
		t.Fatalf("5,000 events in one call: %d, %d events", answer.Status, len(answer.EventIDs))
	}
	rig.Eventually(t, 5*time.Second, "the bell rang", func() bool { n, _ := count(); return n > before })
	after, _ := count()
	if after-before > 5 {
		t.Errorf("one call rang %d times", after-before)
	}

	const posts = 1000
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for n := range posts / 16 {
				if answer := s.Post(id, fmt.Appendf(nil, `{"n":%d}`, n), "Content-Type", "application/json"); answer.Status != http.StatusOK {
					t.Errorf("post: %d %s", answer.Status, answer.Body)
				}
			}
		})
	}
	clients.Wait()
	total, longest := count()
	if rung := total - after; rung > posts/2 {
		t.Errorf("%d posts rang %d times", posts, rung)
	}
	if longest > 4 {
		t.Errorf("a ring carried %d bytes", longest)
	}
	t.Logf("one call of 5,000 events: %d rings; %d posts: %d rings", after-before, posts, total-after)
}

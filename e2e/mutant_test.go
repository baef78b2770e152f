package e2e

import (
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/checker"
	"github.com/tocsin-dev/tocsin/e2e/rig"
	"github.com/tocsin-dev/tocsin/internal/engine/fakeengine"
)

// The tests in this file break a promise in the real programs, or in the real
// database, and want the checker to say so: a checker that is content with
// everything proves nothing.

// send posts one event and notes it in the history.
// needsChaos leaves the mutants to make chaos: they hang on how long a stopped
// process sleeps, which a busy machine decides. The checker's own tests have the
// same broken histories at every run.
func needsChaos(t *testing.T) {
	t.Helper()
	if os.Getenv("CHAOS_MINUTES") == "" {
		t.Skip("for make chaos, which sets CHAOS_MINUTES")
	}
}

func send(t *testing.T, s *rig.System, h *checker.History, id, body string) string {
	t.Helper()
	sent := time.Now()
	answer := s.Post(id, []byte(body), "Content-Type", "application/json")
	h.Posts = append(h.Posts, checker.Post{Subscription: id, Sent: sent, Answered: time.Now(), Status: answer.Status, EventIDs: answer.EventIDs})
	if answer.Status != http.StatusOK || len(answer.EventIDs) != 1 {
		t.Fatalf("post: %d %s", answer.Status, answer.Body)
	}
	return answer.EventIDs[0]
}

// A dispatcher is stopped for longer than its lease, and wakes up with an
// outcome in hand while another one starts the next event of the subscription.
func TestALeaseWithoutFencingIsCaught(t *testing.T) {
	t.Parallel()
	needsChaos(t)
	const fence, pair = "WHERE c.sid = l.sid AND c.token = l.token\n    RETURNING", "h.sid = r.sid AND h.token = r.token"
	for name, mutated := range map[string]bool{"with the fence": false, "without the fence": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := rig.StartEngine(t)
			engine.Play(fakeengine.Script{Then: fakeengine.Step{Do: fakeengine.DoOK, Latency: fakeengine.Duration(1500 * time.Millisecond)}})
			s := rig.Start(t, rig.Options{Dispatchers: -1, Env: map[string]string{"ENGINE_URL": engine.URL, "LEASE": "2s", "SHUTDOWN_GRACE": "2s"}})
			if mutated {
				s.Binaries.Dispatcher = rig.Mutant(t, "internal/store/internal/dbsqlc/trigger_queue.sql.go",
					fence, "WHERE c.sid = l.sid\n    RETURNING", pair, "h.sid = r.sid")
			}
			if err := rig.Audit(t.Context(), s.Pool); err != nil {
				t.Fatal(err)
			}
			h := &checker.History{}
			id := s.Receiver("wf")
			late := s.StartDispatcher(nil)
			first := send(t, s, h, id, `{"n":1}`)
			rig.Eventually(t, 10*time.Second, "the first event is being started", func() bool { return len(engine.Starts()) == 1 })
			late.Signal(syscall.SIGSTOP)
			stopped := time.Now()
			s.StartDispatcher(nil)
			rig.Eventually(t, 20*time.Second, "its attempt is lost", func() bool {
				return s.Count("SELECT count(*) FROM trigger_attempts WHERE event_id = $1 AND outcome = 'lost'", first) == 1
			})
			send(t, s, h, id, `{"n":2}`)
			rig.Eventually(t, 10*time.Second, "the second event is being started", func() bool { return len(engine.Starts()) == 2 })
			late.Signal(syscall.SIGCONT)
			h.Faults = []checker.Fault{{Kind: "stop dispatcher", Target: checker.Dispatcher, From: stopped, To: time.Now()}}
			rig.Eventually(t, 40*time.Second, "the outcome is settled, by whom it may", func() bool {
				return s.Count("SELECT count(*) FROM trigger_deliveries WHERE event_id = $1", first) == 1 && (mutated || s.Open() == 0)
			})
			if err := rig.ReadHistory(t.Context(), s.Pool, engine.Engine, h); err != nil {
				t.Fatal(err)
			}
			report := checker.Check(h, checker.Rules{Settle: 3 * time.Second})
			if caught := report.Count(checker.RuleArrow) > 0; caught != mutated {
				t.Errorf("caught %t, want %t: %v", caught, mutated, report.Violations)
			}
		})
	}
}

// An event comes while nobody listens, and the only thing that finds it before
// a timer of 20 s is the look after LISTEN.
func TestAListenWithoutCatchUpIsCaught(t *testing.T) {
	t.Parallel()
	needsChaos(t)
	engine := rig.StartEngine(t)
	s := rig.Start(t, rig.Options{Dispatchers: -1, Env: map[string]string{"ENGINE_URL": engine.URL, "FALLBACK_INTERVAL": "20s"}})
	s.Binaries.Dispatcher = rig.Mutant(t, "internal/bell/bell.go", "\tl.ring()\n\treturn l.hear(ctx, conn)", "\treturn l.hear(ctx, conn)")
	u, err := url.Parse(s.Database)
	if err != nil {
		t.Fatal(err)
	}
	proxy := rig.StartProxy(t, u.Host)
	d := s.StartDispatcher(map[string]string{"LISTEN_DATABASE_URL": proxy.Through(t, s.Database)})
	rig.Eventually(t, 10*time.Second, "the bell is heard", func() bool { return metric(t, d.URL, "tocsin_listener_up") == "1" })
	h := &checker.History{}
	id := s.Receiver("wf")
	began := time.Now()
	proxy.Refuse(true)
	proxy.Cut()
	send(t, s, h, id, `{"n":1}`)
	proxy.Refuse(false)
	rig.Eventually(t, 10*time.Second, "the bell is heard again", func() bool { return metric(t, d.URL, "tocsin_listener_up") == "1" })
	h.Faults = []checker.Fault{{Kind: "listeners terminated", Target: checker.Database, From: began, To: time.Now()}}
	rig.Eventually(t, 40*time.Second, "the timer has found it", func() bool { return s.Open() == 0 })
	if err := rig.ReadHistory(t.Context(), s.Pool, engine.Engine, h); err != nil {
		t.Fatal(err)
	}
	if report := checker.Check(h, checker.Rules{Prompt: 2 * time.Second}); report.Count(checker.RuleLate) != 1 {
		t.Errorf("not caught: %v", report.Violations)
	}
}

// A database that says committed before it is: what it held in memory is gone
// with a crash.
func TestAnAnswerBeforeTheCommitIsCaught(t *testing.T) {
	t.Parallel()
	needsChaos(t)
	cluster := rig.StartCluster(t)
	for _, setting := range []string{"synchronous_commit = off", "wal_writer_delay = 10000", "wal_writer_flush_after = 0"} {
		cluster.Exec(t.Context(), "ALTER SYSTEM SET "+setting)
	}
	cluster.Exec(t.Context(), "SELECT pg_reload_conf()")
	engine := rig.StartEngine(t)
	s := rig.Start(t, rig.Options{Dispatchers: -1, Database: cluster.URL, Env: map[string]string{"ENGINE_URL": engine.URL}})
	id := s.Receiver("wf")
	h := &checker.History{}
	cluster.Exec(t.Context(), "CHECKPOINT")
	for range 20 {
		send(t, s, h, id, `{"n":1}`)
	}
	cluster.Stop(t.Context(), syscall.SIGQUIT)
	cluster.Start(t.Context())
	s.Pool.Reset()
	rig.Eventually(t, 20*time.Second, "the database answers", func() bool { return s.Pool.Ping(t.Context()) == nil })
	if err := rig.ReadHistory(t.Context(), s.Pool, engine.Engine, h); err != nil {
		t.Fatal(err)
	}
	if report := checker.Check(h, checker.Rules{}); report.Count(checker.RuleLost) == 0 {
		t.Errorf("not caught: %+v", report)
	}
}

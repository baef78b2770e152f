package chaos

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/e2e/checker"
	"github.com/tocsin-dev/tocsin/e2e/rig"
)

// Round is one run under fire.
type Round struct {
	Seed   int64
	Length time.Duration // of the fire; settling down comes after it
	// Embedded plays with the embedded engine, which takes many events a claim
	// and fails with the database alone.
	Embedded bool
	// Subscriptions is how many clients post, each to its own; 0 is 16.
	Subscriptions int
	// Every is a client's pause between two calls; 0 is 100 ms.
	Every time.Duration
	// Drain is how long everything may take to come to its end; 0 is 3 minutes.
	Drain time.Duration
}

// Run brings a Tocsin up, plays the plan of the round's seed while clients post,
// lets it settle down, requeues what was dead-lettered, and gives the verdict.
func (r Round) Run(t testing.TB) (*checker.Report, *checker.History) {
	t.Helper()
	r = r.withDefaults()
	plan := Plan(r.Seed, r.Length)
	t.Logf("seed %d, %d faults: %s", r.Seed, len(plan), Summary(plan))

	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var processes sync.WaitGroup
	defer processes.Wait()
	defer stop()
	w := build(ctx, t, &processes, r.Embedded)
	history := &checker.History{}
	history.Posts = r.underFire(ctx, w, plan)
	w.drain(r.Drain)
	history.Requeues = w.requeueAll(ctx)
	w.drain(r.Drain)
	history.Faults = w.faults
	engine := w.engine.Engine
	if r.Embedded {
		engine = nil
	}
	if err := rig.ReadHistory(context.WithoutCancel(t.Context()), w.pool, engine, history); err != nil {
		t.Fatal(err)
	}
	return checker.Check(history, checker.Rules{Settle: lease + 2*time.Second, Slack: 5 * time.Millisecond}), history
}

func (r Round) withDefaults() Round {
	if r.Subscriptions == 0 {
		r.Subscriptions = 16
	}
	if r.Every == 0 {
		r.Every = 100 * time.Millisecond
	}
	if r.Drain == 0 {
		r.Drain = 3 * time.Minute
	}
	return r
}

// underFire posts and plays the plan, and gives the calls.
func (r Round) underFire(ctx context.Context, w *world, plan []Step) []checker.Post {
	ids := make([]string, r.Subscriptions)
	for i := range ids {
		ids[i] = w.subscribe()
	}
	posting, enough := context.WithCancel(ctx)
	var clients, tracks sync.WaitGroup
	var mu sync.Mutex
	var posts []checker.Post
	for _, id := range ids {
		clients.Go(func() {
			mine := w.post(posting, id, r.Every)
			mu.Lock()
			defer mu.Unlock()
			posts = append(posts, mine...)
		})
	}
	began := time.Now()
	for _, process := range []bool{true, false} {
		tracks.Go(func() {
			for _, step := range plan {
				if isProcess(step) == process {
					rig.Pause(ctx, time.Until(began.Add(step.At)))
					w.hit(ctx, step)
				}
			}
		})
	}
	tracks.Wait()
	rig.Pause(ctx, time.Until(began.Add(r.Length)))
	enough()
	clients.Wait()
	return posts
}

func (w *world) subscribe() string {
	var answer rig.Answer
	rig.Eventually(w.t, 30*time.Second, "a subscription is made", func() bool {
		var err error
		answer, err = rig.Send(w.t.Context(), http.MethodPost, w.api+"/apps/io.tocsin.example.receiver/triggers/call/subscriptions",
			[]byte(`{"workflowId":"wf"}`), "Content-Type", "application/json", "Authorization", "Bearer "+rig.BootstrapKey)
		return err == nil && answer.Status == http.StatusCreated
	})
	return rig.SubscriptionID(w.t, answer)
}

// post is one client: it sends one call after the other and takes no answer for
// an answer.
func (w *world) post(ctx context.Context, id string, every time.Duration) []checker.Post {
	var posts []checker.Post
	for n := 0; ctx.Err() == nil; n++ {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		p := checker.Post{Subscription: id, Sent: time.Now()}
		answer, err := rig.Send(limited, http.MethodPost, w.public+"/triggers/webhooks/"+id, fmt.Appendf(nil, `{"n":%d}`, n), "Content-Type", "application/json")
		cancel()
		p.Answered = time.Now()
		if err == nil {
			p.Status, p.EventIDs = answer.Status, answer.EventIDs
		}
		posts = append(posts, p)
		rig.Pause(ctx, every)
	}
	return posts
}

// drain waits until every event is at its end. What is not is the checker's to
// report.
func (w *world) drain(within time.Duration) {
	deadline := time.Now().Add(within)
	for time.Now().Before(deadline) {
		var open int
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 5*time.Second)
		err := w.pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM trigger_queue) + (SELECT count(*) FROM trigger_claims)").Scan(&open)
		cancel()
		if err == nil && open == 0 {
			return
		}
		rig.Pause(w.t.Context(), 200*time.Millisecond)
	}
	w.t.Logf("not everything is at its end after %v", within)
}

// requeueAll requeues every dead letter.
func (w *world) requeueAll(ctx context.Context) []checker.Requeue {
	rows, err := w.pool.Query(ctx, "SELECT event_id FROM trigger_deliveries WHERE status = 'failed' ORDER BY event_id")
	if err != nil {
		w.t.Error(err)
		return nil
	}
	ids, err := collectStrings(rows)
	if err != nil {
		w.t.Error(err)
		return nil
	}
	var list []checker.Requeue
	for _, id := range ids {
		at := time.Now()
		answer, err := rig.Send(ctx, http.MethodPost, w.api+"/trigger-events/"+id+"/requeue", nil, "Authorization", "Bearer "+rig.BootstrapKey)
		if err != nil || answer.Status != http.StatusOK {
			w.t.Errorf("requeue %s: %d %s %v", id, answer.Status, answer.Body, err)
			continue
		}
		list = append(list, checker.Requeue{EventID: id, At: at})
	}
	return list
}

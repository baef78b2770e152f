package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/store"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// deadLetters makes n dead letters of a subscription and gives their ids.
func deadLetters(t *testing.T, s *store.DB, sub *trigger.Subscription, n int) []string {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = save(t, s, record(sub, fmt.Sprintf(`{"n":%d}`, i))).EventIDs[0]
	}
	for left := n; left > 0; {
		events := claim(t, s, 100, 100)
		var outcomes []trigger.Outcome
		for _, e := range events {
			outcomes = append(outcomes, trigger.Outcome{Event: e, AttemptID: "att_" + e.ID, Err: &trigger.StepError{Code: "plan_error"}})
		}
		settle(t, s, outcomes...)
		left -= len(events)
	}
	return ids
}

func stepAll(t *testing.T, s *store.DB) (steps int) {
	t.Helper()
	for {
		more, err := s.StepOperation(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return steps
		}
		steps++
	}
}

// “exactly 130, B untouched, a countable result, safe to repeat, order within A
// kept” (C21). What fails after the operation was made is none of its.
func TestABulkRequeueKeepsToItsFilterAllOfIt(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	subA, subB := subscribe(t, s), subscribe(t, s)
	ids := deadLetters(t, s, subA, 430)
	deadLetters(t, s, subB, 5)
	op, err := s.RequeueAll(t.Context(), "default", trigger.RequeueFilter{Subscription: subA.ID})
	if err != nil {
		t.Fatal(err)
	}
	if op.State != trigger.OperationRunning || op.Total != 430 {
		t.Errorf("operation %+v, want a running one for 430", op)
	}
	late := deadLetters(t, s, subA, 1)[0]
	if steps := stepAll(t, s); steps != 4 { // 200, 200, 30, none
		t.Errorf("%d steps, want 4", steps)
	}
	op, err = s.Operation(t.Context(), "default", op.ID)
	if err != nil {
		t.Fatal(err)
	}
	if op.State != trigger.OperationDone || op.Requeued != 430 || op.EndedAt == nil {
		t.Errorf("operation %+v, want a done one of 430", op)
	}
	if n := b.count(t, "SELECT count(*) FROM trigger_queue WHERE sid = $1", subB.SID); n != 0 {
		t.Errorf("%d events of another subscription were requeued", n)
	}
	if got := event(t, s, late); got.Status != trigger.StatusFailed {
		t.Errorf("what failed later is %s, want failed", got.Status)
	}
	claimed := claim(t, s, 430, 430)
	for i, e := range claimed {
		if e.ID != ids[i] || e.Attempts != 0 {
			t.Fatalf("event %d is %s with %d attempts, want %s with none", i, e.ID, e.Attempts, ids[i])
		}
	}
	if len(claimed) != 430 {
		t.Errorf("%d claimed, want 430", len(claimed))
	}
}

func TestABulkRequeueIsItsTenantsAlone(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	deadLetters(t, s, subscribe(t, s), 3)
	op, err := s.RequeueAll(t.Context(), "another", trigger.RequeueFilter{})
	if err != nil || op.Total != 0 {
		t.Fatalf("another tenant's requeue is for %+v, %v", op, err)
	}
	stepAll(t, s)
	if op, err = s.Operation(t.Context(), "another", op.ID); err != nil || op.Requeued != 0 {
		t.Errorf("another tenant requeued %+v, %v", op, err)
	}
	if _, err := s.Operation(t.Context(), "default", op.ID); !errors.Is(err, trigger.ErrUnknownOperation) {
		t.Errorf("another tenant's operation: %v, want unknown", err)
	}
	if _, err := s.CancelOperation(t.Context(), "default", op.ID); !errors.Is(err, trigger.ErrUnknownOperation) {
		t.Errorf("cancel of another tenant's operation: %v, want unknown", err)
	}
}

func TestABulkRequeueIsCancelledWhereItIs(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	deadLetters(t, s, subscribe(t, s), 250)
	op, err := s.RequeueAll(t.Context(), "default", trigger.RequeueFilter{WorkflowID: "wf", AppID: "app", ErrorCode: "plan_error"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.StepOperation(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second cancel changes nothing
		if op, err = s.CancelOperation(t.Context(), "default", op.ID); err != nil || op.State != trigger.OperationCancelled || op.Requeued != 200 {
			t.Fatalf("cancelled %+v, %v", op, err)
		}
	}
	if steps := stepAll(t, s); steps != 0 {
		t.Errorf("%d steps after the cancel", steps)
	}
	if queued, dead := b.count(t, "SELECT count(*) FROM trigger_queue"), b.count(t, "SELECT count(*) FROM trigger_deliveries"); queued != 200 || dead != 50 {
		t.Errorf("%d queued and %d dead, want 200 and 50", queued, dead)
	}
}

// Two operations over the same dead letters, stepped by several processes, and
// single requeues in between: each event is put back once.
func TestRequeuesOfAllKindsPutAnEventBackOnce(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	ids := deadLetters(t, s, subscribe(t, s), 300)
	var ops []*trigger.Operation
	for range 2 {
		op, err := s.RequeueAll(t.Context(), "default", trigger.RequeueFilter{})
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	var people sync.WaitGroup
	var mu sync.Mutex
	single := 0
	for range 3 {
		people.Go(func() {
			for more := true; more; {
				var err error
				if more, err = s.StepOperation(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
		people.Go(func() {
			for _, id := range ids {
				err := s.Requeue(t.Context(), "default", id)
				if err == nil {
					mu.Lock()
					single++
					mu.Unlock()
				} else if !errors.Is(err, trigger.ErrNotRequeueable) {
					t.Error(err)
				}
			}
		})
	}
	people.Wait()
	stepAll(t, s)
	total := int64(single)
	for _, op := range ops {
		end, err := s.Operation(t.Context(), "default", op.ID)
		if err != nil || end.State != trigger.OperationDone {
			t.Fatalf("operation %+v, %v", end, err)
		}
		total += end.Requeued
	}
	if n := b.count(t, "SELECT count(*) FROM trigger_queue"); n != 300 || total != 300 {
		t.Errorf("%d queued, %d said to be requeued, want 300", n, total)
	}
}

// What is over is forgotten after its time, what is not, or still can be
// requeued, stays; and a call stays whole.
func TestWhatIsOverIsForgottenAfterItsTime(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	sub := subscribe(t, s)
	dead := deadLetters(t, s, sub, 1)[0]
	done := save(t, s, record(sub, `{"n":1}`)).EventIDs[0]
	settle(t, s, trigger.Outcome{Event: claim(t, s, 1, 1)[0], RunID: "run_1", AttemptID: "att_1"})
	empty := record(sub, `{}`)
	empty.Events, empty.Status, empty.Reason = nil, trigger.StatusIgnored, trigger.ReasonEmpty
	ignored := save(t, s, empty).CallID
	pair := record(sub, `[1,2]`)
	pair.Events = []trigger.EventRecord{{Normalized: []byte(`1`)}, {Normalized: []byte(`2`)}}
	half := save(t, s, pair).EventIDs
	settle(t, s, trigger.Outcome{Event: claim(t, s, 1, 1)[0], RunID: "run_2", AttemptID: "att_2"}) // its sibling is open

	keep := trigger.Retention{Events: time.Millisecond, DeadLetters: time.Hour}
	b.exec(t, "SELECT pg_sleep(0.01)") // every row is older than a millisecond
	purged, err := s.Purge(t.Context(), keep)
	if err != nil {
		t.Fatal(err)
	}
	if purged.Events != 2 {
		t.Errorf("%d events forgotten, want two", purged.Events)
	}
	for _, id := range []string{done, ignored} {
		if n := b.count(t, "SELECT (SELECT count(*) FROM trigger_events WHERE event_id = $1) + (SELECT count(*) FROM trigger_deliveries WHERE event_id = $1)", id); n != 0 {
			t.Errorf("%d rows of %s are left", n, id)
		}
	}
	for _, id := range append(half, dead) {
		if n := b.count(t, "SELECT count(*) FROM trigger_events WHERE event_id = $1", id); n != 1 {
			t.Errorf("%s was forgotten", id)
		}
	}

	keep.DeadLetters = time.Millisecond
	settle(t, s, trigger.Outcome{Event: claim(t, s, 1, 1)[0], RunID: "run_3", AttemptID: "att_3"})
	b.exec(t, "SELECT pg_sleep(0.01)")
	if purged, err = s.Purge(t.Context(), keep); err != nil || purged.Events != 3 {
		t.Errorf("%+v, %v: want the dead letter and the pair", purged, err)
	}
	if n := b.count(t, "SELECT (SELECT count(*) FROM trigger_events) + (SELECT count(*) FROM trigger_deliveries) + (SELECT count(*) FROM trigger_attempts)"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

func TestNothingIsForgottenWithoutAnOrder(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	sub := subscribe(t, s)
	deadLetters(t, s, sub, 1)
	save(t, s, record(sub, `{}`))
	settle(t, s, trigger.Outcome{Event: claim(t, s, 1, 1)[0], RunID: "run_1", AttemptID: "att_1"})
	b.exec(t, "SELECT pg_sleep(0.01)")
	for _, keep := range []trigger.Retention{{}, {Events: time.Hour}, {DeadLetters: time.Hour}} {
		if purged, err := s.Purge(t.Context(), keep); err != nil || purged.Events != 0 {
			t.Errorf("%+v: %+v, %v", keep, purged, err)
		}
	}
	if purged, err := s.Purge(t.Context(), trigger.Retention{Events: time.Millisecond}); err != nil || purged.Events != 1 {
		t.Errorf("dead letters for ever: %+v, %v, want one event forgotten", purged, err)
	}
}

// A thousand calls are forgotten in several steps, and those that stay are
// passed over once.
func TestForgettingGoesInSmallSteps(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	sub := subscribe(t, s)
	for range 1200 {
		b.exec(t, `INSERT INTO trigger_events (event_id, call_id, sid, tenant, initial_status, source, received_at)
			SELECT id, id, $1, 'default', 'ignored', 'webhook', now() - interval '40 days'
			FROM (SELECT 'evt_0' || lpad(to_hex((random() * 1e12)::bigint), 25, '0') AS id) AS x`, sub.SID)
	}
	purged, err := s.Purge(t.Context(), trigger.Retention{Events: 30 * 24 * time.Hour})
	if err != nil || purged.Events != 1200 {
		t.Errorf("%+v, %v, want 1200 forgotten", purged, err)
	}
}

func TestRunsAreForgottenAfterTheirTime(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	insert := `INSERT INTO runs (run_id, tenant, workflow_id, trigger, status, log, started_at, finished_at)
		VALUES ($1, 'default', 'wf', 'webhook', 'completed', '[]', now() - $2::interval, now() - $2::interval)`
	b.exec(t, insert, "run_01aaaaaaaaaaaaaaaaaaaaaaaa", "40 days")
	b.exec(t, insert, "run_01aaaaaaaaaaaaaaaaaaaaaaab", "1 day") // of an event that had waited for long
	purged, err := s.Purge(t.Context(), trigger.Retention{Runs: 30 * 24 * time.Hour})
	if err != nil || purged.Runs != 1 {
		t.Errorf("%+v, %v, want one run forgotten", purged, err)
	}
}

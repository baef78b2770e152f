package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/store"
	"github.com/tocsin-dev/tocsin/internal/store/storetest"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

type bundle struct {
	url  string
	conn *pgx.Conn
}

func setup(t *testing.T) (*store.DB, *bundle) {
	t.Helper()
	url := storetest.NewURL(t)
	return storetest.Open(t, url), &bundle{url: url, conn: storetest.Conn(t, url)}
}

func (b *bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := b.conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bundle) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := b.conn.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func subscribe(t *testing.T, s *store.DB) *trigger.Subscription {
	t.Helper()
	sub := &trigger.Subscription{
		ID: trigger.NewSubscriptionID(), Tenant: "default", AppID: "app", TriggerKey: "key", WorkflowID: "wf",
		Params: json.RawMessage(`{"a":1}`),
	}
	if err := s.ReserveSubscription(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	if err := s.ActivateSubscription(t.Context(), sub, json.RawMessage(`{"hook":2}`)); err != nil {
		t.Fatal(err)
	}
	return sub
}

func record(sub *trigger.Subscription, body string) *trigger.CallRecord {
	return &trigger.CallRecord{
		Subscription: sub,
		Call:         &trigger.Call{Source: trigger.SourceWebhook, Method: "POST", Path: trigger.CallbackPath + sub.ID.Reveal(), Body: []byte(body)},
		MaskedHeader: json.RawMessage(`[["content-type","application/json"]]`),
		Events:       []trigger.EventRecord{{}},
	}
}

func save(t *testing.T, s *store.DB, r *trigger.CallRecord) *trigger.SavedCall {
	t.Helper()
	saved, err := s.SaveCall(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

func claim(t *testing.T, s *store.DB, limit, perSubscription int) []*trigger.PendingEvent {
	t.Helper()
	events, err := s.ClaimDue(t.Context(), trigger.ClaimRequest{Owner: "me", Limit: limit, Lease: time.Minute, PerSubscription: perSubscription})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func settle(t *testing.T, s *store.DB, outcomes ...trigger.Outcome) []*trigger.PendingEvent {
	t.Helper()
	lost, err := s.Settle(t.Context(), outcomes)
	if err != nil {
		t.Fatal(err)
	}
	return lost
}

func event(t *testing.T, s *store.DB, id string) *trigger.EventDetail {
	t.Helper()
	detail, err := s.Event(t.Context(), "default", id)
	if err != nil {
		t.Fatal(err)
	}
	return detail
}

func TestACallIsStoredWholeAndItsEventRunsOnce(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	sub := subscribe(t, s)
	body := `{"diff":"a\u0000b","big":12345678901234567890,"z":1,"a":2}`
	saved := save(t, s, record(sub, body))
	if len(saved.EventIDs) != 1 || saved.Status != trigger.StatusReceived {
		t.Fatalf("saved %+v", saved)
	}
	id := saved.EventIDs[0]
	if got := event(t, s, id); got.Status != trigger.StatusReceived || string(got.Normalized) != body || string(got.Call.Body) != body {
		t.Errorf("stored %+v", got)
	}
	if n := b.count(t, "SELECT count(*) FROM trigger_events WHERE position($1::bytea IN body) > 0", []byte("diff")); n != 0 {
		t.Error("the body lies in the clear")
	}

	events := claim(t, s, 10, 1)
	if len(events) != 1 || events[0].ID != id || string(events[0].Normalized) != body {
		t.Fatalf("claimed %+v", events)
	}
	if got := event(t, s, id).Status; got != trigger.StatusDispatching {
		t.Errorf("claimed event is %s", got)
	}
	if more := claim(t, s, 10, 1); len(more) != 0 {
		t.Errorf("claimed twice: %+v", more)
	}
	if lost := settle(t, s, trigger.Outcome{Event: events[0], AttemptID: "att_1", RunID: "run_1", Duration: time.Second}); len(lost) != 0 {
		t.Errorf("lost %v", lost)
	}
	got := event(t, s, id)
	if got.Status != trigger.StatusDispatched || got.RunID != "run_1" || got.Attempts != 1 || got.DispatchedAt == nil {
		t.Errorf("settled %+v", got)
	}
	if n := b.count(t, "SELECT (SELECT count(*) FROM trigger_queue) + (SELECT count(*) FROM trigger_claims)"); n != 0 {
		t.Errorf("%d rows left open", n)
	}
}

func TestTheDatabaseRefusesToChangeAStoredCall(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	save(t, s, record(subscribe(t, s), `{}`))
	for _, sql := range []string{
		"UPDATE trigger_events SET body = NULL", "UPDATE trigger_events SET sid = 0", "UPDATE trigger_events SET normalized = 'x'",
		"UPDATE trigger_events SET received_at = now()", "TRUNCATE trigger_events",
	} {
		if _, err := b.conn.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was allowed", sql)
		}
	}
}

func TestManyCallersEachGetTheirOwnAnswer(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	subs := []*trigger.Subscription{subscribe(t, s), subscribe(t, s), subscribe(t, s)}
	var wg sync.WaitGroup
	var mu sync.Mutex
	bodies := map[string]string{}
	for i := range 300 {
		wg.Go(func() {
			body := fmt.Sprintf(`{"n":%d}`, i)
			saved, err := s.SaveCall(t.Context(), record(subs[i%3], body))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			bodies[saved.EventIDs[0]] = body
		})
	}
	wg.Wait()
	if len(bodies) != 300 || b.count(t, "SELECT count(*) FROM trigger_events") != 300 {
		t.Fatalf("%d answers, want 300", len(bodies))
	}
	for id, body := range bodies {
		if got := string(event(t, s, id).Normalized); got != body {
			t.Errorf("%s holds %s, its caller sent %s", id, got, body)
		}
	}
}

func TestABadCallFailsAlone(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	b.exec(t, `ALTER TABLE trigger_events ADD CHECK (method <> 'BAD')`)
	sub := subscribe(t, s)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			r := record(sub, `{}`)
			bad := i%20 == 7
			if bad {
				r.Call.Method = "BAD"
			}
			if _, err := s.SaveCall(t.Context(), r); (err != nil) != bad {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if n := b.count(t, "SELECT count(*) FROM trigger_events"); n != 57 {
		t.Errorf("%d rows, want 57", n)
	}
}

func TestAStaleSubscriptionIsRefusedAtCommit(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	sub := subscribe(t, s)
	other := storetest.Open(t, b.url) // another process
	stale, err := s.SubscriptionForCall(t.Context(), sub.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.DeleteSubscription(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SaveCall(t.Context(), record(stale, `{}`)); !errors.Is(err, trigger.ErrConflict) {
		t.Errorf("saved for a deleted subscription: %v", err)
	}
	if _, err := s.SubscriptionForCall(t.Context(), sub.ID); !errors.Is(err, trigger.ErrUnknownSubscription) {
		t.Errorf("after the refusal: %v, want ErrUnknownSubscription", err)
	}
}

func TestClaimsAreInOrderAndOneASubscription(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	subs := []*trigger.Subscription{subscribe(t, s), subscribe(t, s)}
	var want [2][]string
	for range 5 {
		for i, sub := range subs {
			want[i] = append(want[i], save(t, s, record(sub, `{}`)).EventIDs[0])
		}
	}
	other := storetest.Open(t, b.url)
	var got [2][]string
	for len(got[0])+len(got[1]) < 10 {
		events := append(claim(t, s, 1, 1), claim(t, other, 10, 1)...)
		seen := map[int64]bool{}
		for _, e := range events {
			if seen[e.SID] {
				t.Fatal("two events of one subscription are being started")
			}
			seen[e.SID] = true
			i := slices.IndexFunc(subs, func(x *trigger.Subscription) bool { return x.SID == e.SID })
			got[i] = append(got[i], e.ID)
			settle(t, s, trigger.Outcome{Event: e, AttemptID: "att_" + e.ID, RunID: "run"})
		}
		if len(events) == 0 {
			t.Fatal("nothing claimed")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestABatchTakesASubscriptionsEventsInOrderAndIsFair(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	hot, cold := subscribe(t, s), subscribe(t, s)
	var want []string
	for range 30 {
		want = append(want, save(t, s, record(hot, `{}`)).EventIDs[0])
	}
	save(t, s, record(cold, `{}`))
	events := claim(t, s, 20, 20)
	var got []string
	colds := 0
	for _, e := range events {
		if e.SID == hot.SID {
			got = append(got, e.ID)
		} else {
			colds++
		}
	}
	if colds != 1 {
		t.Errorf("the quiet subscription got %d of its 1 event", colds)
	}
	if diff := cmp.Diff(want[:10], got); diff != "" {
		t.Errorf("hot events (-want +got):\n%s", diff)
	}
}

func TestFailuresWaitFiveTenTwentyFortyAndThenFail(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	sub := subscribe(t, s)
	id := save(t, s, record(sub, `{}`)).EventIDs[0]
	for attempt, wait := range []int{5, 10, 20, 40, 0} {
		events := claim(t, s, 10, 1)
		if len(events) != 1 || events[0].Attempts != attempt {
			t.Fatalf("attempt %d: claimed %+v", attempt+1, events)
		}
		settle(t, s, trigger.Outcome{
			Event: events[0], AttemptID: fmt.Sprintf("att_%d", attempt),
			Err: &trigger.StepError{Code: "engine_down", Message: "no\x00answer \xff", Retryable: true},
		})
		if wait == 0 {
			break
		}
		if n := b.count(t, "SELECT round(extract(epoch FROM due_at - now()))::int FROM trigger_queue"); n != wait {
			t.Errorf("wait after attempt %d is %d s, want %d", attempt+1, n, wait)
		}
		if got := event(t, s, id); got.Status != trigger.StatusReceived || got.LastErrorCode != "engine_down" {
			t.Errorf("after attempt %d: %+v", attempt+1, got.EventSummary)
		}
		if early := claim(t, s, 10, 1); len(early) != 0 {
			t.Fatal("claimed before its wait was over")
		}
		b.exec(t, "UPDATE trigger_queue SET due_at = now()")
	}
	got := event(t, s, id)
	if got.Status != trigger.StatusFailed || got.Attempts != 5 || len(got.AttemptLog) != 5 {
		t.Errorf("after 5 failures: %+v", got)
	}
}

func TestANonRetryableErrorGoesStraightToFailed(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	id := save(t, s, record(subscribe(t, s), `{}`)).EventIDs[0]
	settle(t, s, trigger.Outcome{Event: claim(t, s, 1, 1)[0], AttemptID: "att_1", Err: &trigger.StepError{Code: "plan_error"}})
	if got := event(t, s, id); got.Status != trigger.StatusFailed || got.Attempts != 1 || got.LastErrorCode != "plan_error" {
		t.Errorf("got %+v", got.EventSummary)
	}
}

func TestAnUnattemptedEventIsGivenBackUncharged(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	id := save(t, s, record(subscribe(t, s), `{}`)).EventIDs[0]
	settle(t, s, trigger.Outcome{Event: claim(t, s, 1, 1)[0], AttemptID: "att_1", Unattempted: true})
	events := claim(t, s, 1, 1)
	if len(events) != 1 || events[0].ID != id || events[0].Attempts != 0 {
		t.Errorf("got %+v", events)
	}
	if got := event(t, s, id); len(got.AttemptLog) != 0 {
		t.Errorf("an attempt was recorded: %+v", got.AttemptLog)
	}
}

func TestWaitingEventsHoldNobodyBack(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	sub := subscribe(t, s)
	save(t, s, record(sub, `{}`))
	second := save(t, s, record(sub, `{}`)).EventIDs[0]
	settle(t, s, trigger.Outcome{Event: claim(t, s, 1, 1)[0], AttemptID: "att_1", Err: &trigger.StepError{Code: "x", Retryable: true}})
	if events := claim(t, s, 1, 1); len(events) != 1 || events[0].ID != second {
		t.Errorf("claimed %+v, want %s", events, second)
	}
}

func TestAPausedSubscriptionKeepsItsEventsAndRunsThemOldestFirst(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	sub := subscribe(t, s)
	paused, err := s.SetDelivery(t.Context(), "default", sub.ID, trigger.DeliveryPaused)
	if err != nil {
		t.Fatal(err)
	}
	first := save(t, s, record(paused, `{}`)).EventIDs[0]
	save(t, s, record(paused, `{}`))
	if events := claim(t, s, 10, 1); len(events) != 0 {
		t.Fatalf("claimed from a paused subscription: %+v", events)
	}
	if _, err := s.SetDelivery(t.Context(), "default", sub.ID, trigger.DeliveryActive); err != nil {
		t.Fatal(err)
	}
	if events := claim(t, s, 10, 1); len(events) != 1 || events[0].ID != first {
		t.Errorf("after enabling: %+v, want %s", events, first)
	}
}

func TestAnExpiredLeaseChargesTheAttemptAndFencesTheLateWriter(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	id := save(t, s, record(subscribe(t, s), `{}`)).EventIDs[0]
	for attempt := 1; attempt <= trigger.MaxAttempts; attempt++ {
		held := claim(t, s, 1, 1)
		if len(held) != 1 {
			t.Fatalf("attempt %d: nothing to claim", attempt)
		}
		if lost, err := s.ReapExpired(t.Context()); err != nil || len(lost) != 0 {
			t.Fatalf("a live lease was reaped: %v, %v", lost, err)
		}
		b.exec(t, "UPDATE trigger_claims SET lease_until = now() - interval '1 second'")
		lost, err := s.ReapExpired(t.Context())
		if err != nil || len(lost) != 1 || lost[0].Attempt != attempt || lost[0].EventID != id {
			t.Fatalf("reaped %+v, %v", lost, err)
		}
		if fenced := settle(t, s, trigger.Outcome{Event: held[0], AttemptID: "att_late", RunID: "run_late"}); len(fenced) != 1 {
			t.Error("the late writer was not told that it lost the lease")
		}
		if attempt < trigger.MaxAttempts {
			wait := int(trigger.RetryWait(attempt).Seconds()) - 1 // from the lease's end, a second ago
			if n := b.count(t, "SELECT round(extract(epoch FROM due_at - now()))::int FROM trigger_queue"); n != wait {
				t.Errorf("wait after lost attempt %d is %d s, want %d", attempt, n, wait)
			}
			b.exec(t, "UPDATE trigger_queue SET due_at = now()")
		}
	}
	got := event(t, s, id)
	if got.Status != trigger.StatusFailed || got.Attempts != 5 || got.RunID != "" || got.LastErrorCode != "lease_lost" {
		t.Errorf("a poison event ended as %+v", got.EventSummary)
	}
}

// A dispatcher that could not reach the database for long has an old claim's
// outcome to record beside that of a new claim of the same subscription. The
// fence is the claim, not the subscription.
func TestAnOldClaimIsFencedBesideANewOneOfItsSubscription(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	sub := subscribe(t, s)
	first := save(t, s, record(sub, `{"n":1}`)).EventIDs[0]
	second := save(t, s, record(sub, `{"n":2}`)).EventIDs[0]
	old := claim(t, s, 1, 1)[0]
	b.exec(t, "UPDATE trigger_claims SET lease_until = now()")
	if _, err := s.ReapExpired(t.Context()); err != nil {
		t.Fatal(err)
	}
	fresh := claim(t, s, 1, 1)[0]
	if old.ID != first || fresh.ID != second {
		t.Fatalf("claimed %s and then %s, want %s and %s", old.ID, fresh.ID, first, second)
	}
	if kept, err := s.RenewClaims(t.Context(), []trigger.Claim{old.Claim, fresh.Claim}, time.Minute); err != nil || !slices.Equal(kept, []trigger.Claim{old.Claim}) {
		t.Errorf("lost at the renewal: %v, %v, want the old claim", kept, err)
	}
	lost := settle(t, s, trigger.Outcome{Event: old, RunID: "run_1", AttemptID: "att_1"}, trigger.Outcome{Event: fresh, RunID: "run_2", AttemptID: "att_2"})
	if len(lost) != 1 || lost[0] != old {
		t.Errorf("lost %v, want the old claim's event", lost)
	}
	if got := event(t, s, first); got.Status != trigger.StatusReceived || got.Attempts != 1 {
		t.Errorf("the old claim's event is %s with %d attempts, want received with the lost one", got.Status, got.Attempts)
	}
	if got := event(t, s, second); got.Status != trigger.StatusDispatched {
		t.Errorf("the new claim's event is %s, want dispatched", got.Status)
	}
}

func TestRenewedClaimsAreKeptAndLostOnesNamed(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	for range 2 {
		save(t, s, record(subscribe(t, s), `{}`))
	}
	events := claim(t, s, 2, 1)
	b.exec(t, "UPDATE trigger_claims SET lease_until = now() - interval '1 second' WHERE sid = $1", events[0].SID)
	lost, err := s.RenewClaims(t.Context(), []trigger.Claim{events[0].Claim, events[1].Claim}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]trigger.Claim{events[0].Claim}, lost); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
	if n := b.count(t, "SELECT count(*) FROM trigger_claims WHERE lease_until > now() + interval '50 minutes'"); n != 1 {
		t.Errorf("%d claims renewed, want 1", n)
	}
}

func TestRequeueStartsFromZeroAndOneOfTenWins(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	id := save(t, s, record(subscribe(t, s), `{"n":1}`)).EventIDs[0]
	if err := s.Requeue(t.Context(), "default", id); !errors.Is(err, trigger.ErrNotRequeueable) {
		t.Errorf("requeue of a received event: %v", err)
	}
	settle(t, s, trigger.Outcome{Event: claim(t, s, 1, 1)[0], AttemptID: "att_1", Err: &trigger.StepError{Code: "plan_error"}})
	received := event(t, s, id).ReceivedAt
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 10 {
		wg.Go(func() {
			err := s.Requeue(t.Context(), "default", id)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, trigger.ErrNotRequeueable) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d of 10 requeues won", won)
	}
	events := claim(t, s, 10, 1)
	if len(events) != 1 || events[0].Attempts != 0 || !events[0].ReceivedAt.Equal(received) {
		t.Errorf("requeued %+v", events)
	}
	if err := s.Requeue(t.Context(), "other", id); !errors.Is(err, trigger.ErrUnknownEvent) {
		t.Errorf("another tenant: %v", err)
	}
	if err := s.Requeue(t.Context(), "default", "evt_none"); !errors.Is(err, trigger.ErrUnknownEvent) {
		t.Errorf("unknown: %v", err)
	}
}

func TestTwentyCopiesGiveOneEventAndTwentyAnswers(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	sub, twin := subscribe(t, s), subscribe(t, s)
	other := storetest.Open(t, b.url)
	copyOf := func(sub *trigger.Subscription) *trigger.CallRecord {
		r := record(sub, `{}`)
		r.Events[0].DedupKey, r.Events[0].DedupWindow = "delivery-1", time.Hour
		return r
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]int{}
	for i := range 20 {
		wg.Go(func() {
			saved, err := []*store.DB{s, other}[i%2].SaveCall(t.Context(), copyOf(sub))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[saved.EventIDs[0]]++
		})
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Errorf("answers name %v, want one event 20 times", ids)
	}
	if n := b.count(t, "SELECT count(*) FROM trigger_events WHERE initial_status = 'ignored' AND reason = 'duplicate' AND duplicate_of IS NOT NULL"); n != 19 {
		t.Errorf("%d duplicates recorded, want 19", n)
	}
	if n := b.count(t, "SELECT count(*) FROM trigger_queue"); n != 1 {
		t.Errorf("%d events queued, want 1", n)
	}
	if saved := save(t, s, copyOf(twin)); saved.Status != trigger.StatusReceived {
		t.Errorf("the same key on another subscription: %+v", saved)
	}
	b.exec(t, "UPDATE dedup_keys SET expires_at = now() WHERE sid = $1", sub.SID)
	if saved := save(t, s, copyOf(sub)); saved.Status != trigger.StatusReceived {
		t.Errorf("after the window: %+v", saved)
	}
}

func TestTwoEventsWithOneKeyInOneCallSinkNothing(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	sub := subscribe(t, s)
	r := record(sub, `[]`)
	r.Events = []trigger.EventRecord{
		{Normalized: json.RawMessage(`{"id":"k1","v":1}`), DedupKey: "k1", DedupWindow: time.Hour},
		{Normalized: json.RawMessage(`{"id":"k1","v":2}`), DedupKey: "k1", DedupWindow: time.Hour},
		{Normalized: json.RawMessage(`{"id":"k2","v":3}`), DedupKey: "k2", DedupWindow: time.Hour},
	}
	saved := save(t, s, r)
	if len(saved.EventIDs) != 2 {
		t.Errorf("events %v, want two", saved.EventIDs)
	}
	events := claim(t, s, 10, 10)
	var got []string
	for _, e := range events {
		got = append(got, string(e.Normalized))
	}
	if diff := cmp.Diff([]string{`{"id":"k1","v":1}`, `{"id":"k2","v":3}`}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if n := b.count(t, "SELECT count(*) FROM trigger_events WHERE body IS NOT NULL"); n != 1 {
		t.Errorf("%d rows carry the call, want 1", n)
	}
}

func TestCallsStoredWhileSubscribingRunAfterItOrAreIgnored(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	reserve := func() *trigger.Subscription {
		sub := &trigger.Subscription{ID: trigger.NewSubscriptionID(), Tenant: "default", AppID: "app", TriggerKey: "key", WorkflowID: "wf"}
		if err := s.ReserveSubscription(t.Context(), sub); err != nil {
			t.Fatal(err)
		}
		return sub
	}
	good, bad := reserve(), reserve()
	kept := save(t, s, record(good, `{}`)).EventIDs[0]
	dropped := save(t, s, record(bad, `{}`)).EventIDs[0]
	if events := claim(t, s, 10, 1); len(events) != 0 {
		t.Fatalf("claimed before onSubscribe returned: %+v", events)
	}
	if err := s.ActivateSubscription(t.Context(), good, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.AbandonSubscription(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	if events := claim(t, s, 10, 1); len(events) != 1 || events[0].ID != kept {
		t.Errorf("claimed %+v, want %s", events, kept)
	}
	if got := event(t, s, dropped); got.Status != trigger.StatusIgnored || got.Reason != trigger.ReasonSubscribeFailed {
		t.Errorf("the other one is %+v", got.EventSummary)
	}
	if _, err := s.SubscriptionForCall(t.Context(), bad.ID); !errors.Is(err, trigger.ErrUnknownSubscription) {
		t.Errorf("the abandoned id: %v, want ErrUnknownSubscription", err)
	}
}

func TestPollStateMovesWithItsEventsOrNotAtAll(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	sub := subscribe(t, s)
	r := record(sub, ``)
	r.Call = &trigger.Call{Source: trigger.SourcePoll}
	r.Events = []trigger.EventRecord{{Normalized: json.RawMessage(`{"n":1}`)}}
	r.NextState = json.RawMessage(`{"cursor":1}`)
	b.exec(t, `ALTER TABLE trigger_events ADD CONSTRAINT no CHECK (source <> 'poll')`)
	if _, err := s.SaveCall(t.Context(), r); err == nil {
		t.Fatal("saved against the constraint")
	}
	if got, _ := s.Subscription(t.Context(), "default", sub.ID); string(got.State) != `{"hook":2}` {
		t.Errorf("the cursor moved without its events: %s", got.State)
	}
	b.exec(t, `ALTER TABLE trigger_events DROP CONSTRAINT no`)
	save(t, s, r)
	if got, _ := s.Subscription(t.Context(), "default", sub.ID); string(got.State) != `{"cursor":1}` {
		t.Errorf("the cursor is %s", got.State)
	}
	if _, err := s.SaveCall(t.Context(), r); !errors.Is(err, trigger.ErrConflict) {
		t.Errorf("a stale poll was saved: %v", err)
	}
	if n := b.count(t, "SELECT count(*) FROM trigger_events"); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestPeekTellsWhatIsDueAndWhatComesNext(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	peek := func() trigger.DuePeek {
		got, err := s.Peek(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := peek(); got != (trigger.DuePeek{}) {
		t.Errorf("empty: %+v", got)
	}
	save(t, s, record(subscribe(t, s), `{}`))
	if got := peek(); !got.Due {
		t.Errorf("with a due event: %+v", got)
	}
	events := claim(t, s, 1, 1)
	if got := peek(); got.Due || got.Expired || got.Next <= 0 {
		t.Errorf("while claimed: %+v, want the lease's end next", got)
	}
	settle(t, s, trigger.Outcome{Event: events[0], AttemptID: "a", Err: &trigger.StepError{Code: "x", Retryable: true}})
	if got := peek(); got.Due || got.Next <= 0 || got.Next > 5*time.Second {
		t.Errorf("while waiting: %+v, want up to 5 s", got)
	}
	b.exec(t, "UPDATE trigger_queue SET due_at = now()")
	claim(t, s, 1, 1)
	b.exec(t, "UPDATE trigger_claims SET lease_until = now()")
	if got := peek(); !got.Expired {
		t.Errorf("after the lease: %+v", got)
	}
}

func TestTheBellRingsAfterACommit(t *testing.T) {
	t.Parallel()
	s, b := setup(t)
	sub := subscribe(t, s)
	b.exec(t, "LISTEN tocsin_events")
	for range 3 {
		save(t, s, record(sub, `{}`))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		n, err := b.conn.WaitForNotification(ctx)
		cancel()
		if err != nil || n.Payload != "" {
			t.Fatalf("ring: %+v, %v", n, err)
		}
	}
}

func TestARunIsRecordedOnce(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	sub := subscribe(t, s)
	id := save(t, s, record(sub, `{"n":1}`)).EventIDs[0]
	run := trigger.Run{ID: "run_1", Tenant: "default", WorkflowID: "wf", EventID: id, SID: sub.SID, AttemptID: "att_1", Trigger: "webhook", Status: "succeeded", Log: json.RawMessage(`[]`)}
	again := run
	again.AttemptID = "att_2"
	for _, r := range []trigger.Run{run, again} {
		if err := s.SaveRuns(t.Context(), []trigger.Run{r}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Run(t.Context(), "default", "run_1")
	if err != nil || got.AttemptID != "att_1" || string(got.Event) != `{"n":1}` {
		t.Errorf("run %+v, %v", got, err)
	}
	if _, err := s.Run(t.Context(), "other", "run_1"); !errors.Is(err, trigger.ErrUnknownRun) {
		t.Errorf("another tenant: %v", err)
	}
	list, _, err := s.RunsOfWorkflow(t.Context(), "default", "wf", trigger.Page{})
	if err != nil || len(list) != 1 {
		t.Errorf("list %+v, %v", list, err)
	}
}

func TestListsArePaged(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	sub := subscribe(t, s)
	var want []string
	for range 5 {
		want = append([]string{save(t, s, record(sub, `{}`)).EventIDs[0]}, want...)
	}
	var got []string
	cursor := ""
	for {
		page, next, err := s.Events(t.Context(), "default", sub.ID, "", trigger.Page{Limit: 2, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			got = append(got, e.ID)
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("newest first (-want +got):\n%s", diff)
	}
}

func TestADeletedSubscriptionsOpenEventsAreIgnored(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	sub := subscribe(t, s)
	held := save(t, s, record(sub, `{}`)).EventIDs[0]
	open := save(t, s, record(sub, `{}`)).EventIDs[0]
	events := claim(t, s, 1, 1)
	if err := s.DeleteSubscription(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	settle(t, s, trigger.Outcome{Event: events[0], AttemptID: "a", Err: &trigger.StepError{Code: "x", Retryable: true}})
	if _, err := s.ReapExpired(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{held, open} {
		if got := event(t, s, id); got.Status != trigger.StatusIgnored || got.Reason != "subscription_deleted" {
			t.Errorf("%s is %s, %s", id, got.Status, got.Reason)
		}
	}
}

func TestKeysAreStoredFoundAndRevoked(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	ctx := t.Context()
	_, r := apikey.New("acme", "ci", []apikey.Scope{"events:read"}, time.Now().UTC().Truncate(time.Microsecond), nil)
	if err := s.CreateKey(ctx, r); err != nil {
		t.Fatal(err)
	}
	got, err := s.Key(ctx, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	got.CreatedAt = got.CreatedAt.UTC()
	if diff := cmp.Diff(r, got); diff != "" {
		t.Errorf("key (-want +got):\n%s", diff)
	}
	if err := s.RevokeKey(ctx, "other", r.ID); !errors.Is(err, apikey.ErrUnknownKey) {
		t.Errorf("another tenant revoked it: %v", err)
	}
	for range 2 {
		if err := s.RevokeKey(ctx, "acme", r.ID); err != nil {
			t.Error(err)
		}
	}
	if list, err := s.Keys(ctx, "acme"); err != nil || len(list) != 1 || list[0].RevokedAt == nil {
		t.Errorf("list %+v, %v", list, err)
	}
	if _, err := s.Key(ctx, "none"); !errors.Is(err, apikey.ErrUnknownKey) {
		t.Errorf("unknown: %v", err)
	}
}

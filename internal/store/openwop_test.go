package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/store"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

func openwop(t *testing.T, s *store.DB, policy trigger.RetryPolicy) *trigger.Subscription {
	t.Helper()
	sub := &trigger.Subscription{
		ID: trigger.NewSubscriptionID(), Tenant: "default", AppID: trigger.BuiltinApp, TriggerKey: trigger.BuiltinWebhook, WorkflowID: "wf",
		Surface: trigger.SurfaceOpenWOP, Source: trigger.SourceWebhook, Retry: &policy,
		OpenWOP: &trigger.OpenWOP{DedupEnabled: true, Verification: trigger.VerifyRequired, Secret: "whsec_c2VjcmV0"},
	}
	if err := s.ReserveSubscription(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	if err := s.ActivateSubscription(t.Context(), sub, nil); err != nil {
		t.Fatal(err)
	}
	return sub
}

// fail claims the one due event and ends its attempt with a retryable failure.
func fail(t *testing.T, s *store.DB, n int) {
	t.Helper()
	events, err := s.ClaimDue(t.Context(), trigger.ClaimRequest{Owner: "d", Limit: 1, Lease: time.Minute})
	if err != nil || len(events) != 1 {
		t.Fatalf("attempt %d: claimed %d, %v", n, len(events), err)
	}
	_, err = s.Settle(t.Context(), []trigger.Outcome{{
		Event: events[0], AttemptID: fmt.Sprintf("att_%s_%03d", events[0].ID, n), Err: &trigger.StepError{Code: "down", Message: "m", Retryable: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

func state(t *testing.T, s *store.DB, sub *trigger.Subscription) *trigger.Subscription {
	t.Helper()
	got, err := s.Subscription(t.Context(), sub.Tenant, sub.ID)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func transitions(t *testing.T, s *store.DB, sub *trigger.Subscription) []string {
	t.Helper()
	changes, err := s.StateChanges(t.Context(), sub.SID)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, c := range changes {
		list = append(list, string(c.From)+">"+string(c.To)+" "+c.Reason)
	}
	return list
}

func TestAnOpenWOPRowIsReadBackAsItWasWrittenAndItsSecretSealed(t *testing.T) {
	t.Parallel()

	s, b := setup(t)
	sub := openwop(t, s, trigger.RetryPolicy{MaxAttempts: 3, Backoff: trigger.BackoffFixed})
	got := state(t, s, sub)
	if diff := cmp.Diff(sub.OpenWOP, got.OpenWOP); diff != "" || *got.Retry != *sub.Retry || got.Surface != trigger.SurfaceOpenWOP || len(got.OpenWOP.Fingerprint) != 16 {
		t.Errorf("read back: %s %+v", diff, got)
	}
	if n := b.count(t, `SELECT count(*) FROM subscriptions WHERE position('whsec'::bytea in ingest_secret) > 0 OR openwop LIKE '%whsec%'`); n != 0 {
		t.Error("the secret is stored in clear")
	}
	if text := fmt.Sprintf("%v %+v %#v %s", got.OpenWOP.Secret, *got.OpenWOP, *got.OpenWOP, got.OpenWOP.Secret); strings.Contains(text, "whsec") {
		t.Errorf("the secret prints: %s", text)
	}
}

// RFC 0083 §C-2: the subscription's own policy, and on exhaustion the
// subscription is dead-lettered, keeps its events and comes back by the operator.
func TestExhaustionDeadLettersTheOpenWOPSubscriptionAlone(t *testing.T) {
	t.Parallel()

	s, b := setup(t)
	sub := openwop(t, s, trigger.RetryPolicy{MaxAttempts: 2, Backoff: trigger.BackoffNone})
	first := save(t, s, record(sub, `{"n":1}`))
	later := save(t, s, record(sub, `{"n":2}`))
	fail(t, s, 1)
	fail(t, s, 2)
	if diff := cmp.Diff([]string{"active>dead-lettered retry-exhausted"}, transitions(t, s, sub)); diff != "" || state(t, s, sub).Delivery != trigger.DeliveryDeadLettered {
		t.Errorf("changes: %s", diff)
	}
	if events, err := s.ClaimDue(t.Context(), trigger.ClaimRequest{Owner: "d", Limit: 9, Lease: time.Minute}); err != nil || len(events) != 0 {
		t.Errorf("claimed %d of a dead-lettered subscription, %v", len(events), err)
	}
	dead, err := s.DeadLetters(t.Context(), sub.SID, nil, 10)
	if err != nil || len(dead) != 1 || dead[0].EventID != first.EventIDs[0] || dead[0].Attempt != 2 || dead[0].Change == nil || dead[0].Refused {
		t.Fatalf("dead letters: %+v, %v", dead, err)
	}
	if _, err := s.SetDelivery(t.Context(), "default", sub.ID, trigger.DeliveryPaused); !errors.Is(err, trigger.ErrIllegalState) {
		t.Errorf("dead-lettered to paused: %v", err)
	}
	if _, err := s.SetDelivery(t.Context(), "default", sub.ID, trigger.DeliveryActive); err != nil {
		t.Fatal(err)
	}
	events, err := s.ClaimDue(t.Context(), trigger.ClaimRequest{Owner: "d", Limit: 9, Lease: time.Minute})
	if err != nil || len(events) != 1 || events[0].ID != later.EventIDs[0] {
		t.Errorf("after the resume: %+v, %v", events, err)
	}

	w6w := subscribe(t, s)
	save(t, s, record(w6w, `{}`))
	for n := range trigger.MaxAttempts {
		fail(t, s, n+1)
		b.exec(t, "UPDATE trigger_queue SET due_at = now() WHERE sid = $1", w6w.SID)
	}
	if got := state(t, s, w6w); got.Delivery != trigger.DeliveryActive || len(transitions(t, s, w6w)) != 0 {
		t.Errorf("the w6w subscription is %s", got.Delivery)
	}
}

// “failed: delivery failing past policy”: BreakAfter failed attempts in a row,
// whatever the event; one delivery starts the count anew.
func TestManyFailuresInARowFailTheSubscription(t *testing.T) {
	t.Parallel()

	s, b := setup(t)
	sub := openwop(t, s, trigger.RetryPolicy{MaxAttempts: trigger.MaxPolicyAttempts, Backoff: trigger.BackoffNone})
	save(t, s, record(sub, `{}`))
	b.exec(t, "UPDATE subscriptions SET failures = $1", trigger.BreakAfter-2)
	fail(t, s, 1)
	if got := state(t, s, sub); got.Delivery != trigger.DeliveryActive || got.Version != sub.Version {
		t.Fatalf("%s, version %d from %d", got.Delivery, got.Version, sub.Version)
	}
	fail(t, s, 2)
	if diff := cmp.Diff([]string{"active>failed "}, transitions(t, s, sub)); diff != "" {
		t.Errorf("changes: %s", diff)
	}
	if _, err := s.SetDelivery(t.Context(), "default", sub.ID, trigger.DeliveryActive); err != nil {
		t.Fatal(err)
	}
	fail(t, s, 3)
	events, err := s.ClaimDue(t.Context(), trigger.ClaimRequest{Owner: "d", Limit: 1, Lease: time.Minute})
	if err != nil || len(events) != 1 {
		t.Fatalf("claimed %d, %v", len(events), err)
	}
	if _, err := s.Settle(t.Context(), []trigger.Outcome{{Event: events[0], AttemptID: "att_ok", RunID: "run_1"}}); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, "SELECT failures FROM subscriptions WHERE sid = $1", sub.SID); n != 0 {
		t.Errorf("%d failures after a delivery", n)
	}
}

// A dispatcher that dies counts by the subscription's policy, too.
func TestALostLastAttemptDeadLettersByTheSubscriptionsPolicy(t *testing.T) {
	t.Parallel()

	s, b := setup(t)
	sub := openwop(t, s, trigger.RetryPolicy{MaxAttempts: 2, Backoff: trigger.BackoffExponential})
	save(t, s, record(sub, `{}`))
	for n := range 2 {
		b.exec(t, "UPDATE trigger_queue SET due_at = now()")
		if events, err := s.ClaimDue(t.Context(), trigger.ClaimRequest{Owner: "dead", Limit: 1, Lease: time.Minute}); err != nil || len(events) != 1 {
			t.Fatalf("claim %d: %v, %v", n, events, err)
		}
		b.exec(t, "UPDATE trigger_claims SET lease_until = now() - interval '1 second'")
		if lost, err := s.ReapExpired(t.Context()); err != nil || len(lost) != 1 {
			t.Fatalf("reap %d: %v, %v", n, lost, err)
		}
	}
	dead, err := s.DeadLetters(t.Context(), sub.SID, nil, 10)
	if err != nil || len(dead) != 1 || dead[0].Attempt != 2 || dead[0].Change == nil {
		t.Errorf("dead letters: %+v, %v", dead, err)
	}
	if diff := cmp.Diff([]string{"active>dead-lettered retry-exhausted"}, transitions(t, s, sub)); diff != "" {
		t.Errorf("changes: %s", diff)
	}
}

// RFC 0230 §C.1: a refused post is a dead letter and changes no state.
func TestARefusedPostIsADeadLetterAndChangesNothing(t *testing.T) {
	t.Parallel()

	s, _ := setup(t)
	sub := openwop(t, s, trigger.DefaultPolicy())
	refused := record(sub, `{}`)
	refused.Events, refused.Status, refused.Reason, refused.DedupKey = nil, trigger.StatusFailed, trigger.ReasonVerificationFailed, "dk_1"
	saved := save(t, s, refused)
	dead, err := s.DeadLetters(t.Context(), sub.SID, nil, 10)
	if err != nil || len(dead) != 1 || !dead[0].Refused || dead[0].EventID != saved.CallID || dead[0].DedupKey != "dk_1" || dead[0].Change != nil {
		t.Errorf("dead letters: %+v, %v", dead, err)
	}
	if got := state(t, s, sub); got.Delivery != trigger.DeliveryActive || got.Version != sub.Version {
		t.Errorf("%s, version %d from %d", got.Delivery, got.Version, sub.Version)
	}
}

// OpenWOP idempotency Layer 1: "a lease owner + expiry (reclaim by
// compare-and-set)".
func TestAnIdempotencyKeyIsHeldByOneUntilItsLeaseEnds(t *testing.T) {
	t.Parallel()

	s, b := setup(t)
	request := func(owner, body string) trigger.IdempotentRequest {
		return trigger.IdempotentRequest{Tenant: "t", Operation: "op", Key: []byte("k"), Digest: []byte(body), Owner: owner}
	}
	begin := func(r trigger.IdempotentRequest) *trigger.IdempotentAnswer {
		t.Helper()
		answer, err := s.BeginIdempotent(t.Context(), r, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	end := func(r trigger.IdempotentRequest, status int) {
		t.Helper()
		if err := s.EndIdempotent(context.WithoutCancel(t.Context()), r, status, []byte("whole")); err != nil {
			t.Fatal(err)
		}
	}
	if begin(request("a", "1")) != nil {
		t.Fatal("a new key is taken")
	}
	if got := begin(request("b", "1")); got == nil || !got.Pending || !got.SameRequest {
		t.Errorf("while held: %+v", got)
	}
	b.exec(t, "UPDATE idempotency_keys SET lease_until = now()")
	if begin(request("b", "1")) != nil {
		t.Error("an ended lease is not taken over")
	}
	end(request("a", "1"), 201) // too late
	if got := begin(request("c", "1")); got == nil || !got.Pending {
		t.Errorf("the late holder wrote: %+v", got)
	}
	end(request("b", "1"), 503)
	if begin(request("c", "1")) != nil {
		t.Error("a request that is to be tried again is not")
	}
	end(request("c", "1"), 201)
	if got := begin(request("d", "1")); got == nil || got.Pending || got.Status != 201 || string(got.Body) != "whole" {
		t.Errorf("the answer: %+v", got)
	}
	if got := begin(request("d", "2")); got == nil || got.SameRequest {
		t.Errorf("another request: %+v", got)
	}
	b.exec(t, "UPDATE idempotency_keys SET expires_at = now()")
	if begin(request("e", "2")) != nil {
		t.Error("an expired key is not free")
	}
}

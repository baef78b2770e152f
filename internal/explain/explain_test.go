package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/explain"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

func TestEachCaseHasItsSentence(t *testing.T) {
	t.Parallel()

	when := time.Date(2026, 10, 7, 9, 0, 5, 0, time.UTC)
	type summary = trigger.EventSummary
	for name, c := range map[string]struct {
		event summary
		ahead string
		want  string
	}{
		"dispatched": {
			summary{Status: trigger.StatusDispatched, Attempts: 2, RunID: "run_1", DispatchedAt: &when},
			"",
			"It has run: attempt 2 started run run_1 at 2026-10-07 09:00:05 UTC.",
		},
		"empty": {summary{Status: trigger.StatusIgnored, Reason: trigger.ReasonEmpty}, "", "It will not run: handleIngest returned no event for this call."},
		"duplicate": {
			summary{Status: trigger.StatusIgnored, Reason: trigger.ReasonDuplicate, DuplicateOf: "evt_1"},
			"",
			"It will not run: its dedup key was seen before, it is a duplicate of evt_1.",
		},
		"handshake":        {summary{Status: trigger.StatusIgnored, Reason: trigger.ReasonHandshake}, "", "It will not run: the call was the vendor's handshake and was answered."},
		"app disabled":     {summary{Status: trigger.StatusIgnored, Reason: trigger.ReasonAppDisabled}, "", "It will not run: its app was disabled when the call came."},
		"app archived":     {summary{Status: trigger.StatusIgnored, Reason: trigger.ReasonAppArchived}, "", "It will not run: its app was archived when the call came."},
		"subscribe failed": {summary{Status: trigger.StatusIgnored, Reason: trigger.ReasonSubscribeFailed}, "", "It will not run: the call came while onSubscribe ran, which then failed."},
		"ignored for a new reason": {
			summary{Status: trigger.StatusIgnored, Reason: "eclipse"}, "", "It will not run: the call was recorded and ignored (eclipse).",
		},
		"verification": {summary{Status: trigger.StatusFailed, Reason: trigger.ReasonVerificationFailed}, "", "It can never run: the call's signature did not hold."},
		"parser": {
			summary{Status: trigger.StatusFailed, Reason: trigger.ReasonParserFailed, LastErrorCode: "hook_threw", LastError: "no"},
			"",
			"It has not run: handleIngest failed on this call (hook_threw: no); once the app is mended, the call can be ingested again.",
		},
		"dead letter after five": {
			summary{Status: trigger.StatusFailed, Attempts: 5, LastErrorCode: "http_503"},
			"",
			"It is a dead letter: all 5 attempts failed, the last one (http_503); requeue it to try again.",
		},
		"dead letter at once": {
			summary{Status: trigger.StatusFailed, Attempts: 1, LastErrorCode: "plan_error", LastError: "no step"},
			"",
			"It is a dead letter: attempt 1 failed in a way that trying again cannot help (plan_error: no step); requeue it once that is mended.",
		},
		"leased": {
			summary{Status: trigger.StatusDispatching, Attempts: 1, ClaimOwner: "pod-7", ClaimExpiresAt: &when},
			"",
			"It is being started: attempt 2 is with pod-7, whose lease ends at 2026-10-07 09:00:05 UTC; after that another dispatcher takes over.",
		},
		"paused": {
			summary{Status: trigger.StatusReceived, Delivery: trigger.DeliveryPaused},
			"evt_1",
			"It waits: its subscription is paused (enabled is false); enabling it lets its events run, oldest first.",
		},
		"subscription dead-lettered": {
			summary{Status: trigger.StatusReceived, Delivery: trigger.DeliveryDeadLettered},
			"",
			"It waits: its subscription is dead-lettered after an event that could not be delivered; resuming it lets its events run, oldest first.",
		},
		"subscription failed":  {summary{Status: trigger.StatusReceived, Delivery: trigger.DeliveryFailed}, "", "It waits: its subscription has failed; resuming it lets its events run, oldest first."},
		"subscription deleted": {summary{Status: trigger.StatusReceived, Lifecycle: trigger.LifecycleDeleted}, "", "It will not run: its subscription is gone."},
		"being created":        {summary{Status: trigger.StatusReceived, Lifecycle: trigger.LifecycleReserved}, "", "It waits: its subscription is still being created."},
		"behind": {
			summary{Status: trigger.StatusReceived},
			"evt_1",
			"It waits for its turn: events of a subscription start one after another, and evt_1 comes before it.",
		},
		"retry": {
			summary{Status: trigger.StatusReceived, Attempts: 1, NextAttemptAt: &when, LastErrorCode: "timeout"},
			"",
			"It waits: attempt 1 of 5 failed (timeout); the next is due at 2026-10-07 09:00:05 UTC.",
		},
		"due": {
			summary{Status: trigger.StatusReceived, NextAttemptAt: &when},
			"",
			"It waits for a dispatcher: it is due at 2026-10-07 09:00:05 UTC and nothing holds it back.",
		},
	} {
		if got := explain.Event(&trigger.EventDetail{EventSummary: c.event}, c.ahead); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
}

func TestASubscriptionsOwnPolicySaysHowManyAttemptsThereAre(t *testing.T) {
	t.Parallel()

	d := &trigger.EventDetail{EventSummary: trigger.EventSummary{Status: trigger.StatusFailed, Attempts: 3}, AttemptsAllowed: 3}
	if got := explain.Event(d, ""); !strings.Contains(got, "all 3 attempts failed") {
		t.Error(got)
	}
	d.Status, d.Attempts = trigger.StatusReceived, 2
	if got := explain.Event(d, ""); !strings.Contains(got, "attempt 2 of 3") {
		t.Error(got)
	}
}

func TestEveryStatusAndReasonHasASentence(t *testing.T) {
	t.Parallel()

	for _, status := range trigger.Statuses {
		for _, reason := range []trigger.Reason{"", trigger.ReasonEmpty, trigger.ReasonParserFailed, "new"} {
			got := explain.Event(&trigger.EventDetail{EventSummary: trigger.EventSummary{Status: status, Reason: reason}}, "")
			if !strings.HasPrefix(got, "It ") || !strings.HasSuffix(got, ".") || strings.Contains(got, "  ") {
				t.Errorf("%s %q: %q", status, reason, got)
			}
		}
	}
}

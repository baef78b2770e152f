package trigger_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Every legal transition of docs/openwop.md, and no other.
func TestTheStatesHaveTheirTransitionsAndNoOther(t *testing.T) {
	t.Parallel()

	const active, paused, failed, dead = trigger.DeliveryActive, trigger.DeliveryPaused, trigger.DeliveryFailed, trigger.DeliveryDeadLettered
	legal := map[[2]trigger.DeliveryState]bool{
		{active, paused}: true, {active, failed}: true, {active, dead}: true,
		{paused, active}: true, {failed, active}: true, {failed, dead}: true, {dead, active}: true,
	}
	for _, from := range []trigger.DeliveryState{active, paused, failed, dead, "unknown"} {
		for _, to := range []trigger.DeliveryState{active, paused, failed, dead, "unknown"} {
			if got := from.CanBecome(to); got != legal[[2]trigger.DeliveryState{from, to}] {
				t.Errorf("%s to %s: %t", from, to, got)
			}
		}
	}
}

func TestAPolicysWaits(t *testing.T) {
	t.Parallel()

	for backoff, want := range map[trigger.Backoff][]time.Duration{
		trigger.BackoffNone:        {0, 0, 0},
		trigger.BackoffFixed:       {time.Second, time.Second, time.Second},
		trigger.BackoffExponential: {time.Second, 2 * time.Second, 4 * time.Second},
	} {
		policy := trigger.RetryPolicy{MaxAttempts: 50, Backoff: backoff}
		var got []time.Duration
		for n := range want {
			got = append(got, policy.Wait(n+1))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", backoff, diff)
		}
		if long := policy.Wait(50); long > trigger.PolicyCeiling || long < 0 {
			t.Errorf("%s: the 50th wait is %s", backoff, long)
		}
	}
	event := &trigger.PendingEvent{}
	if wait, again := event.RetryAfter(4); wait != 40*time.Second || !again {
		t.Errorf("the platform's fourth: %s, %t", wait, again)
	}
	event.Retry = &trigger.RetryPolicy{MaxAttempts: 4, Backoff: trigger.BackoffFixed}
	if _, again := event.RetryAfter(4); again {
		t.Error("a fifth attempt of four")
	}
}

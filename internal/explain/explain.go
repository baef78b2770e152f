// Package explain says in one sentence why an event has or has not run. It
// works from what is known of the event alone.
package explain

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Event explains an event. ahead is the id of the event of the same
// subscription that has to be done with first, or "" when that is not known.
// Times in the sentence are the database's; nothing is compared with the local
// clock.
func Event(d *trigger.EventDetail, ahead string) string {
	switch d.Status {
	case trigger.StatusDispatched:
		return dispatched(d)
	case trigger.StatusIgnored:
		return ignored(d)
	case trigger.StatusFailed:
		return failed(d)
	case trigger.StatusDispatching:
		return dispatching(d)
	case trigger.StatusReceived:
		return received(d, ahead)
	}
	return "Its status is not known to this version of Tocsin."
}

func dispatched(d *trigger.EventDetail) string {
	return fmt.Sprintf("It has run: attempt %d started run %s%s.", max(d.Attempts, 1), d.RunID, at(d.DispatchedAt))
}

func ignored(d *trigger.EventDetail) string {
	const never = "It will not run: "
	switch d.Reason {
	case trigger.ReasonEmpty:
		return never + "handleIngest returned no event for this call."
	case trigger.ReasonDuplicate:
		if d.DuplicateOf == "" {
			return never + "its dedup key was seen before."
		}
		return never + "its dedup key was seen before, it is a duplicate of " + d.DuplicateOf + "."
	case trigger.ReasonHandshake:
		return never + "the call was the vendor's handshake and was answered."
	case trigger.ReasonAppDisabled:
		return never + "its app was disabled when the call came."
	case trigger.ReasonAppArchived:
		return never + "its app was archived when the call came."
	case trigger.ReasonSubscribeFailed:
		return never + "the call came while onSubscribe ran, which then failed."
	case trigger.ReasonParserFailed, trigger.ReasonVerificationFailed:
	}
	return never + "the call was recorded and ignored" + because(string(d.Reason)) + "."
}

func failed(d *trigger.EventDetail) string {
	switch d.Reason {
	case trigger.ReasonVerificationFailed:
		return "It can never run: the call's signature did not hold."
	case trigger.ReasonParserFailed:
		return "It has not run: handleIngest failed on this call" + because(lastError(d)) + "; once the app is mended, the call can be ingested again."
	case trigger.ReasonEmpty, trigger.ReasonDuplicate, trigger.ReasonHandshake, trigger.ReasonAppDisabled, trigger.ReasonAppArchived, trigger.ReasonSubscribeFailed:
	}
	if d.Attempts >= allowed(d) {
		return fmt.Sprintf("It is a dead letter: all %d attempts failed, the last one%s; requeue it to try again.", d.Attempts, because(lastError(d)))
	}
	return fmt.Sprintf("It is a dead letter: attempt %d failed in a way that trying again cannot help%s; requeue it once that is mended.", max(d.Attempts, 1), because(lastError(d)))
}

// allowed is how many attempts the event has in all.
func allowed(d *trigger.EventDetail) int { return cmp.Or(d.AttemptsAllowed, trigger.MaxAttempts) }

func dispatching(d *trigger.EventDetail) string {
	who := d.ClaimOwner
	if who == "" {
		who = "a dispatcher"
	}
	if d.ClaimExpiresAt == nil {
		return fmt.Sprintf("It is being started: attempt %d is with %s.", d.Attempts+1, who)
	}
	return fmt.Sprintf("It is being started: attempt %d is with %s, whose lease ends%s; after that another dispatcher takes over.", d.Attempts+1, who, at(d.ClaimExpiresAt))
}

func received(d *trigger.EventDetail, ahead string) string {
	if d.Lifecycle == trigger.LifecycleFailed || d.Lifecycle == trigger.LifecycleDeleted {
		return "It will not run: its subscription is gone."
	}
	if reason := held(d); reason != "" {
		return "It waits: " + reason
	}
	if ahead != "" {
		return "It waits for its turn: events of a subscription start one after another, and " + ahead + " comes before it."
	}
	if d.Attempts > 0 {
		return fmt.Sprintf("It waits: attempt %d of %d failed%s; the next is due%s.", d.Attempts, allowed(d), because(lastError(d)), at(d.NextAttemptAt))
	}
	return "It waits for a dispatcher: it is due" + at(d.NextAttemptAt) + " and nothing holds it back."
}

// held says what keeps every event of the subscription from running.
func held(d *trigger.EventDetail) string {
	if d.Lifecycle == trigger.LifecycleReserved {
		return "its subscription is still being created."
	}
	switch d.Delivery {
	case trigger.DeliveryPaused:
		return "its subscription is paused (enabled is false); enabling it lets its events run, oldest first."
	case trigger.DeliveryFailed:
		return "its subscription has failed; resuming it lets its events run, oldest first."
	case trigger.DeliveryDeadLettered:
		return "its subscription is dead-lettered after an event that could not be delivered; resuming it lets its events run, oldest first."
	case trigger.DeliveryActive:
	}
	return ""
}

func lastError(d *trigger.EventDetail) string {
	switch {
	case d.LastErrorCode == "":
		return d.LastError
	case d.LastError == "":
		return d.LastErrorCode
	}
	return d.LastErrorCode + ": " + d.LastError
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

func at(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " at " + t.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

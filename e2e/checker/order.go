package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// waits: an attempt comes no sooner than its wait after the end of the last
// one, and the wait is the one of the policy (DESIGN §4.9).
func (c *check) waits() {
	for id, list := range c.attempts {
		for i, a := range list {
			if a.Outcome == trigger.AttemptDeadLettered || (a.Outcome == trigger.AttemptLost && a.Attempt >= trigger.MaxAttempts) {
				continue
			}
			// A lost attempt ended with its lease, before it was noted; how long
			// before is in the changes alone.
			if a.Outcome == trigger.AttemptRetrying {
				c.waited(id, a, c.nextRequeue(id, a.Ended, i, list))
			}
		}
	}
	for id, list := range c.changes {
		for i := 1; i < len(list); i++ {
			c.dueRight(id, list[i-1], list[i])
		}
	}
}

// nextRequeue bounds what a wait is for: a requeue starts anew.
func (c *check) nextRequeue(id string, after time.Time, i int, list []*Attempt) time.Time {
	end := time.Time{}
	if i+1 < len(list) {
		end = list[i+1].Ended
	}
	for _, at := range c.requeues[id] {
		if at.After(after) && (end.IsZero() || at.Before(end)) {
			end = at
		}
	}
	return end
}

func (c *check) waited(id string, a *Attempt, until time.Time) {
	least := a.Ended.Add(trigger.RetryWait(a.Attempt) - c.rules.Slack)
	for _, s := range c.starts[id] {
		if s.At.After(a.Ended) && s.At.Before(least) && (until.IsZero() || s.At.Before(until)) {
			// A dispatcher that had lost its lease may have been under way.
			if !c.faultIn(a.Ended.Add(-c.rules.Settle), s.At, Dispatcher, Database, Network) {
				c.fault(RuleWait, id, "was started %v after attempt %d ended, want at least %v", s.At.Sub(a.Ended), a.Attempt, trigger.RetryWait(a.Attempt))
			}
		}
	}
}

// dueRight: what goes back is due after the policy's wait: from the end of the
// attempt, which for a lost one is its lease's.
func (c *check) dueRight(id string, from, to *Change) {
	if from.Status != trigger.StatusDispatching || to.Status != trigger.StatusReceived || to.Attempts == from.Attempts {
		return // no attempt was charged
	}
	if to.Attempts != from.Attempts+1 {
		c.fault(RuleAttempts, id, "went from %d to %d attempts at once", from.Attempts, to.Attempts)
		return
	}
	wait := trigger.RetryWait(to.Attempts)
	ofLease := from.Lease.Add(wait)
	late, soon := to.Due.After(to.At.Add(wait+c.rules.Slack)), to.Due.Before(to.Began.Add(wait-c.rules.Slack))
	if soon && absolute(to.Due.Sub(ofLease)) > time.Millisecond+c.rules.Slack {
		c.fault(RuleWait, id, "is due %v after attempt %d, want %v", to.Due.Sub(to.Began), to.Attempts, wait)
	}
	if late {
		c.fault(RuleWait, id, "is due as late as %v after attempt %d, want %v", to.Due.Sub(to.At), to.Attempts, wait)
	}
}

func absolute(d time.Duration) time.Duration { return max(d, -d) }

// order: of two calls to a subscription, one answered before the other was
// sent, the first starts first, unless it was waiting out a failed attempt
// (DESIGN §4.7).
func (c *check) order() {
	bySubscription := map[string][]*Event{}
	for i := range c.h.Events {
		if e := &c.h.Events[i]; len(c.starts[e.ID]) > 0 && c.posts[e.ID] != nil && c.posts[e.ID].OK() {
			bySubscription[e.Subscription] = append(bySubscription[e.Subscription], e)
		}
	}
	for _, list := range bySubscription {
		slices.SortFunc(list, func(a, b *Event) int { return c.posts[a.ID].Sent.Compare(c.posts[b.ID].Sent) })
		for i, a := range list {
			for _, b := range list[i+1:] {
				c.inOrder(a, b)
			}
		}
	}
}

func (c *check) inOrder(a, b *Event) {
	if !c.posts[a.ID].Answered.Before(c.posts[b.ID].Sent) {
		return // nobody knows which came first
	}
	if older(b, a) && !c.faultIn(a.Received, b.Received, Database) {
		c.fault(RuleFIFO, b.ID, "was received after %s, and is noted before it", a.ID)
	}
	first, second := c.starts[a.ID][0], c.starts[b.ID][0]
	if !second.At.Before(first.At) || len(c.requeues[a.ID]) > 0 { // a batch starts at one time
		return
	}
	if !slices.ContainsFunc(c.attempts[a.ID], func(at *Attempt) bool { return at.Ended.Before(second.At) }) {
		c.fault(RuleFIFO, b.ID, "was started before %s, which came first and was due", a.ID)
	}
}

func older(a, b *Event) bool {
	return cmp.Or(a.Received.Compare(b.Received), cmp.Compare(a.ID, b.ID)) < 0
}

// visible is for how long a row must have been written to have been committed
// for sure when another transaction began.
const visible = time.Second

// claimOrder: a claim takes the oldest due events. It is the same promise as
// order, exact at the ledger, and holds for retried and requeued events too.
func (c *check) claimOrder() {
	open := map[string]map[string]*Change{} // by subscription and event: the last change, while received
	for i := 0; i < len(c.h.Changes); {
		n := i + 1
		for n < len(c.h.Changes) && c.h.Changes[n].Tx == c.h.Changes[i].Tx {
			n++
		}
		tx := c.h.Changes[i:n]
		c.claimedOldest(open, tx)
		for j := range tx {
			c.follow(open, &tx[j])
		}
		i = n
	}
}

func (c *check) follow(open map[string]map[string]*Change, change *Change) {
	lane := open[change.Subscription]
	if lane == nil {
		lane = map[string]*Change{}
		open[change.Subscription] = lane
	}
	delete(lane, change.EventID)
	if change.Status == trigger.StatusReceived {
		lane[change.EventID] = change
	}
}

func (c *check) claimedOldest(open map[string]map[string]*Change, tx []Change) {
	claimed := map[string]*Event{} // by subscription: the youngest that was claimed
	taken := map[string]bool{}
	for i := range tx {
		change := &tx[i]
		if change.Status != trigger.StatusDispatching {
			continue
		}
		if lane := open[change.Subscription]; lane == nil || lane[change.EventID] == nil {
			continue // a lease was renewed
		}
		taken[change.EventID] = true
		e := c.events[change.EventID]
		if e != nil && (claimed[change.Subscription] == nil || older(claimed[change.Subscription], e)) {
			claimed[change.Subscription] = e
		}
	}
	for subscription, youngest := range claimed {
		for id, waiting := range open[subscription] {
			e := c.events[id]
			if e == nil || taken[id] || !older(e, youngest) {
				continue
			}
			if !waiting.Due.After(tx[0].Began) && waiting.At.Add(visible).Before(tx[0].Began) {
				c.fault(RuleFIFO, youngest.ID, "was claimed at %s while %s, which is older, was due since %s", clock(tx[0].Began), id, clock(waiting.Due))
			}
		}
	}
}

// overlaps: at most one event of a subscription is being started at a time,
// but for a dispatcher that had lost its lease and did not know.
func (c *check) overlaps() {
	last := map[string]*Start{}
	for i := range c.h.Starts {
		s := &c.h.Starts[i]
		before := last[s.Subscription]
		if before != nil && (before.Ended.IsZero() || before.Ended.After(s.At)) {
			if !c.faultIn(before.At, s.At, Dispatcher, Database, Network) {
				c.fault(RuleFIFO, s.EventID, "was started while %s of its subscription was being started", before.EventID)
			}
		}
		if before == nil || before.Ended.Before(s.Ended) {
			last[s.Subscription] = s
		}
	}
}

// prompt: what is due is started, and not left lying until some timer.
func (c *check) prompt() {
	if c.rules.Prompt == 0 {
		return
	}
	busy := map[string]time.Time{} // by subscription: the end of its last start
	seen := map[string]bool{}
	for i := range c.h.Starts {
		s := &c.h.Starts[i]
		e := c.events[s.EventID]
		if e != nil && !seen[s.EventID] {
			since := latest(e.Received, busy[s.Subscription], c.lastFault(s.At))
			if wait := s.At.Sub(since); wait > c.rules.Prompt {
				c.fault(RuleLate, s.EventID, "was due, and lay for %v", wait.Round(time.Millisecond))
			}
		}
		seen[s.EventID] = true
		busy[s.Subscription] = latest(busy[s.Subscription], s.Ended)
	}
}

// lastFault is when the last fault before a time ended.
func (c *check) lastFault(before time.Time) (last time.Time) {
	for _, f := range c.h.Faults {
		if f.From.Before(before) {
			last = latest(last, f.To)
		}
	}
	if last.After(before) {
		return before
	}
	return last
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}

package checker

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// story writes a history by hand, on a clock of its own.
type story struct {
	h   History
	now time.Time
	tx  int
	n   int
}

func newStory() *story {
	return &story{now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
}

func (s *story) wait(d time.Duration) { s.now = s.now.Add(d) }

// post is a call that is stored and answered.
func (s *story) post(subscription string) string {
	s.n++
	id := fmt.Sprintf("evt_%03d", s.n)
	sent := s.now
	s.wait(time.Millisecond)
	s.h.Events = append(s.h.Events, Event{ID: id, Subscription: subscription, Received: s.now, Status: trigger.StatusReceived})
	s.change(id, trigger.StatusReceived, 0, s.now)
	s.wait(time.Millisecond)
	s.h.Posts = append(s.h.Posts, Post{Subscription: subscription, Sent: sent, Answered: s.now, Status: 200, EventIDs: []string{id}})
	s.wait(time.Millisecond)
	return id
}

func (s *story) event(id string) *Event {
	for i := range s.h.Events {
		if s.h.Events[i].ID == id {
			return &s.h.Events[i]
		}
	}
	return &Event{}
}

func (s *story) change(id string, status trigger.Status, attempts int, due time.Time) {
	s.tx++
	s.h.Changes = append(s.h.Changes, Change{
		EventID: id, Subscription: s.event(id).Subscription, Status: status, At: s.now, Began: s.now, Due: due, Attempts: attempts,
		Lease: s.now.Add(30 * time.Second), Tx: strconv.Itoa(s.tx),
	})
}

func (s *story) claim(id string) {
	s.change(id, trigger.StatusDispatching, s.event(id).Attempts, time.Time{})
}

// start is a call that the engine answers with a run, or without.
func (s *story) start(id string, ok bool) {
	s.wait(time.Millisecond)
	start := Start{Subscription: s.event(id).Subscription, EventID: id, IdempotencyKey: id, At: s.now}
	s.wait(10 * time.Millisecond)
	start.Ended = s.now
	if ok {
		start.RunID, start.Told = "run_of_"+id, true
	}
	s.h.Starts = append(s.h.Starts, start)
}

func (s *story) delivered(id string) {
	s.wait(time.Millisecond)
	e := s.event(id)
	e.Status, e.Attempts = trigger.StatusDispatched, e.Attempts+1
	s.change(id, trigger.StatusDispatched, e.Attempts, time.Time{})
}

func (s *story) failed(id, outcome string) {
	s.wait(time.Millisecond)
	e := s.event(id)
	e.Attempts++
	s.h.Attempts = append(s.h.Attempts, Attempt{EventID: id, Attempt: e.Attempts, Outcome: outcome, Ended: s.now})
	if outcome == trigger.AttemptDeadLettered {
		e.Status = trigger.StatusFailed
		s.change(id, trigger.StatusFailed, e.Attempts, time.Time{})
		return
	}
	s.change(id, trigger.StatusReceived, e.Attempts, s.now.Add(trigger.RetryWait(e.Attempts)))
}

func (s *story) run(id string) {
	s.claim(id)
	s.start(id, true)
	s.delivered(id)
}

func (s *story) fault(kind string, target Target, d time.Duration) {
	s.h.Faults = append(s.h.Faults, Fault{Kind: kind, Target: target, From: s.now, To: s.now.Add(d)})
	s.wait(d)
}

// healthy is what a checker must not object to: retries, a dispatcher that
// died, a dead letter and its requeue, an event that overtakes a waiting one.
func healthy() *story {
	s := newStory()
	a, b := s.post("sub_a"), s.post("sub_a")
	s.claim(a)
	s.start(a, false)
	s.failed(a, trigger.AttemptRetrying)
	s.run(b) // a waits
	s.wait(5 * time.Second)
	s.run(a)

	c := s.post("sub_b") // its dispatcher dies with the answer in hand
	s.claim(c)
	s.start(c, true)
	s.fault("kill", Dispatcher, 30*time.Second)
	s.failed(c, trigger.AttemptLost)
	s.wait(6 * time.Second)
	s.run(c)

	d := s.post("sub_c")
	for n := 1; n <= trigger.MaxAttempts; n++ {
		outcome := trigger.AttemptRetrying
		if n == trigger.MaxAttempts {
			outcome = trigger.AttemptDeadLettered
		}
		s.claim(d)
		s.start(d, false)
		s.failed(d, outcome)
		s.wait(trigger.RetryWait(n))
	}
	s.h.Requeues = append(s.h.Requeues, Requeue{EventID: d, At: s.now})
	s.event(d).Attempts = 0
	s.change(d, trigger.StatusReceived, 0, s.now)
	s.run(d)
	return s
}

var rules = Rules{Settle: 2 * time.Second}

func TestAHealthyHistoryHasNoViolations(t *testing.T) {
	t.Parallel()
	report := Check(&healthy().h, rules)
	for _, v := range report.Violations {
		t.Error(v)
	}
	if report.Duplicates != 1 || report.Explained != 1 {
		t.Errorf("%d duplicates, %d explained, want the one of the dispatcher that died", report.Duplicates, report.Explained)
	}
	if report.Accepted != 4 || report.AtEngine != 4 || report.Dispatched != 4 {
		t.Errorf("report %+v", report)
	}
}

// Each entry breaks one promise in one way.
var broken = map[string]struct {
	rule string
	do   func() *History
}{
	"ack before commit": {RuleLost, func() *History {
		s := healthy()
		s.h.Posts = append(s.h.Posts, Post{Subscription: "sub_a", Sent: s.now, Answered: s.now, Status: 200, EventIDs: []string{"evt_gone"}})
		return &s.h
	}},
	// The first holder wakes up after its lease and marks the event, while a
	// second one is starting it; that one's failure then undoes the mark.
	"a lease without fencing: the status": {RuleArrow, func() *History {
		s := newStory()
		id := s.post("sub_a")
		s.claim(id)
		s.start(id, true)
		s.fault("stop", Dispatcher, 30*time.Second)
		s.failed(id, trigger.AttemptLost)
		s.wait(6 * time.Second)
		s.claim(id)
		s.delivered(id) // by the late writer
		s.start(id, false)
		s.failed(id, trigger.AttemptRetrying)
		s.wait(11 * time.Second)
		s.run(id)
		return &s.h
	}},
	// The late writer takes away the claim of another event, which is then
	// claimed a second time while it is being started.
	"a lease without fencing: two at once": {RuleFIFO, func() *History {
		s := newStory()
		a, b := s.post("sub_a"), s.post("sub_a")
		s.claim(a)
		s.start(a, true)
		s.delivered(a)
		s.claim(b)
		s.start(b, true)
		again := s.h.Starts[1]
		again.At = again.At.Add(5 * time.Millisecond)
		s.h.Starts = append(s.h.Starts, again)
		s.delivered(b)
		return &s.h
	}},
	"LISTEN without catch-up": {RuleLate, func() *History {
		s := newStory()
		s.fault("listener", Database, time.Second)
		id := s.post("sub_a")
		s.wait(30 * time.Second) // the timer
		s.run(id)
		return &s.h
	}},
	"stuck in dispatching": {RuleStuck, func() *History {
		s := healthy()
		id := s.post("sub_a")
		s.claim(id)
		s.event(id).Status = trigger.StatusDispatching
		return &s.h
	}},
	"dispatched and never started": {RuleLost, func() *History {
		s := healthy()
		id := s.post("sub_a")
		s.claim(id)
		s.delivered(id)
		return &s.h
	}},
	"a second run out of nothing": {RuleDuplicate, func() *History {
		s := newStory()
		id := s.post("sub_a")
		s.run(id)
		s.wait(time.Minute)
		s.start(id, true)
		return &s.h
	}},
	"a fault of ingest explains no second run": {RuleDuplicate, func() *History {
		s := newStory()
		id := s.post("sub_a")
		s.run(id)
		s.fault("kill", Ingest, time.Second)
		s.start(id, true)
		return &s.h
	}},
	"out of order": {RuleFIFO, func() *History {
		s := newStory()
		a, b := s.post("sub_a"), s.post("sub_a")
		s.run(b)
		s.run(a)
		return &s.h
	}},
	"a retried event that is due is passed over": {RuleFIFO, func() *History {
		s := newStory()
		a := s.post("sub_a")
		s.claim(a)
		s.start(a, false)
		s.failed(a, trigger.AttemptRetrying)
		s.wait(8 * time.Second)
		b := s.post("sub_a")
		s.run(b)
		s.run(a)
		return &s.h
	}},
	"a sixth attempt": {RuleAttempts, func() *History {
		s := newStory()
		id := s.post("sub_a")
		for n := 1; n <= 6; n++ {
			s.claim(id)
			s.start(id, false)
			s.failed(id, trigger.AttemptRetrying)
			s.wait(trigger.RetryWait(n))
		}
		s.run(id)
		return &s.h
	}},
	"given up after two attempts": {RuleAttempts, func() *History {
		s := newStory()
		id := s.post("sub_a")
		s.claim(id)
		s.failed(id, trigger.AttemptRetrying)
		s.wait(5 * time.Second)
		s.claim(id)
		s.failed(id, trigger.AttemptDeadLettered)
		s.event(id).Retryable = true
		return &s.h
	}},
	"an attempt that nobody recorded": {RuleAttempts, func() *History {
		s := newStory()
		id := s.post("sub_a")
		s.claim(id)
		s.failed(id, trigger.AttemptRetrying)
		s.wait(5 * time.Second)
		s.h.Attempts[0].Attempt = 2
		s.run(id)
		return &s.h
	}},
	"a retry before its wait is over": {RuleWait, func() *History {
		s := newStory()
		id := s.post("sub_a")
		s.claim(id)
		s.start(id, false)
		s.failed(id, trigger.AttemptRetrying)
		s.wait(4 * time.Second)
		s.run(id)
		return &s.h
	}},
	"a wait of the wrong length": {RuleWait, func() *History {
		s := newStory()
		id := s.post("sub_a")
		s.claim(id)
		s.failed(id, trigger.AttemptRetrying)
		s.h.Changes[len(s.h.Changes)-1].Due = s.now.Add(time.Second)
		s.wait(5 * time.Second)
		s.run(id)
		return &s.h
	}},
	"a dispatched event comes back": {RuleArrow, func() *History {
		s := newStory()
		id := s.post("sub_a")
		s.run(id)
		s.change(id, trigger.StatusReceived, 0, s.now)
		return &s.h
	}},
	"another idempotency key": {RuleIdentity, func() *History {
		s := healthy()
		s.h.Starts[0].IdempotencyKey = "att_1"
		return &s.h
	}},
	"an event out of nothing": {RuleIdentity, func() *History {
		s := healthy()
		s.h.Starts = append(s.h.Starts, Start{EventID: "evt_x", IdempotencyKey: "evt_x", At: s.now, Ended: s.now})
		return &s.h
	}},
}

func TestEachBrokenPromiseIsCaught(t *testing.T) {
	t.Parallel()
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			strict := rules
			strict.Prompt = 10 * time.Second
			report := Check(b.do(), strict)
			if report.Count(b.rule) == 0 {
				t.Errorf("not caught as %q; violations: %v", b.rule, report.Violations)
			}
		})
	}
}

// A run is not a duplicate of an attempt that never came to one, and an answer
// that the engine never gave explains the second start.
func TestStartsWithoutAnAnswerAreNoUnexplainedDuplicates(t *testing.T) {
	t.Parallel()
	s := newStory()
	id := s.post("sub_a")
	s.claim(id)
	s.start(id, true)
	s.h.Starts[0].Told = false // the run began, the answer was cut off
	s.failed(id, trigger.AttemptRetrying)
	s.wait(5 * time.Second)
	s.run(id)
	report := Check(&s.h, rules)
	if len(report.Violations) > 0 || report.Duplicates != 1 || report.Explained != 1 {
		t.Errorf("report %+v", report)
	}
}

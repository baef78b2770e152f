package checker

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Names of the rules.
const (
	RuleLost      = "lost"      // a 2xx without its rows, or dispatched without a start
	RuleStuck     = "stuck"     // not at an end
	RuleDuplicate = "duplicate" // a second run that no fault explains
	RuleFIFO      = "fifo"      // out of order, or two at once
	RuleAttempts  = "attempts"  // too many, badly numbered, or given up too soon
	RuleWait      = "wait"      // started, or due, before its wait was over
	RuleArrow     = "arrow"     // a status moved where no arrow leads
	RuleLate      = "late"      // due and left lying
	RuleIdentity  = "identity"  // the engine did not get the event's id, or got one nobody knows
)

// Violation is one broken promise.
type Violation struct {
	Rule  string
	Event string
	Text  string
}

func (v Violation) String() string { return v.Rule + ": " + v.Event + ": " + v.Text }

// Report is the verdict, and the numbers of the table.
type Report struct {
	Faults     int
	Posts      int // calls that clients made
	Accepted   int // events that clients were told of by 2xx
	Events     int // events in the ledger
	AtEngine   int // distinct events that reached the engine
	Dispatched int
	Failed     int
	Ignored    int
	Duplicates int // starts of an event that had a run already
	Explained  int // of them, by a fault or a requeue
	Violations []Violation
}

// Count is the number of violations of a rule.
func (r *Report) Count(rule string) int {
	n := 0
	for _, v := range r.Violations {
		if v.Rule == rule {
			n++
		}
	}
	return n
}

// Row is one line of the table: faults, events in, at the engine, lost, stuck,
// duplicates and those unexplained, FIFO violations, others.
func (r *Report) Row() string {
	lost, stuck, duplicates, fifo := r.Count(RuleLost), r.Count(RuleStuck), r.Count(RuleDuplicate), r.Count(RuleFIFO)
	return fmt.Sprintf("| %d | %d | %d | %d | %d | %d | %d | %d | %d |", r.Faults, r.Accepted, r.AtEngine, lost, stuck,
		r.Duplicates, duplicates, fifo, len(r.Violations)-lost-stuck-duplicates-fifo)
}

// Header is the table's head for Row.
const Header = "| faults | events in | at the engine | lost | stuck | duplicates | unexplained | FIFO violations | other violations |\n" +
	"| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"

// Check judges a history.
func Check(h *History, rules Rules) *Report {
	c := &check{h: h, rules: rules, report: &Report{Faults: len(h.Faults), Posts: len(h.Posts), Events: len(h.Events)}}
	c.index()
	c.rows()
	c.ends()
	c.identity()
	c.duplicates()
	c.counts()
	c.arrows()
	c.waits()
	c.order()
	c.claimOrder()
	c.overlaps()
	c.prompt()
	slices.SortStableFunc(c.report.Violations, func(a, b Violation) int { return strings.Compare(a.Rule+a.Event, b.Rule+b.Event) })
	return c.report
}

type check struct {
	h      *History
	rules  Rules
	report *Report

	events   map[string]*Event
	starts   map[string][]*Start    // by event, in order
	attempts map[string][]*Attempt  // by event, in order
	changes  map[string][]*Change   // by event, in order
	requeues map[string][]time.Time // by event
	posts    map[string]*Post       // by event
}

func (c *check) index() {
	c.events = make(map[string]*Event, len(c.h.Events))
	c.starts, c.attempts, c.changes = map[string][]*Start{}, map[string][]*Attempt{}, map[string][]*Change{}
	c.requeues, c.posts = map[string][]time.Time{}, map[string]*Post{}
	for i := range c.h.Events {
		c.events[c.h.Events[i].ID] = &c.h.Events[i]
	}
	sort.SliceStable(c.h.Starts, func(i, j int) bool { return c.h.Starts[i].At.Before(c.h.Starts[j].At) })
	for i := range c.h.Starts {
		s := &c.h.Starts[i]
		c.starts[s.EventID] = append(c.starts[s.EventID], s)
	}
	c.report.AtEngine = len(c.starts)
	for i := range c.h.Attempts {
		a := &c.h.Attempts[i]
		c.attempts[a.EventID] = append(c.attempts[a.EventID], a)
	}
	for i := range c.h.Changes {
		change := &c.h.Changes[i]
		c.changes[change.EventID] = append(c.changes[change.EventID], change)
	}
	for _, r := range c.h.Requeues {
		c.requeues[r.EventID] = append(c.requeues[r.EventID], r.At)
	}
	for i := range c.h.Posts {
		for _, id := range c.h.Posts[i].EventIDs {
			if c.posts[id] == nil { // a duplicate is told the first one's id
				c.posts[id] = &c.h.Posts[i]
			}
		}
	}
}

func (c *check) fault(rule, event, format string, args ...any) {
	c.report.Violations = append(c.report.Violations, Violation{rule, event, fmt.Sprintf(format, args...)})
}

// rows: every 2xx has its rows (DESIGN §4.1, §4.2).
func (c *check) rows() {
	for i := range c.h.Posts {
		p := &c.h.Posts[i]
		if !p.OK() {
			continue
		}
		c.report.Accepted += len(p.EventIDs)
		for _, id := range p.EventIDs {
			if c.events[id] == nil {
				c.fault(RuleLost, id, "answered %d at %s, and no row is there", p.Status, clock(p.Answered))
			}
		}
	}
}

// ends: every event ends as dispatched, failed or ignored, and what is
// dispatched reached the engine.
func (c *check) ends() {
	for i := range c.h.Events {
		e := &c.h.Events[i]
		switch e.Status {
		case trigger.StatusReceived, trigger.StatusDispatching:
			c.fault(RuleStuck, e.ID, "is still %s after %d attempts", e.Status, e.Attempts)
		case trigger.StatusDispatched:
			c.report.Dispatched++
			if !slices.ContainsFunc(c.starts[e.ID], func(s *Start) bool { return s.RunID != "" }) {
				c.fault(RuleLost, e.ID, "is dispatched, and the engine never gave it a run")
			}
		case trigger.StatusFailed:
			c.report.Failed++
			if e.Retryable && e.Attempts < trigger.MaxAttempts {
				c.fault(RuleAttempts, e.ID, "failed after %d attempts although it could be tried again (%s)", e.Attempts, e.Code)
			}
		case trigger.StatusIgnored:
			c.report.Ignored++
		}
	}
}

// identity: the engine gets the event's id as its idempotency key (DESIGN §4.10).
func (c *check) identity() {
	for id, starts := range c.starts {
		if c.events[id] == nil {
			c.fault(RuleIdentity, id, "the engine was asked to run an event that the ledger does not have")
		}
		for _, s := range starts {
			if s.IdempotencyKey != s.EventID {
				c.fault(RuleIdentity, id, "came with the idempotency key %q", s.IdempotencyKey)
			}
		}
	}
}

// duplicates: a start of an event that has a run is explained by a fault since
// the run began, by an answer that never went out, or by a requeue.
func (c *check) duplicates() {
	for id, starts := range c.starts {
		var run *Start
		for _, s := range starts {
			if run != nil && s.At.After(run.At) {
				c.report.Duplicates++
				if c.isExplained(id, run, s) {
					c.report.Explained++
				} else {
					c.fault(RuleDuplicate, id, "has a run since %s and was started again at %s", clock(run.At), clock(s.At))
				}
			}
			if s.RunID != "" {
				run = s
			}
		}
	}
}

func (c *check) isExplained(id string, run, again *Start) bool {
	if !run.Told || c.faultIn(run.At, again.At, Dispatcher, Database, Network, Engine) {
		return true
	}
	return slices.ContainsFunc(c.requeues[id], func(at time.Time) bool { return at.After(run.At) && at.Before(again.At) })
}

// faultIn says whether a fault on one of the targets was on, or had been within
// Settle, at any time from a to b.
func (c *check) faultIn(a, b time.Time, targets ...Target) bool {
	return slices.ContainsFunc(c.h.Faults, func(f Fault) bool {
		return slices.Contains(targets, f.Target) && !f.From.After(b) && !f.To.Add(c.rules.Settle).Before(a)
	})
}

// counts: five in all, numbered without a gap, from one again after a requeue
// (DESIGN §4.9).
func (c *check) counts() {
	for id, list := range c.attempts {
		last := 0
		for _, a := range list {
			restarted := a.Attempt == 1 && len(c.requeues[id]) > 0
			if a.Attempt > trigger.MaxAttempts || (a.Attempt != last+1 && !restarted) {
				c.fault(RuleAttempts, id, "attempt %d was recorded after attempt %d", a.Attempt, last)
			}
			last = a.Attempt
		}
		e := c.events[id]
		if e != nil && len(c.requeues[id]) == 0 {
			c.total(e, last)
		}
	}
}

// total compares an event's attempts with those recorded.
func (c *check) total(e *Event, recorded int) {
	want := recorded
	if e.Status == trigger.StatusDispatched {
		want++
	}
	if e.Attempts != want && e.Status != trigger.StatusIgnored {
		c.fault(RuleAttempts, e.ID, "is %s with %d attempts, and %d unsuccessful ones are recorded", e.Status, e.Attempts, recorded)
	}
}

// arrows: statuses move along the arrows alone (DESIGN §5).
func (c *check) arrows() {
	for id, list := range c.changes {
		for i := 1; i < len(list); i++ {
			from, to := list[i-1], list[i]
			switch {
			case from.Status == trigger.StatusDispatching && to.Status == trigger.StatusDispatching:
				// The lease was renewed.
			case from.Status.CanBecome(to.Status):
				if from.Status == trigger.StatusFailed && to.Attempts != 0 {
					c.fault(RuleArrow, id, "was requeued with %d attempts", to.Attempts)
				}
			case to.Status == trigger.StatusIgnored && from.Status != trigger.StatusDispatched:
				// Its subscription has ended.
			default:
				c.fault(RuleArrow, id, "went from %s to %s at %s", from.Status, to.Status, clock(to.At))
			}
		}
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// Package model is the protocol of claims, leases and marks as a state machine,
// small enough to visit every state: one subscription, a few events, a few
// dispatchers that may stop or die anywhere, and a lease that may run out at any
// time. What the steps stand for is in db/queries/trigger_queue.sql. Its test
// visits all states and wants the promises of docs/guarantees.md to hold in
// each, and to break when one of the protocol's parts is taken out.
package model

import "math/bits"

const (
	events      = 2 // numbered in the order of their receipt
	dispatchers = 2
	maxAttempts = 2
)

// place is where an event lies.
type place uint8

const (
	absent place = iota // not received yet
	due
	waiting // for a retry
	dispatched
	failed
)

func (p place) queued() bool { return p == due || p == waiting }

type event struct {
	At       place
	Attempts uint8
	// What the protocol does not know, for the promises:
	Runs uint8 // starts that the engine took, up to 2
	Lost bool  // a claim of it ran out
}

// claim is the row of trigger_claims; a zero Token is none.
type claim struct {
	Token   uint8
	Events  uint8 // a set of events, a bit each
	Expired bool
}

// step is what a dispatcher is doing.
type step uint8

const (
	idle    step = iota
	looked       // ClaimLanes' snapshot shows the lane without a claim
	locked       // it has the lane's advisory lock
	snapped      // ClaimEvents has its snapshot and has not written yet
	holding      // it has a claim, or believes so
)

type dispatcher struct {
	Step   step
	Token  uint8
	Events uint8 // picked, or held
	Begun  uint8 // of them, those whose start has ended
	OK     uint8 // of them, those that the engine took
	// Valid says, for the promises, that its claim has not run out.
	Valid bool
}

// state is everything there is. It is comparable, so that visited states can be
// told.
type state struct {
	Events      [events]event
	Claim       claim
	Lock        uint8 // the dispatcher that has the lane's lock, from 1; 0: none
	Dispatchers [dispatchers]dispatcher
	Broken      string // the promise that the last step broke
}

// protocol says what is in, and how many events a claim takes.
type protocol struct {
	batch    int
	noFence  bool // the settle does not ask for the token
	noLock   bool // ClaimLanes takes no advisory lock
	noLook   bool // ClaimEvents does not look whether the lane has a claim
	oneQuery bool // claims are made on ClaimLanes' snapshot
	noReaper bool
}

// next gives every state that can follow.
func (p protocol) next(s state) []state {
	list := p.environment(s)
	for d := range s.Dispatchers {
		list = append(list, p.acts(s, d)...)
	}
	return list
}

// environment: events come, waits end, the lease runs out, somebody reaps.
func (p protocol) environment(s state) (list []state) {
	for e := range s.Events {
		n := s
		switch {
		case s.Events[e].At == absent && (e == 0 || s.Events[e-1].At != absent):
			n.Events[e].At = due
		case s.Events[e].At == waiting:
			n.Events[e].At = due
		default:
			continue
		}
		list = append(list, n)
	}
	if s.Claim.Token != 0 && !s.Claim.Expired {
		n := s
		n.Claim.Expired = true
		for d := range n.Dispatchers {
			if n.Dispatchers[d].Step == holding && n.Dispatchers[d].Token == s.Claim.Token {
				n.Dispatchers[d].Valid = false
			}
		}
		list = append(list, n)
	}
	if s.Claim.Expired && !p.noReaper {
		list = append(list, reap(s))
	}
	return list
}

// reap charges the attempt and takes the claim away (ClaimReap).
func reap(s state) state {
	for e := range s.Events {
		if s.Claim.Events&(1<<e) == 0 {
			continue
		}
		s.Events[e].Lost = true
		if s.Events[e].At.queued() {
			s.charge(e)
		}
	}
	s.Claim = claim{}
	return s
}

func (s *state) charge(e int) {
	s.Events[e].Attempts++
	s.Events[e].At = waiting
	if s.Events[e].Attempts >= maxAttempts {
		s.Events[e].At = failed
	}
}

// acts gives what one dispatcher may do next. At any step it may die: then its
// transaction is rolled back, a claim it has stays, and another process takes
// its place.
func (p protocol) acts(s state, d int) (list []state) {
	me := s.Dispatchers[d]
	if me.Step != idle {
		n := s
		n.leave(d)
		list = append(list, n)
	}
	switch me.Step {
	case idle:
		if s.Claim.Token == 0 && s.oldestDue(p.batch) != 0 {
			n := s
			n.Dispatchers[d] = dispatcher{Step: looked, Events: s.oldestDue(p.batch)}
			list = append(list, n)
		}
	case looked:
		list = append(list, p.lock(s, d))
	case locked:
		list = append(list, p.snapshot(s, d))
	case snapped:
		list = append(list, insert(s, d))
	case holding:
		if e := bits.TrailingZeros8(me.Events &^ me.Begun); e < events {
			list = append(list, start(s, d, e, true), start(s, d, e, false))
		}
		list = append(list, p.settle(s, d)) // of what has not begun, too: a shutdown
	}
	return list
}

// leave ends whatever a dispatcher does and releases its lock.
func (s *state) leave(d int) {
	s.Dispatchers[d] = dispatcher{}
	if s.Lock == uint8(d+1) {
		s.Lock = 0
	}
}

// lock is the end of ClaimLanes: it skips a lane whose advisory lock is taken.
// The lock comes after the snapshot that led to it.
func (p protocol) lock(s state, d int) state {
	if s.Lock != 0 && !p.noLock {
		s.leave(d)
		return s
	}
	if !p.noLock {
		s.Lock = uint8(d + 1)
	}
	s.Dispatchers[d].Step = locked
	if p.oneQuery {
		s.Dispatchers[d].Step = snapped // with what was seen then
	}
	return s
}

func (s *state) oldestDue(most int) (set uint8) {
	for e := range s.Events {
		if s.Events[e].At == due && bits.OnesCount8(set) < most {
			set |= 1 << e
		}
	}
	return set
}

// snapshot is what ClaimEvents sees.
func (p protocol) snapshot(s state, d int) state {
	picked := s.oldestDue(p.batch)
	if picked == 0 || (s.Claim.Token != 0 && !p.noLook) {
		s.leave(d)
		return s
	}
	s.Dispatchers[d].Step, s.Dispatchers[d].Events = snapped, picked
	return s
}

// insert is what ClaimEvents writes: the primary key allows one claim a
// subscription, and the lock ends with the transaction.
func insert(s state, d int) state {
	picked := s.Dispatchers[d].Events
	if s.Claim.Token != 0 {
		s.leave(d)
		return s
	}
	s.leave(d)
	token := s.freshToken()
	s.Claim = claim{Token: token, Events: picked}
	s.Dispatchers[d] = dispatcher{Step: holding, Token: token, Events: picked, Valid: true}
	return s
}

// freshToken gives a token that nobody has: a new one, with few numbers.
func (s *state) freshToken() uint8 {
	for token := uint8(1); ; token++ {
		used := s.Claim.Token == token
		for _, d := range s.Dispatchers {
			used = used || (d.Step == holding && d.Token == token)
		}
		if !used {
			return token
		}
	}
}

// start is one call of the engine. A dispatcher cannot know for sure that its
// lease still holds, so it may start after it.
func start(s state, d, e int, ok bool) state {
	me := &s.Dispatchers[d]
	if me.Valid && !s.Events[e].At.queued() {
		s.Broken = "an event that is over was started on a valid claim"
	}
	me.Begun |= 1 << e
	if ok {
		me.OK |= 1 << e
		s.Events[e].Runs = min(s.Events[e].Runs+1, 2)
	}
	return s
}

// settle is ClaimSettle: the claim goes if it is still this one's, and then its
// events move.
func (p protocol) settle(s state, d int) state {
	me := s.Dispatchers[d]
	held := s.Claim.Token == me.Token || (p.noFence && s.Claim.Token != 0)
	s.leave(d)
	if !held {
		return s
	}
	s.Claim = claim{}
	for e := range s.Events {
		switch bit := uint8(1) << e; {
		case me.Begun&bit == 0: // not attempted, or not its own
		case !s.Events[e].At.queued():
			s.Broken = "an event that is over was settled again"
		case me.OK&bit != 0:
			s.Events[e].At = dispatched
			s.Events[e].Attempts++
		default:
			s.charge(e)
		}
	}
	return s
}

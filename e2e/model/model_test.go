package model

import (
	"fmt"
	"testing"
)

// walk is every state that can be reached, with how.
type walk struct {
	order  []state
	parent map[state]state
	after  map[state][]state // what follows each
}

func (p protocol) walk(limit int) *walk {
	w := &walk{order: []state{{}}, parent: map[state]state{{}: {}}, after: map[state][]state{}}
	for i := 0; i < len(w.order) && len(w.order) < limit; i++ {
		s := w.order[i]
		if s.broken() != "" {
			continue // one is enough
		}
		w.after[s] = p.next(s)
		for _, n := range w.after[s] {
			if _, seen := w.parent[n]; !seen {
				w.parent[n] = s
				w.order = append(w.order, n)
			}
		}
	}
	return w
}

// broken names the promise that a state breaks.
func (s state) broken() string {
	if s.Broken != "" {
		return s.Broken
	}
	valid := 0
	for _, d := range s.Dispatchers {
		if d.Valid {
			valid++
		}
	}
	if valid > 1 {
		return "two dispatchers have a valid claim of one subscription"
	}
	for e, event := range s.Events {
		switch {
		case event.Attempts > maxAttempts:
			return fmt.Sprintf("event %d had %d attempts", e, event.Attempts)
		case event.At == dispatched && event.Runs == 0:
			return fmt.Sprintf("event %d is dispatched and has no run", e)
		case event.Runs > 1 && !event.Lost:
			return fmt.Sprintf("event %d ran twice and no lease had run out", e)
		}
	}
	return ""
}

func (s state) over() bool {
	for _, e := range s.Events {
		if e.At != dispatched && e.At != failed {
			return false
		}
	}
	return s.Claim.Token == 0
}

// problem finds a state that breaks a promise, or one from which the events
// cannot come to their end any more; "" when there is none.
func (w *walk) problem() (string, state) {
	for _, s := range w.order {
		if text := s.broken(); text != "" {
			return text, s
		}
	}
	before := map[state][]state{}
	var queue []state
	alive := map[state]bool{}
	for _, s := range w.order {
		for _, n := range w.after[s] {
			before[n] = append(before[n], s)
		}
		if s.over() {
			alive[s] = true
			queue = append(queue, s)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, s := range before[queue[0]] {
			if !alive[s] {
				alive[s] = true
				queue = append(queue, s)
			}
		}
	}
	for _, s := range w.order {
		if !alive[s] {
			return "an event is stuck", s
		}
	}
	return "", state{}
}

func (w *walk) path(s state) (text string) {
	for n := 0; s != (state{}) && n < 100; n++ {
		text = fmt.Sprintf("\n  %+v", s) + text
		s = w.parent[s]
	}
	return text
}

const most = 5_000_000

func TestThePromisesHoldInEveryStateOfTheProtocol(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 2} {
		w := protocol{batch: batch}.walk(most)
		if len(w.order) >= most {
			t.Fatalf("more than %d states", most)
		}
		if text, s := w.problem(); text != "" {
			t.Errorf("batch %d: %s:%s", batch, text, w.path(s))
		}
		t.Logf("batch %d: %d states", batch, len(w.order))
	}
}

func TestEachPartOfTheProtocolIsNeeded(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]protocol{
		"the settle asks for the token":                    {batch: 1, noFence: true},
		"the lane's advisory lock":                         {batch: 1, noLock: true},
		"the second statement looks for a claim":           {batch: 1, noLook: true},
		"the claim's own snapshot, behind the lock":        {batch: 1, oneQuery: true},
		"somebody reaps what has run out":                  {batch: 1, noReaper: true},
		"the settle asks for the token, in batches":        {batch: 2, noFence: true},
		"the second statement looks for a claim, in batch": {batch: 2, noLook: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := p.walk(most)
			text, s := w.problem()
			if text == "" {
				t.Fatalf("taken out, and all promises hold in %d states", len(w.order))
			}
			t.Logf("without it: %s, as in%s", text, w.path(s))
		})
	}
}

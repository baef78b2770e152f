package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

const (
	// maxSettle is how many outcomes go into one statement.
	maxSettle = 1000
	// keepLeases is for how many leases an outcome that cannot be recorded is
	// kept. The fence makes trying harmless, and the longer this side tries,
	// the fewer runs are started twice after an outage.
	keepLeases = 10
	// lastSettle is how long a shutdown waits for the ledger.
	lastSettle = 10 * time.Second
)

// settler records outcomes. It has one statement under way at a time and puts
// into the next whatever has finished meanwhile, so that marks are batched when
// there are many, late for none, and overlap claims and starts.
type settler struct {
	d       *Dispatcher
	wake    chan struct{} // cap 1
	closing chan struct{}
	done    chan struct{}

	mu      sync.Mutex
	waiting []*lane
	events  int // of the waiting lanes
}

func newSettler(d *Dispatcher) *settler {
	return &settler{d: d, wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{})}
}

// add hands over lanes whose outcomes are final.
func (s *settler) add(list []*lane) {
	s.mu.Lock()
	s.waiting = append(s.waiting, list...)
	for _, l := range list {
		s.events += len(l.events)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// full says that outcomes pile up: the ledger does not take them, so no more
// should be claimed.
func (s *settler) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events > 4*s.d.flight.total
}

func (s *settler) take() []*lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, events := 0, 0
	for n < len(s.waiting) && (n == 0 || events+len(s.waiting[n].events) <= maxSettle) {
		events += len(s.waiting[n].events)
		n++
	}
	batch := s.waiting[:n:n]
	s.waiting = s.waiting[n:]
	if len(s.waiting) == 0 {
		s.waiting = nil
	}
	s.events -= events
	return batch
}

// run records outcomes until drain is called and nothing waits. It stays for
// the shutdown, so it takes no context of its own.
func (s *settler) run(ctx context.Context) {
	defer close(s.done)
	for {
		batch := s.take()
		if len(batch) > 0 {
			s.flush(ctx, batch)
			continue
		}
		select {
		case <-s.wake:
		case <-s.closing:
			return // add comes before drain: nothing follows
		}
	}
}

// drain waits until everything is recorded, or the ledger has had its time. The
// starts have ended before it is called.
func (s *settler) drain() {
	close(s.closing)
	<-s.done
}

// flush records a batch. What the database cannot take now is tried again.
func (s *settler) flush(ctx context.Context, batch []*lane) {
	var closed time.Time
	backoff := time.Duration(0)
	for len(batch) > 0 {
		batch = s.settle(ctx, batch)
		if len(batch) == 0 {
			break
		}
		select {
		case <-s.closing:
			if closed.IsZero() {
				closed = time.Now()
			}
		default:
		}
		batch = s.tooOld(batch, !closed.IsZero() && time.Since(closed) > lastSettle)
		backoff = min(max(2*backoff, 50*time.Millisecond), 2*time.Second)
		pause(ctx, jitter(backoff))
	}
	s.d.kick() // the lanes may have more
}

// settle records outcomes and gives back the lanes to try again.
func (s *settler) settle(ctx context.Context, batch []*lane) []*lane {
	err := s.mark(ctx, batch)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, trigger.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		s.d.outage.note(err)
		return batch
	case len(batch) > 1: // one of them is refused; find out which
		var again []*lane
		for _, l := range batch {
			again = append(again, s.settle(ctx, []*lane{l})...)
		}
		return again
	}
	// What the ledger will not take may be something the engine said. The
	// state matters more than the words.
	l := batch[0]
	for i := range l.outcomes {
		if step := l.outcomes[i].Err; step != nil {
			l.outcomes[i].Err = &trigger.StepError{Code: "unrecordable_error", Phase: step.Phase, Retryable: step.Retryable}
		}
	}
	if again := s.mark(ctx, batch); again != nil {
		s.abandon(l, again)
	}
	return nil
}

func (s *settler) mark(ctx context.Context, batch []*lane) error {
	var outcomes []trigger.Outcome
	for _, l := range batch {
		outcomes = append(outcomes, l.outcomes...)
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	began := time.Now()
	lost, err := s.d.parts.Queue.MarkDispatched(ctx, outcomes...)
	if err != nil {
		return err
	}
	s.d.metrics.settleBatch.Observe(float64(len(outcomes)))
	s.d.metrics.settleTime.Observe(time.Since(began).Seconds())
	gone := make(map[trigger.Claim]bool, len(lost))
	for _, event := range lost {
		gone[event.Claim] = true
	}
	for _, l := range batch {
		s.end(l, gone[l.claim])
	}
	return nil
}

// end is the end of a lane: its slots, its lease, its lines.
func (s *settler) end(l *lane, lost bool) {
	l.cancel(nil)
	s.d.flight.settled(l)
	for i := range l.outcomes {
		s.d.report(&l.outcomes[i], lost)
	}
}

// abandon leaves a lane to its lease: whoever reaps it will count the attempt.
func (s *settler) abandon(l *lane, err error) {
	l.cancel(nil)
	s.d.flight.settled(l)
	for i := range l.outcomes {
		o := &l.outcomes[i]
		s.d.metrics.attempts.WithLabelValues(outcomeLeaseLost).Inc()
		s.d.log.Error("event.unsettled", append(fields(o), obs.Run(o.RunID), zap.Error(err))...)
	}
}

// tooOld drops the lanes that have been tried for long enough.
func (s *settler) tooOld(batch []*lane, all bool) []*lane {
	keep := batch[:0:0]
	for _, l := range batch {
		if all || s.d.flight.age(l) > keepLeases*s.d.cfg.Lease {
			s.abandon(l, trigger.ErrUnavailable)
			continue
		}
		keep = append(keep, l)
	}
	return keep
}

package poll_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/services/ingest/internal/adapter/poll"
)

type manager struct {
	mu      sync.Mutex
	due     int
	running int
	most    int
	made    int
	fail    error
	takes   time.Duration
}

func (m *manager) DuePolls(_ context.Context, limit int) ([]*trigger.DuePoll, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	n := min(limit, m.due)
	m.due -= n
	return make([]*trigger.DuePoll, n), nil
}

func (m *manager) Poll(context.Context, *trigger.DuePoll) {
	m.mu.Lock()
	m.running++
	m.most = max(m.most, m.running)
	m.mu.Unlock()
	time.Sleep(m.takes) // the bubble's clock
	m.mu.Lock()
	m.running--
	m.made++
	m.mu.Unlock()
}

func TestChecksAreMadeWithinTheBoundAndAwaitedAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &manager{due: 20, takes: 10 * time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = (&poll.Adapter{Manager: m, Concurrency: 3, Log: zap.NewNop()}).Run(ctx)
		}()
		time.Sleep(25 * time.Second) // the bubble's clock
		cancel()
		<-ended
		if m.most != 3 || m.running != 0 || m.made < 6 {
			t.Errorf("at most %d at once, %d still running, %d made", m.most, m.running, m.made)
		}
	})
}

func TestATroubledDatabaseIsAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &manager{due: 1, fail: errors.New("down")}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = (&poll.Adapter{Manager: m, Log: zap.NewNop()}).Run(ctx) }()
		time.Sleep(5 * time.Second) // the bubble's clock
		m.mu.Lock()
		m.fail = nil
		m.mu.Unlock()
		time.Sleep(5 * time.Second) // the bubble's clock
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.made != 1 {
			t.Errorf("%d checks made, want 1", m.made)
		}
	})
}

// An outage of a minute is a few lines, not one a look.
func TestAnOutageIsSaidOnceAndRemindedOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.InfoLevel)
		m := &manager{fail: errors.New("down")}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = (&poll.Adapter{Manager: m, Log: zap.New(core)}).Run(ctx) }()
		time.Sleep(45 * time.Second) // the bubble's clock
		m.mu.Lock()
		m.fail = nil
		m.mu.Unlock()
		time.Sleep(5 * time.Second) // the bubble's clock
		if lost, back := lines.FilterMessage("poll.unavailable").Len(), lines.FilterMessage("poll.available").Len(); lost != 2 || back != 1 {
			t.Errorf("%d lines of an outage of 45 s and %d of its end, want 2 and 1", lost, back)
		}
	})
}

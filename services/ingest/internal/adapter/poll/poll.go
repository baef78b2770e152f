// Package poll is the adapter of poll triggers (RFC amendment §Polling): it
// asks the manager for checks that are due and has it make them. Any number of
// processes may run it; the ledger sees to it that a check is made once.
package poll

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Manager is the part of the TriggerManager that this adapter calls.
type Manager interface {
	DuePolls(ctx context.Context, limit int) ([]*trigger.DuePoll, error)
	Poll(ctx context.Context, poll *trigger.DuePoll)
}

// Adapter makes checks.
type Adapter struct {
	Manager Manager
	// Look is how often it looks for due checks; 0 means 1 s.
	Look time.Duration
	// Concurrency bounds the checks in flight; 0 means 8.
	Concurrency int
	Log         *zap.Logger
}

// Run makes checks until ctx ends, and returns when those in flight have
// ended.
func (a *Adapter) Run(ctx context.Context) error {
	look, free := a.Look, a.Concurrency
	if look == 0 {
		look = time.Second
	}
	if free == 0 {
		free = 8
	}
	var running sync.WaitGroup
	defer running.Wait()
	done := make(chan struct{}, free)
	var outage obs.Outage
	for {
		for _, poll := range a.due(ctx, free, &outage) {
			free--
			running.Go(func() {
				a.Manager.Poll(ctx, poll)
				done <- struct{}{}
			})
		}
		// Replicas that started together spread out.
		timer := time.NewTimer(look - look/4 + rand.N(look/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		for len(done) > 0 {
			<-done
			free++
		}
	}
}

func (a *Adapter) due(ctx context.Context, free int, outage *obs.Outage) []*trigger.DuePoll {
	if free == 0 {
		return nil
	}
	polls, err := a.Manager.DuePolls(ctx, free)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		outage.Note(a.Log, "poll.unavailable", err)
	default:
		outage.Over(a.Log, "poll.available")
	}
	return polls
}

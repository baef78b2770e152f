// Package schedule is the cron adapter (w6w Trigger RFC §Adapters; OpenWOP RFC
// 0052): it asks the manager for schedules whose slot has come and has it fire
// them. Any number of processes may run it; the ledger sees to it that a slot
// is fired once.
package schedule

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
	DueSchedules(ctx context.Context, limit int) (due []trigger.DueSchedule, next time.Duration, err error)
	Fire(ctx context.Context, due trigger.DueSchedule)
}

// Adapter fires schedules.
type Adapter struct {
	Manager Manager
	Log     *zap.Logger
}

const (
	look  = time.Second // the longest sleep: a new schedule is found by then
	batch = 200         // schedules taken in hand at once
	wide  = 4           // fired at a time
)

// Run fires schedules until ctx ends, and returns when those in hand are done.
func (a *Adapter) Run(ctx context.Context) error {
	var outage obs.Outage
	for ctx.Err() == nil {
		due, next, err := a.Manager.DueSchedules(ctx, batch)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			outage.Note(a.Log, "schedule.unavailable", err)
		default:
			outage.Over(a.Log, "schedule.available")
		}
		a.fire(ctx, due)
		if len(due) == batch {
			continue
		}
		sleep := look/2 + rand.N(look/2)
		if err == nil && next >= 0 {
			sleep = min(sleep, next+time.Millisecond)
		}
		timer := time.NewTimer(sleep)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
	return nil
}

// fire goes through the list from a place of its own, so that replicas that
// woke together do not all start at the same schedule.
func (a *Adapter) fire(ctx context.Context, due []trigger.DueSchedule) {
	if len(due) == 0 {
		return
	}
	start := rand.N(len(due))
	work := make(chan trigger.DueSchedule)
	var firing sync.WaitGroup
	for range min(wide, len(due)) {
		firing.Go(func() {
			for d := range work {
				a.Manager.Fire(ctx, d)
			}
		})
	}
	for i := range due {
		work <- due[(start+i)%len(due)]
	}
	close(work)
	firing.Wait()
}

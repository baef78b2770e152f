package openwop

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// fakeOutcomes knows how events ended.
type fakeOutcomes struct {
	Ledger
	mu    sync.Mutex
	ended map[string]string
	asked int
}

func (f *fakeOutcomes) end(id, run string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended[id] = run
}

// Outcomes tells what is known.
func (f *fakeOutcomes) Outcomes(_ context.Context, ids []string) (list []trigger.EventOutcome, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	for id, run := range f.ended {
		if slices.Contains(ids, id) {
			list = append(list, trigger.EventOutcome{EventID: id, RunID: run})
		}
	}
	return list, nil
}

// A hundred requests wait for ten events: one ring answers all of them, a lost
// ring costs lookEvery, and whoever gives up is forgotten.
func TestTheHubTellsEveryoneWhoWaits(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		ledger, wake := &fakeOutcomes{ended: map[string]string{}}, make(chan struct{}, 1)
		h := newHub(ledger, wake, zap.NewNop())
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.run(ctx) }()

		var waiting sync.WaitGroup
		for i := range 100 {
			id := fmt.Sprint("evt_", i%10)
			waiting.Go(func() {
				if outcome, ok := h.wait(ctx, id); !ok || outcome.RunID != "run of "+id {
					t.Errorf("%s: %+v, %t", id, outcome, ok)
				}
			})
		}
		synctest.Wait()
		asked := ledger.asked
		for i := range 10 {
			id := fmt.Sprint("evt_", i)
			ledger.end(id, "run of "+id)
		}
		wake <- struct{}{}
		waiting.Wait()
		if ledger.asked != asked+1 {
			t.Errorf("%d questions for one ring", ledger.asked-asked)
		}

		ledger.end("evt_late", "run_late")
		if outcome, ok := h.wait(ctx, "evt_late"); !ok || outcome.RunID != "run_late" {
			t.Errorf("an event that had ended: %+v, %t", outcome, ok)
		}
		began := time.Now()
		time.AfterFunc(lookEvery/2, func() { ledger.end("evt_lost", "run_lost") }) // and no ring
		if _, ok := h.wait(ctx, "evt_lost"); !ok || time.Since(began) > 2*lookEvery {
			t.Errorf("a lost ring took %v", time.Since(began))
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, ok := h.wait(short, "evt_never"); ok {
			t.Error("an event without an end ended")
		}
		if len(h.waiting) != 0 {
			t.Errorf("still waiting: %v", h.waiting)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Strangers cannot fill the ledger with refused posts.
func TestRefusalsAreRecordedOnlySoOften(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		r, kept := newRefusals(), 0
		for range 2 * refusalsKept {
			if r.record("sub_a") {
				kept++
			}
		}
		if kept != refusalsKept || !r.record("sub_b") {
			t.Errorf("%d kept", kept)
		}
		time.Sleep(refusalsWindow + time.Second) // the bubble's clock
		if !r.record("sub_a") {
			t.Error("the next minute's are not recorded")
		}
	})
}

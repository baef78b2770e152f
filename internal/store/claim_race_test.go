package store_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/store/storetest"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Claimers race settlers: an event whose settle commits while a claim is being
// made is not claimed again.
func TestAClaimNeverSeesWhatIsBeingSettled(t *testing.T) {
	t.Parallel()
	url := storetest.NewURL(t)
	s := storetest.Open(t, url)
	const lanes, each = 4, 150
	for range lanes {
		sub := subscribe(t, s)
		for n := range each {
			save(t, s, record(sub, fmt.Sprintf(`{"n":%d}`, n)))
		}
	}
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		seen  = map[string]int{}
		last  = map[int64]string{}
		ended atomic.Int64
	)
	for range 4 {
		d := storetest.Open(t, url)
		wait.Go(func() {
			for began := time.Now(); ended.Load() < lanes*each && time.Since(began) < 30*time.Second; {
				events, err := d.ClaimDue(t.Context(), trigger.ClaimRequest{Owner: "d", Limit: lanes, Lease: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				for _, event := range events {
					mu.Lock()
					seen[event.ID]++
					if seen[event.ID] > 1 {
						t.Errorf("%s was claimed again", event.ID)
					}
					if event.ID < last[event.SID] {
						t.Errorf("%s came after %s", event.ID, last[event.SID])
					}
					last[event.SID] = event.ID
					mu.Unlock()
					lost, err := d.Settle(t.Context(), []trigger.Outcome{{Event: event, AttemptID: "att_" + event.ID, RunID: "run"}})
					if err != nil || len(lost) > 0 {
						t.Errorf("settle: lost %v, %v", lost, err)
					}
					ended.Add(1)
				}
			}
		})
	}
	wait.Wait()
	if n := ended.Load(); n != lanes*each {
		t.Errorf("%d of %d events ended", n, lanes*each)
	}
}

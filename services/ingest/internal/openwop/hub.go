package openwop

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// lookEvery is how long a lost ring may go unnoticed while somebody waits.
const lookEvery = 250 * time.Millisecond

// hub tells waiting requests how their events ended. All of them share one
// listener and one question.
type hub struct {
	ledger Ledger
	wake   <-chan struct{}
	joined chan struct{} // cap 1: somebody waits who has not been asked for
	log    *zap.Logger

	mu      sync.Mutex
	waiting map[string][]chan trigger.EventOutcome
}

func newHub(ledger Ledger, wake <-chan struct{}, log *zap.Logger) *hub {
	return &hub{ledger: ledger, wake: wake, joined: make(chan struct{}, 1), log: log, waiting: map[string][]chan trigger.EventOutcome{}}
}

// wait waits until the event has come to its end, or ctx ends; false then.
func (h *hub) wait(ctx context.Context, eventID string) (trigger.EventOutcome, bool) {
	told := make(chan trigger.EventOutcome, 1)
	h.mu.Lock()
	h.waiting[eventID] = append(h.waiting[eventID], told)
	h.mu.Unlock()
	defer h.leave(eventID, told)
	select {
	case h.joined <- struct{}{}: // it may have ended before it was waited for
	default:
	}
	select {
	case outcome := <-told:
		return outcome, true
	case <-ctx.Done():
		return trigger.EventOutcome{}, false
	}
}

func (h *hub) leave(eventID string, told chan trigger.EventOutcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.waiting[eventID]
	for i := range list {
		if list[i] == told {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if h.waiting[eventID] = list; len(list) == 0 {
		delete(h.waiting, eventID)
	}
}

// run looks when it is woken, when somebody joins, and by a timer while anybody
// waits.
func (h *hub) run(ctx context.Context) error {
	timer := time.NewTicker(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
		case <-h.joined:
		case <-timer.C:
		}
		h.look(ctx)
	}
}

func (h *hub) look(ctx context.Context) {
	h.mu.Lock()
	ids := make([]string, 0, len(h.waiting))
	for id := range h.waiting {
		ids = append(ids, id)
	}
	h.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	outcomes, err := h.ledger.Outcomes(ctx, ids)
	if err != nil {
		h.log.Debug("openwop.outcomes_unknown", zap.Error(err)) // the next look asks again
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, outcome := range outcomes {
		for _, told := range h.waiting[outcome.EventID] {
			select {
			case told <- outcome:
			default: // told already
			}
		}
	}
}

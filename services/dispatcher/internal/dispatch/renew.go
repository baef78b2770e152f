package dispatch

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// renewLeases lengthens the claims whose starts, or whose recording, take long.
// Most are settled before they are old enough to be asked about.
func (d *Dispatcher) renewLeases(ctx context.Context) {
	every := d.cfg.Lease / 3
	wait := every
	for {
		pause(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		wait = every
		if !d.renew(ctx, time.Now().Add(-every/2)) {
			wait = every / 4 // there is time for a few more tries
		}
	}
}

// renew lengthens the leases that began before the given time.
func (d *Dispatcher) renew(ctx context.Context, before time.Time) bool {
	held := d.flight.held(before)
	if len(held) == 0 {
		return true
	}
	claims := make([]trigger.Claim, len(held))
	for i, l := range held {
		claims[i] = l.claim
	}
	ctx, cancel := context.WithTimeout(ctx, min(queryTimeout, d.cfg.Lease/4))
	defer cancel()
	now := time.Now()
	lost, err := d.parts.Ledger.RenewClaims(ctx, claims, d.cfg.Lease)
	if err != nil {
		d.outage.note(err)
		return false
	}
	gone := make(map[trigger.Claim]bool, len(lost))
	for _, claim := range lost {
		gone[claim] = true
	}
	kept := held[:0]
	for _, l := range held {
		if gone[l.claim] {
			// Another dispatcher may start the event now. If the lane has just
			// been settled, this ends nothing.
			l.cancel(errLeaseLost)
			d.log.Debug("claim.lost", zap.Int("events", len(l.events)))
			continue
		}
		kept = append(kept, l)
	}
	d.flight.renewed(kept, now)
	return true
}

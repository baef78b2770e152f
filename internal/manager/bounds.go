package manager

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/internal/vendors"
)

// What calls that nobody vouches for may write: enough to see who knocks, and
// far too little to fill a disk (at a row a second, some 100 MB a day).
const (
	strangersBurst    = 30 // rows of one subscription at once
	strangersEvery    = 10 * time.Second
	strangersAllBurst = 200 // rows of the process at once
	strangersAllEvery = time.Second

	maxRefusedHeader = 4 << 10
	maxRefusedQuery  = 1 << 10
	maxHandshakeBody = 16 << 10

	statusUnauthorized = 401
)

// maxBounded is how many subscriptions' buckets are kept; past it all begin anew.
const maxBounded = 10_000

// bounds says how many rows of a kind may be written. It is safe for concurrent
// use.
type bounds struct {
	mu   sync.Mutex
	all  *rate.Limiter
	each map[int64]*rate.Limiter
}

func newBounds() *bounds {
	return &bounds{all: rate.NewLimiter(rate.Every(strangersAllEvery), strangersAllBurst), each: map[int64]*rate.Limiter{}}
}

func (b *bounds) allow(sid int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	one, ok := b.each[sid]
	if !ok {
		if len(b.each) >= maxBounded {
			clear(b.each)
		}
		one = rate.NewLimiter(rate.Every(strangersEvery), strangersBurst)
		b.each[sid] = one
	}
	return one.Allow() && b.all.Allow()
}

// patience is how long a call waits for room. A vendor that comes again is told
// so at once; one that does not, or that turns the subscription off after
// errors, is refused last (vendors contract §4, status policy).
func patience(policy *vendors.Policy) time.Duration {
	if policy.Load() != vendors.LoadAccept {
		return 0
	}
	const unknown = 5 * time.Second
	deadline := policy.Vendor.Deadline
	if deadline == 0 {
		deadline = unknown
	}
	return min(deadline, 10*time.Second) * 3 / 4 // the rest is for the work itself
}

// maxPatient bounds how many calls wait for room: each holds its body.
const maxPatient = 64

// insist does something again while there is no room for it.
func (m *TriggerManager) insist(ctx context.Context, patience time.Duration, do func() error) error {
	err := do()
	if patience == 0 || !errors.Is(err, trigger.ErrBackPressure) {
		return err
	}
	select {
	case m.patient <- struct{}{}:
		defer func() { <-m.patient }()
	default:
		return err // many wait already
	}
	over := time.NewTimer(patience)
	defer over.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for errors.Is(err, trigger.ErrBackPressure) {
		select {
		case <-again.C:
			err = do()
		case <-over.C:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

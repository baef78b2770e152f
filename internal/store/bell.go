package store

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/db"
)

// ringInterval is the least time between two rings. PostgreSQL takes one lock
// for the whole database when a transaction that notifies commits, so a bell
// per commit would put the commits of a busy ledger in a row.
const ringInterval = 5 * time.Millisecond

// bell decides who rings. A commit on a quiet ledger rings by itself, inside its
// transaction; on a busy one a ring follows within ringInterval.
type bell struct {
	db   *DB
	wake chan struct{} // cap 1

	mu   sync.Mutex
	last time.Time
}

func newBell(db *DB) *bell { return &bell{db: db, wake: make(chan struct{}, 1)} }

// claim says whether the caller is to ring in its own transaction. When it is
// not, it calls after once it has committed.
func (b *bell) claim() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Sub(b.last) < ringInterval {
		return false
	}
	b.last = now
	return true
}

// after asks for a ring soon; it does not block.
func (b *bell) after() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run rings for commits that were not to do it themselves.
func (b *bell) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}
		b.mu.Lock()
		wait := ringInterval - time.Since(b.last)
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		b.mu.Lock()
		b.last = time.Now()
		b.mu.Unlock()
		b.ring(ctx)
	}
}

func (b *bell) ring(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	// The dispatchers' timer finds what a lost ring would have announced.
	if err := b.db.queries.BellRing(ctx, b.db.pool, db.Channel); err != nil && ctx.Err() == nil {
		b.db.log.Debug("bell.lost", zap.Error(err))
	}
}

package main

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/store"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// sweeper is the part of the ledger that tidies up.
type sweeper interface {
	Sweep(ctx context.Context) (store.Swept, error)
}

// purger is the part of the ledger that forgets.
type purger interface {
	Purge(ctx context.Context, keep trigger.Retention) (store.Purged, error)
}

// purge forgets what is past its time until ctx ends. Every ingest does it;
// they spread out, since each walks over what is old.
func purge(ctx context.Context, ledger purger, keep trigger.Retention, every time.Duration, log *zap.Logger) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every/2 + rand.N(every)):
		}
		began := time.Now()
		purged, err := ledger.Purge(ctx, keep)
		switch {
		case err != nil && ctx.Err() == nil:
			log.Warn("ledger.purge_failed", obs.Err(err))
		case purged != store.Purged{}:
			log.Info("ledger.purged", zap.Int64("events", purged.Events), zap.Int64("runs", purged.Runs), obs.Duration(time.Since(began)))
		}
	}
}

// sweep tidies up behind processes that died, and forgets dedup keys past their
// window, until ctx ends. Every ingest does it; the ledger keeps them apart.
func sweep(ctx context.Context, ledger sweeper, every time.Duration, log *zap.Logger) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		swept, err := ledger.Sweep(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			log.Warn("ledger.sweep_failed", obs.Err(err))
		case swept != store.Swept{}:
			log.Info("ledger.swept", zap.Int64("abandoned", swept.Abandoned), zap.Int64("ignored", swept.Ignored), zap.Int64("dedup_keys", swept.DedupKeys))
		}
	}
}

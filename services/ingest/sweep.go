package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/store"
)

// sweeper is the part of the ledger that tidies up.
type sweeper interface {
	Sweep(ctx context.Context) (store.Swept, error)
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

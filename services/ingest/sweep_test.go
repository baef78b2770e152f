package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tocsin-dev/tocsin/internal/store"
)

// countedSweeps fails the first time.
type countedSweeps struct{ n atomic.Int64 }

func (c *countedSweeps) Sweep(context.Context) (store.Swept, error) {
	if c.n.Add(1) == 1 {
		return store.Swept{}, errors.New("no database")
	}
	return store.Swept{Abandoned: 1}, nil
}

func TestTheLedgerIsSweptOnceAMinuteAlsoAfterAFailure(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ledger := &countedSweeps{}
		go func() { _ = sweep(ctx, ledger, sweepEvery, zap.New(core)) }()

		time.Sleep(3*time.Minute + time.Second) // the bubble's clock
		synctest.Wait()
		if n := ledger.n.Load(); n != 3 {
			t.Errorf("%d sweeps in three minutes, want 3", n)
		}
		if failed, swept := logs.FilterMessage("ledger.sweep_failed").Len(), logs.FilterMessage("ledger.swept").Len(); failed != 1 || swept != 2 {
			t.Errorf("%d failures and %d sweeps in the log, want 1 and 2", failed, swept)
		}
	})
}

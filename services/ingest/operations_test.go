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
)

// steps fails for a minute, then has ten steps to take.
type steps struct {
	since time.Time
	taken atomic.Int64
}

func (s *steps) StepOperation(context.Context) (bool, error) {
	if time.Since(s.since) < time.Minute {
		return false, errors.New("no database")
	}
	return s.taken.Add(1) <= 10, nil
}

func TestOperationsAreCarriedOutAndAnOutageIsSaidOnce(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ledger := &steps{since: time.Now()}
		go func() { _ = operate(ctx, ledger, zap.New(core)) }()

		time.Sleep(63 * time.Second) // the bubble's clock
		synctest.Wait()
		if n := ledger.taken.Load(); n < 11 {
			t.Errorf("%d steps within 3 s of the database's return, want all 10 and a look", n)
		}
		if n := logs.FilterMessage("operation.stalled").Len(); n != 2 {
			t.Errorf("%d lines about one outage of a minute, want 2", n)
		}
	})
}

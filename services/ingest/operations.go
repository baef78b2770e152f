package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/obs"
)

// stepper is the part of the ledger that carries operations out.
type stepper interface {
	StepOperation(ctx context.Context) (more bool, err error)
}

const (
	operationLook  = time.Second           // how soon an operation is begun
	operationPause = 20 * time.Millisecond // between two steps: events that come in have the database, too
)

// operate carries operations out until ctx ends. Every ingest does it; the
// ledger gives a step to one of them.
func operate(ctx context.Context, ledger stepper, log *zap.Logger) error {
	wait := operationLook
	var outage obs.Outage
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		more, err := ledger.StepOperation(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			outage.Note(log, "operation.stalled", err)
		default:
			outage.Over(log, "operation.resumed")
		}
		wait = operationLook
		if more {
			wait = operationPause
		}
	}
}

package store

import "context"

// Swept says what a sweep found.
type Swept struct {
	Abandoned int64 // reservations whose process died
	Ignored   int64 // open events of subscriptions that had ended
	DedupKeys int64 // dedup keys past their window
}

// maxPurge bounds one sweep's deletion.
const maxPurge = 5_000

// Sweep ends what a dead process left half done and forgets what is past its
// time. Any number of processes may sweep.
func (db *DB) Sweep(ctx context.Context) (Swept, error) {
	var swept Swept
	var err error
	if swept.Abandoned, err = db.queries.SubscriptionAbandonStale(ctx, db.pool); err != nil {
		return swept, failed("abandon reservations", err)
	}
	if swept.Ignored, err = db.queries.QueueSweepEnded(ctx, db.pool); err != nil {
		return swept, failed("sweep ended subscriptions", err)
	}
	if swept.DedupKeys, err = db.queries.DedupPurge(ctx, db.pool, maxPurge); err != nil {
		return swept, failed("purge dedup keys", err)
	}
	if _, err = db.queries.IdempotencyPurge(ctx, db.pool, maxPurge); err != nil {
		return swept, failed("purge idempotency keys", err)
	}
	return swept, nil
}

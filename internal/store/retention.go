package store

import (
	"context"
	"time"

	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Purged counts the rows that were forgotten.
type Purged struct{ Events, Runs int64 }

const (
	purgeStep  = 500
	purgePause = 50 * time.Millisecond // between two steps: the claim has the disk in between
)

// Purge forgets what is past its time, a few rows a transaction, in one walk
// over what is old. It takes no lock that a claim or a commit waits for.
func (db *DB) Purge(ctx context.Context, keep trigger.Retention) (Purged, error) {
	var purged Purged
	if shortest := shorter(keep.Events, keep.DeadLetters); shortest > 0 {
		upto := ident.Before(ident.Event, time.Now().Add(-shortest))
		n, err := walk(ctx, func(after string) (int64, int64, string, error) {
			row, err := db.queries.EventPurge(ctx, db.pool, &dbsqlc.EventPurgeParams{
				After: after, Upto: upto, MaxRows: purgeStep, KeepMs: keep.Events.Milliseconds(), KeepFailedMs: keep.DeadLetters.Milliseconds(),
			})
			if err != nil {
				return 0, 0, "", err
			}
			return row.Deleted, row.LookedAt, row.Reached, nil
		})
		if purged.Events = n; err != nil {
			return purged, failed("purge events", err)
		}
	}
	if keep.Runs > 0 {
		upto := ident.Before(ident.Run, time.Now().Add(-keep.Runs))
		n, err := walk(ctx, func(after string) (int64, int64, string, error) {
			row, err := db.queries.RunPurge(ctx, db.pool, &dbsqlc.RunPurgeParams{After: after, Upto: upto, MaxRows: purgeStep, KeepMs: keep.Runs.Milliseconds()})
			if err != nil {
				return 0, 0, "", err
			}
			return row.Deleted, row.LookedAt, row.Reached, nil
		})
		if purged.Runs = n; err != nil {
			return purged, failed("purge runs", err)
		}
	}
	if _, err := db.queries.OperationPurge(ctx, db.pool); err != nil {
		return purged, failed("purge operations", err)
	}
	return purged, nil
}

// shorter gives the shorter of two times to keep, where 0 is for ever.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// walk takes steps until one finds less than it may look at. Each goes on
// behind the last, so that what is kept for longer is passed over once.
func walk(ctx context.Context, step func(after string) (deleted, lookedAt int64, reached string, err error)) (total int64, err error) {
	for after := ""; ctx.Err() == nil; {
		deleted, lookedAt, reached, err := step(after)
		total += deleted
		if err != nil || lookedAt < purgeStep {
			return total, err
		}
		after = reached
		select {
		case <-ctx.Done():
		case <-time.After(purgePause):
		}
	}
	return total, ctx.Err()
}

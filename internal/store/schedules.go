package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// schedule keeps a new subscription's schedule, if it has one.
func (db *DB) schedule(ctx context.Context, tx pgx.Tx, s *trigger.Subscription) error {
	if s.Schedule == nil {
		return nil
	}
	return db.queries.ScheduleCreate(ctx, tx, &dbsqlc.ScheduleCreateParams{
		Sid: s.SID, Cron: s.Schedule.Cron, Timezone: s.Schedule.Timezone, Missed: string(s.Schedule.Missed), DueAt: &s.Schedule.First,
	})
}

// DueSchedules lists schedules whose slot has come, and says how long until the
// next one; a negative time means that there is none. Nothing is claimed: Tick
// decides who fires.
func (db *DB) DueSchedules(ctx context.Context, limit int) ([]trigger.DueSchedule, time.Duration, error) {
	rows, err := db.queries.ScheduleDue(ctx, db.pool, int32(limit))
	if err != nil {
		return nil, 0, failed("list due schedules", err)
	}
	due := make([]trigger.DueSchedule, 0, len(rows))
	for _, row := range rows {
		s, err := db.SubscriptionBySID(ctx, row.Sid)
		if errors.Is(err, trigger.ErrUnknownSubscription) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		due = append(due, trigger.DueSchedule{
			Subscription: s, Slot: row.DueAt, Now: row.Now,
			Schedule: trigger.Schedule{Cron: row.Cron, Timezone: row.Timezone, Missed: trigger.MissedPolicy(row.Missed)},
		})
	}
	next, err := db.queries.ScheduleNext(ctx, db.pool)
	if err != nil {
		return nil, 0, failed("find the next schedule", err)
	}
	return due, time.Duration(next) * time.Millisecond, nil
}

// PassTick moves a schedule on without an event. False: somebody else did.
func (db *DB) PassTick(ctx context.Context, tick trigger.Tick) (bool, error) {
	n, err := db.queries.ScheduleAdvance(ctx, db.pool, &dbsqlc.ScheduleAdvanceParams{Sid: tick.SID, Slot: tick.Slot, Next: tick.Next})
	if err != nil {
		return false, failed("pass a tick", err)
	}
	return n == 1, nil
}

// saveTick stores a tick's event and moves its schedule on, in one transaction:
// whoever moves it has fired the slot. trigger.ErrConflict when somebody else
// did, or the subscription changed.
func (db *DB) saveTick(ctx context.Context, p *pendingCall) (*trigger.SavedCall, error) {
	var saved *trigger.SavedCall
	tick := p.record.Tick
	err := db.inTx(ctx, func(tx pgx.Tx) error {
		n, err := db.queries.ScheduleAdvance(ctx, tx, &dbsqlc.ScheduleAdvanceParams{Sid: tick.SID, Slot: tick.Slot, Next: tick.Next, Fired: true})
		if err != nil {
			return err
		}
		if n == 0 {
			return trigger.ErrConflict
		}
		results, err := db.writeCalls(ctx, tx, []*pendingCall{p}, true)
		if err != nil {
			return err
		}
		saved = results[0].saved
		return results[0].err
	})
	if errors.Is(err, trigger.ErrConflict) {
		db.cache.forget(p.record.Subscription.ID)
		return nil, err
	}
	if err != nil {
		return nil, failed("save tick", err)
	}
	return saved, nil
}

// MoveSchedule puts a schedule's slot into the past, for tests.
func (db *DB) MoveSchedule(ctx context.Context, sid int64, ago time.Duration) error {
	if err := db.queries.ScheduleMove(ctx, db.pool, &dbsqlc.ScheduleMoveParams{Sid: sid, AgoMs: ago.Milliseconds()}); err != nil {
		return failed("move a schedule", err)
	}
	return nil
}

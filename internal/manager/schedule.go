package manager

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/schedule"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// MaxFutureHorizon is how far ahead the first tick of a schedule may lie
// (OpenWOP RFC 0052 §B); HorizonText is the same as ISO 8601.
const (
	MaxFutureHorizon = 366 * 24 * time.Hour
	HorizonText      = "P366D"
)

// CodeHorizon is the InvalidError code of a schedule beyond MaxFutureHorizon.
const CodeHorizon = "schedule_horizon_exceeded"

// missedAfter is how late a tick may be and still be fired for itself: long
// enough for another process to take over, too short for a backlog.
const missedAfter = 10 * time.Second

func badSchedule(message string) error {
	return &trigger.InvalidError{Code: "invalid_schedule", Message: message}
}

// readSchedule reads the params of a schedule. Times are by this process's
// clock; the ledger's decides when they have come.
func readSchedule(params json.RawMessage, now time.Time) (*trigger.Schedule, error) {
	var given struct {
		Cron     string               `json:"cron"`
		At       string               `json:"at"`
		Timezone string               `json:"timezone"`
		Missed   trigger.MissedPolicy `json:"missedFirePolicy"`
	}
	if err := json.Unmarshal(params, &given); err != nil {
		return nil, badSchedule("a schedule is an object of texts: cron or at, timezone, missedFirePolicy")
	}
	s := &trigger.Schedule{Cron: given.Cron, Timezone: given.Timezone, Missed: given.Missed}
	if s.Missed == "" {
		s.Missed = trigger.MissedFireOnce
	}
	if s.Missed != trigger.MissedSkip && s.Missed != trigger.MissedFireOnce {
		return nil, badSchedule("missedFirePolicy is skip or fire-once")
	}
	if s.Timezone == "" {
		s.Timezone = "UTC"
	}
	if (given.Cron == "") == (given.At == "") {
		return nil, badSchedule("give one of cron and at")
	}
	var err error
	if s.First, err = firstSlot(s, given.At, now); err != nil {
		return nil, err
	}
	if s.First.Sub(now) > MaxFutureHorizon {
		return nil, &trigger.InvalidError{Code: CodeHorizon, Message: "the first tick lies further ahead than " + HorizonText}
	}
	return s, nil
}

func firstSlot(s *trigger.Schedule, at string, now time.Time) (time.Time, error) {
	if s.Cron == "" {
		first, err := time.Parse(time.RFC3339, at)
		if err != nil || first.Before(now.Add(-time.Minute)) {
			return time.Time{}, badSchedule("at is a time to come, in RFC 3339")
		}
		return first.UTC(), nil
	}
	c, err := schedule.Parse(s.Cron, s.Timezone)
	if err != nil {
		return time.Time{}, badSchedule(err.Error())
	}
	first, ok := c.Next(now)
	if !ok {
		return time.Time{}, badSchedule("the expression names no time that comes")
	}
	return first, nil
}

// DueSchedules lists schedules whose slot has come, and how long it is until
// the next one (negative: there is none). Each is to be given to Fire, by as
// many processes as have it: one of them fires.
func (m *TriggerManager) DueSchedules(ctx context.Context, limit int) ([]trigger.DueSchedule, time.Duration, error) {
	return m.store.DueSchedules(ctx, limit)
}

// Fire deals with a slot that has come: it is fired, or passed over when it was
// missed and is to be skipped. Missed slots are fired once together, or not at
// all, and never one after the other.
func (m *TriggerManager) Fire(ctx context.Context, due trigger.DueSchedule) {
	s := due.Subscription
	next, err := nextSlot(due)
	if err != nil { // it was read when it was made: the zone is gone from this host
		m.log.Error("schedule.unreadable", append(fields(s), zap.Error(err))...)
		return
	}
	tick := trigger.Tick{SID: s.SID, Slot: due.Slot, Next: next}
	missed := due.Slot != nil && due.Now.Sub(*due.Slot) > missedAfter
	if due.Slot == nil || missed && due.Missed == trigger.MissedSkip {
		moved, err := m.store.PassTick(ctx, tick)
		if err != nil {
			m.log.Warn("schedule.unavailable", append(fields(s), zap.Error(err))...)
		} else if moved && due.Slot != nil {
			m.log.Info("schedule.skipped", append(fields(s), zap.Time("slot", *due.Slot))...)
		}
		return
	}
	result, err := m.Ingest(ctx, s.ID, tickCall(due, &tick, missed))
	switch {
	case errors.Is(err, trigger.ErrConflict): // another process fired it, or the subscription changed
	case err != nil:
		m.log.Warn("schedule.unavailable", append(fields(s), zap.Error(err))...)
	default:
		m.log.Info("schedule.fired", append(fields(s), zap.Time("slot", *due.Slot), zap.Bool("catch_up", missed), zap.Strings("event_ids", result.EventIDs))...)
	}
}

// nextSlot gives the slot after this one; after now when slots were missed. nil:
// there is none.
func nextSlot(due trigger.DueSchedule) (*time.Time, error) {
	if due.Cron == "" {
		return nil, nil
	}
	c, err := schedule.Parse(due.Cron, due.Timezone)
	if err != nil {
		return nil, err
	}
	from := due.Now
	if due.Slot != nil && due.Now.Sub(*due.Slot) <= missedAfter {
		from = *due.Slot
	}
	next, ok := c.Next(from)
	if !ok {
		return nil, nil
	}
	return &next, nil
}

// tickCall is a tick as the call that the manager ingests.
func tickCall(due trigger.DueSchedule, tick *trigger.Tick, catchUp bool) *trigger.Call {
	body, _ := json.Marshal(struct { //nolint:errchkjson // texts and times
		FiredAt      time.Time `json:"firedAt"`
		ScheduledFor time.Time `json:"scheduledFor"`
		Cron         string    `json:"cron,omitempty"`
		Timezone     string    `json:"timezone"`
		IsCatchUp    bool      `json:"isCatchUp"`
	}{due.Now.UTC(), due.Slot.UTC(), due.Cron, due.Timezone, catchUp})
	return &trigger.Call{
		Source: trigger.SourceSchedule, Header: []trigger.Field{{Name: "content-type", Value: "application/json"}}, Body: body, Tick: tick,
	}
}

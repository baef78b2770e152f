package manager

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// maxPollWait bounds how far apart the checks of a failing poll grow.
const maxPollWait = time.Hour

// DuePolls takes checks that are due (amendment §Polling), across processes one
// an interval. Each must be given to Poll.
func (m *TriggerManager) DuePolls(ctx context.Context, limit int) ([]*trigger.DuePoll, error) {
	// A check ends with its hook's limit; the rest of the lease is for the commit.
	return m.store.ClaimPolls(ctx, limit, m.limits.Wall+time.Minute)
}

// Poll makes one check: it runs poll, and commits its events together with
// nextState. A check that fails moves nothing, and the next one comes later.
func (m *TriggerManager) Poll(ctx context.Context, poll *trigger.DuePoll) {
	started := time.Now()
	events, failure := m.poll(ctx, poll)
	wait := time.Duration(-1)
	if failure != nil {
		wait = pollWait(poll)
	}
	// What was checked is recorded also when the process is about to end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	held, err := m.store.EndPoll(ctx, poll, failure, wait)
	log := append(fields(poll.Subscription), zap.Int("events", events), zap.Int64("duration_ms", time.Since(started).Milliseconds()))
	switch {
	case err != nil:
		m.log.Warn("poll.unrecorded", append(log, zap.Error(err))...) // its lease runs out
	case !held:
		m.log.Warn("poll.lease_lost", log...)
	case failure != nil:
		m.log.Warn("poll.failed", append(log, zap.String("error.code", failure.Code), zap.String("error", failure.Message), zap.Int64("next_in_ms", wait.Milliseconds()))...)
	default:
		m.log.Info("poll.checked", log...)
	}
}

// pollWait doubles with each failure in a row.
func pollWait(poll *trigger.DuePoll) time.Duration {
	return max(poll.Interval, min(poll.Interval<<min(poll.Failures+1, 10), maxPollWait))
}

func (m *TriggerManager) poll(ctx context.Context, poll *trigger.DuePoll) (int, *trigger.StepError) {
	s := poll.Subscription
	def, err := m.apps.Trigger(s.AppID, s.TriggerKey)
	if err != nil {
		return 0, &trigger.StepError{Code: codeOf(err), Message: "the app or its trigger is not loaded", Phase: "resolution"}
	}
	result, err := m.invoke(ctx, def, s.Tenant, s.ConnectionID, trigger.HookPoll, hook.Call{
		Input: object("params", orNull(s.Params), "state", orNull(s.State), "subscriptionId", quote(s.ID.Reveal())),
	})
	if err != nil {
		failure, _ := stepError(err, "execute")
		return 0, failure
	}
	record, err := pollRecord(s, def, result.Output)
	if err != nil {
		return 0, &trigger.StepError{Code: hook.CodeReturnedInvalid, Message: "poll: " + err.Error(), Phase: "output"}
	}
	if len(record.Events) == 0 && record.NextState == nil {
		return 0, nil
	}
	if _, err := m.store.SaveCall(ctx, record); err != nil {
		return 0, &trigger.StepError{Code: "not_saved", Message: err.Error(), Phase: "output"}
	}
	return len(record.Events), nil
}

// pollRecord reads {events, nextState?}.
func pollRecord(s *trigger.Subscription, def *trigger.Definition, output json.RawMessage) (*trigger.CallRecord, error) {
	var answer struct {
		Events    *[]json.RawMessage `json:"events"`
		NextState json.RawMessage    `json:"nextState"`
	}
	if err := json.Unmarshal(output, &answer); err != nil || answer.Events == nil {
		return nil, errors.New("want {events: […], nextState?}")
	}
	record := &trigger.CallRecord{
		Subscription: s, AppVersion: def.AppVersion, Call: &trigger.Call{Source: trigger.SourcePoll}, NextState: answer.NextState,
	}
	for _, event := range *answer.Events {
		record.Events = append(record.Events, trigger.EventRecord{Normalized: event})
	}
	return record, nil
}

package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// reingestWindow is how long a call's second ingest is told from its first.
const reingestWindow = 366 * 24 * time.Hour

// Reingest runs a stored call whose ingest parser threw through handleIngest
// once more (DESIGN §5): its events are new rows of the same call. The parser
// sees the call as it is stored, credentials masked. A call that failed
// verification can never run. Doing it twice gives the first one's events.
// Errors: trigger.ErrUnknownEvent, trigger.ErrNotReingestable, and Ingest's.
func (m *TriggerManager) Reingest(ctx context.Context, tenant, eventID string) (trigger.IngestResult, error) {
	event, err := m.store.Event(ctx, tenant, eventID)
	if err != nil {
		return trigger.IngestResult{}, err
	}
	if event.Status != trigger.StatusFailed || event.Reason != trigger.ReasonParserFailed || event.Call == nil {
		return trigger.IngestResult{}, trigger.ErrNotReingestable
	}
	for range ingestTries {
		result, err := m.reingest(ctx, event)
		if !errors.Is(err, trigger.ErrConflict) {
			return result, err
		}
	}
	return trigger.IngestResult{}, trigger.ErrUnavailable
}

func (m *TriggerManager) reingest(ctx context.Context, event *trigger.EventDetail) (trigger.IngestResult, error) {
	s, err := m.store.SubscriptionForCall(ctx, event.Subscription)
	if errors.Is(err, trigger.ErrUnknownSubscription) {
		return trigger.IngestResult{}, trigger.ErrNotReingestable // it has ended: nothing would ever run
	}
	if err != nil {
		return trigger.IngestResult{}, err
	}
	record := &trigger.CallRecord{Subscription: s, Of: event.CallID, Call: storedAsCall(event)}
	if _, err := m.parse(ctx, record); err != nil { // nobody waits for the response any more
		return trigger.IngestResult{}, err
	}
	for i := range record.Events {
		again(&record.Events[i], event, i)
	}
	saved, err := m.store.SaveCall(ctx, record)
	if err != nil {
		return trigger.IngestResult{}, err
	}
	return trigger.IngestResult{CallID: saved.CallID, EventIDs: saved.EventIDs, Status: saved.Status, Reason: saved.Reason, Err: record.Err}, nil
}

// again makes an event one of an older call: the body lies in that call's row,
// and a second reingest is to find this event.
func again(e *trigger.EventRecord, of *trigger.EventDetail, i int) {
	if e.Normalized == nil {
		e.Normalized = of.Call.Body
	}
	if e.DedupKey == "" {
		e.DedupKey, e.DedupWindow = fmt.Sprintf("reingest %s %d", of.CallID, i), reingestWindow
	}
}

func storedAsCall(event *trigger.EventDetail) *trigger.Call {
	c := event.Call
	return &trigger.Call{
		Source: c.Source, Method: c.Method, Path: c.Path, RawQuery: c.RawQuery, Header: c.Header, Body: c.Body, Trace: event.Trace,
	}
}

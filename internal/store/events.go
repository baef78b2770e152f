package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Events lists a subscription's history, newest first, and gives the next
// page's cursor. status may be empty.
func (db *DB) Events(ctx context.Context, tenant string, id trigger.SubscriptionID, status trigger.Status, page trigger.Page) ([]trigger.EventSummary, string, error) {
	s, err := db.Subscription(ctx, tenant, id)
	if err != nil {
		return nil, "", err
	}
	rows, err := db.queries.EventsOfSubscription(ctx, db.pool, &dbsqlc.EventsOfSubscriptionParams{
		Sid: s.SID, Tenant: tenant, Before: page.Cursor, Status: string(status), MaxRows: int32(page.Size() + 1),
	})
	if err != nil {
		return nil, "", failed("list events", err)
	}
	next := ""
	if len(rows) > page.Size() {
		rows = rows[:page.Size()]
		next = rows[len(rows)-1].TriggerEventStatus.EventID
	}
	list := make([]trigger.EventSummary, len(rows))
	for i, row := range rows {
		list[i] = summary(&row.TriggerEventStatus, subscriptionColumns{row.SubscriptionID, row.WorkflowID, row.Delivery, row.Lifecycle})
	}
	return list, next, nil
}

// subscriptionColumns are what an event's row takes from its subscription.
type subscriptionColumns struct{ id, workflowID, delivery, lifecycle string }

func summary(v *dbsqlc.TriggerEventStatus, s subscriptionColumns) trigger.EventSummary {
	e := trigger.EventSummary{
		ID: v.EventID, CallID: v.CallID, SID: v.Sid, Tenant: v.Tenant, Status: trigger.Status(v.Status),
		Reason: trigger.Reason(orEmpty(v.Reason)), Attempts: int(v.Attempts), ReceivedAt: v.ReceivedAt, RunID: orEmpty(v.RunID),
		DuplicateOf: orEmpty(v.DuplicateOf), Source: trigger.Source(v.Source), AppVersion: orEmpty(v.AppVersion),
		LastErrorCode: orEmpty(v.ErrorCode), LastError: orEmpty(v.Error),
		Subscription: trigger.SubscriptionID(s.id), WorkflowID: s.workflowID,
		Delivery: trigger.DeliveryState(s.delivery), Lifecycle: trigger.Lifecycle(s.lifecycle),
	}
	switch e.Status {
	case trigger.StatusDispatched:
		e.DispatchedAt = v.EndedAt
	case trigger.StatusReceived:
		e.NextAttemptAt = v.DueAt
	case trigger.StatusDispatching:
		e.ClaimOwner, e.ClaimExpiresAt = orEmpty(v.ClaimOwner), v.LeaseUntil
	case trigger.StatusFailed, trigger.StatusIgnored:
	}
	if stored := readError(v.IngestError); stored.Code != "" {
		e.LastErrorCode, e.LastError = stored.Code, stored.Message
	}
	return e
}

func readError(column *string) (stored storedError) {
	if column != nil {
		_ = json.Unmarshal([]byte(*column), &stored) // we wrote it; an empty error is the fallback
	}
	return stored
}

// Event gives everything known of one event; trigger.ErrUnknownEvent when the
// tenant has none of that id.
func (db *DB) Event(ctx context.Context, tenant, eventID string) (*trigger.EventDetail, error) {
	row, err := db.queries.EventByID(ctx, db.pool, &dbsqlc.EventByIDParams{EventID: eventID, Tenant: tenant})
	if err != nil {
		return nil, notFound("get event", err, trigger.ErrUnknownEvent)
	}
	v := &row.TriggerEventStatus
	detail := &trigger.EventDetail{
		EventSummary: summary(v, subscriptionColumns{row.SubscriptionID, row.WorkflowID, row.Delivery, row.Lifecycle}),
		Trace:        orEmpty(row.Traceparent),
		ErrorStack:   readError(v.IngestError).Stack,
		ErrorPhase:   readError(v.IngestError).Phase,
	}
	detail.AttemptsAllowed = trigger.MaxAttempts
	if row.MaxAttempts.Valid {
		detail.AttemptsAllowed = int(row.MaxAttempts.Int16)
	}
	if detail.Normalized, err = db.normalized(row.Normalized, row.Body, row.HasEvent); err != nil {
		return nil, failed("get event", err)
	}
	if detail.Call, err = db.StoredCall(ctx, eventID); err != nil {
		return nil, err
	}
	if detail.AttemptLog, err = db.attempts(ctx, v); err != nil {
		return nil, err
	}
	// The view has the last error of an event that is over; one that waits has
	// it in its last attempt.
	if n := len(detail.AttemptLog); detail.LastErrorCode == "" && n > 0 {
		detail.LastErrorCode, detail.LastError = detail.AttemptLog[n-1].Code, detail.AttemptLog[n-1].Message
	}
	return detail, nil
}

// normalized gives the event: its own column, else the call's body.
func (db *DB) normalized(column, body []byte, hasEvent bool) (json.RawMessage, error) {
	switch {
	case !hasEvent:
		return nil, nil
	case column != nil:
		return db.open(sealNormalized, column)
	}
	return db.open(sealBody, body)
}

// attempts lists the attempts of an event, the one that started its run last.
func (db *DB) attempts(ctx context.Context, v *dbsqlc.TriggerEventStatus) ([]trigger.Attempt, error) {
	rows, err := db.queries.EventAttempts(ctx, db.pool, v.EventID)
	if err != nil {
		return nil, failed("list attempts", err)
	}
	list := make([]trigger.Attempt, 0, len(rows)+1)
	for _, row := range rows {
		list = append(list, trigger.Attempt{
			ID: row.AttemptID, Attempt: int(row.Attempt), Outcome: row.Outcome, Code: row.ErrorCode, Message: row.Error,
			EndedAt: row.EndedAt, Duration: time.Duration(row.DurationMs) * time.Millisecond,
		})
	}
	if trigger.Status(v.Status) == trigger.StatusDispatched && v.EndedAt != nil {
		list = append(list, trigger.Attempt{
			ID: orEmpty(v.AttemptID), Attempt: int(v.Attempts), Outcome: trigger.AttemptDelivered, RunID: orEmpty(v.RunID),
			EndedAt: *v.EndedAt, Duration: time.Duration(v.DurationMs.Int32) * time.Millisecond,
		})
	}
	return list, nil
}

// StoredCall reads the masked call that an event came with.
func (db *DB) StoredCall(ctx context.Context, eventID string) (*trigger.StoredCall, error) {
	row, err := db.queries.EventCall(ctx, db.pool, eventID)
	if err != nil {
		return nil, notFound("get call", err, trigger.ErrUnknownEvent)
	}
	body, err := db.open(sealBody, row.Body)
	if err != nil {
		return nil, failed("get call", err)
	}
	call := &trigger.StoredCall{
		Source: trigger.Source(row.Source), Method: orEmpty(row.Method), Path: orEmpty(row.Path), RawQuery: orEmpty(row.RawQuery),
		Body: body, ReceivedAt: row.ReceivedAt, Verification: json.RawMessage(orEmpty(row.Verification)),
	}
	if call.Path == "" && call.Method != "" {
		call.Path = trigger.CallbackPath + row.SubscriptionID
	}
	var pairs [][2]string
	if row.Headers != nil {
		if err := json.Unmarshal([]byte(*row.Headers), &pairs); err != nil {
			return nil, failed("get call", err)
		}
	}
	for _, pair := range pairs {
		call.Header = append(call.Header, trigger.Field{Name: pair[0], Value: pair[1]})
	}
	return call, nil
}

package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// ClaimDue claims due events, at most one claim a subscription at any time
// (RFC §drainPending). It walks the subscriptions in turn, so that a busy one
// does not keep the others waiting, and gives up after one round.
func (db *DB) ClaimDue(ctx context.Context, request trigger.ClaimRequest) ([]*trigger.PendingEvent, error) {
	start := db.cursor.Load()
	after, wrapped := start, false
	for {
		lanes, events, err := db.claimFrom(ctx, request, after)
		if err != nil {
			return nil, failed("claim events", err)
		}
		next := lanes.LastDue
		if int(lanes.DueLanes) < request.Limit { // all of what was looked at
			next = lanes.ScannedTo
		}
		if lanes.AtEnd && int(lanes.DueLanes) < request.Limit {
			next = 0
		}
		db.cursor.Store(next)
		if len(events) > 0 {
			return events, nil
		}
		if next == 0 || next < after {
			if wrapped || start == 0 {
				return nil, nil
			}
			wrapped = true
		}
		if wrapped && next >= start {
			return nil, nil
		}
		after = next
	}
}

// claimFrom claims from the subscriptions behind after, in one round trip and
// one implicit transaction.
func (db *DB) claimFrom(ctx context.Context, request trigger.ClaimRequest, after int64) (*dbsqlc.ClaimLanesRow, []*trigger.PendingEvent, error) {
	token := ident.New(ident.Claim)
	send := &pgx.Batch{}
	send.Queue(dbsqlc.ClaimLanes, after, int32(2*request.Limit+64), int32(request.Limit))
	send.Queue(dbsqlc.ClaimEvents, int64(request.Limit), int64(max(request.PerSubscription, 1)), noNil(request.Serial),
		token, request.Owner, request.Lease.Milliseconds())
	results := db.pool.SendBatch(ctx, send)
	defer func() { _ = results.Close() }()

	rows, err := results.Query()
	if err != nil {
		return nil, nil, err
	}
	lanes, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[dbsqlc.ClaimLanesRow])
	if err != nil {
		return nil, nil, err
	}
	rows, err = results.Query()
	if err != nil {
		return nil, nil, err
	}
	claimed, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[dbsqlc.ClaimEventsRow])
	if err != nil {
		return nil, nil, err
	}
	if err := results.Close(); err != nil {
		return nil, nil, err
	}
	return lanes, db.pendingEvents(claimed, token), nil
}

func noNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func (db *DB) pendingEvents(rows []*dbsqlc.ClaimEventsRow, token string) []*trigger.PendingEvent {
	events := make([]*trigger.PendingEvent, len(rows))
	for i, row := range rows {
		events[i] = &trigger.PendingEvent{
			ID: row.EventID, SID: row.Sid, Subscription: trigger.SubscriptionID(row.SubscriptionID), Tenant: row.Tenant,
			WorkflowID: row.WorkflowID, AppID: row.AppID, TriggerKey: row.TriggerKey, ConnectionID: orEmpty(row.ConnectionID),
			Source: trigger.Source(row.Source), ReceivedAt: row.ReceivedAt, Attempts: int(row.Attempts),
			Age: time.Duration(row.AgeUs) * time.Microsecond, Trace: orEmpty(row.Traceparent),
			Surface: trigger.Surface(row.Surface), Retry: retryPolicy(row.MaxAttempts, row.Backoff), DedupKey: orEmpty(row.DedupKey),
			Claim: trigger.Claim{SID: row.Sid, Token: token},
		}
		purpose := sealNormalized
		if row.IsBody {
			purpose = sealBody
		}
		payload, err := db.open(purpose, row.Payload)
		if err != nil {
			// The event is whole, this process lacks the key: the start will
			// fail with a code that says so.
			db.log.Error("event.unreadable", zap.String("event_id", row.EventID), zap.Error(err))
			continue
		}
		events[i].Normalized = payload
	}
	return events
}

// Settle ends claims (RFC §markDispatched). A claim's outcomes must come
// together. Events whose claim is no longer held are left untouched and
// returned.
func (db *DB) Settle(ctx context.Context, outcomes []trigger.Outcome) ([]*trigger.PendingEvent, error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	held, err := db.queries.ClaimSettle(ctx, db.pool, settleParams(outcomes))
	if err != nil {
		return nil, failed("settle claims", err)
	}
	if slices.ContainsFunc(outcomes, func(o trigger.Outcome) bool { return o.Event.Surface == trigger.SurfaceOpenWOP }) {
		db.ringOutcomes(ctx)
	}
	holds := make(map[trigger.Claim]bool, len(held))
	for _, row := range held {
		holds[trigger.Claim{SID: row.Sid, Token: row.Token}] = true
	}
	var lost []*trigger.PendingEvent
	for _, outcome := range outcomes {
		if !holds[outcome.Event.Claim] {
			lost = append(lost, outcome.Event)
		}
	}
	return lost, nil
}

func settleParams(outcomes []trigger.Outcome) *dbsqlc.ClaimSettleParams {
	p := &dbsqlc.ClaimSettleParams{BreakAfter: trigger.BreakAfter}
	for i := range outcomes {
		o := &outcomes[i]
		event := o.Event
		attempt := event.Attempts + 1
		kind, wait := outcomeOf(o, attempt)
		if kind == outcomeUnattempted {
			attempt = event.Attempts
		}
		code, message := "", ""
		if o.Err != nil {
			code, message = o.Err.Code, cleanText(o.Err.Message)
		}
		p.Sids = append(p.Sids, event.SID)
		p.Tokens = append(p.Tokens, event.Claim.Token)
		p.EventIds = append(p.EventIds, event.ID)
		p.ReceivedAts = append(p.ReceivedAts, event.ReceivedAt)
		p.Tenants = append(p.Tenants, event.Tenant)
		p.Outcomes = append(p.Outcomes, kind)
		p.Attempts = append(p.Attempts, int16(attempt))
		p.AttemptIds = append(p.AttemptIds, o.AttemptID)
		p.RunIds = append(p.RunIds, cleanText(o.RunID))
		p.ErrorCodes = append(p.ErrorCodes, cleanText(code))
		p.Errors = append(p.Errors, message)
		p.DurationsMs = append(p.DurationsMs, int32(min(o.Duration.Milliseconds(), 1<<30)))
		p.WaitsMs = append(p.WaitsMs, wait.Milliseconds())
	}
	return p
}

const outcomeUnattempted = "unattempted"

// outcomeOf applies the retry policy (RFC §Retry backoff).
func outcomeOf(o *trigger.Outcome, attempt int) (string, time.Duration) {
	switch {
	case o.Unattempted:
		return outcomeUnattempted, 0
	case o.Err == nil:
		return trigger.AttemptDelivered, 0
	}
	if wait, again := o.Event.RetryAfter(attempt); again && o.Err.Retryable {
		return trigger.AttemptRetrying, wait
	}
	return trigger.AttemptDeadLettered, 0
}

// RenewClaims lengthens the claims of starts in flight and gives the tokens of
// those that are lost. Claims made together share a token, so each is named by
// subscription and token.
func (db *DB) RenewClaims(ctx context.Context, claims []trigger.Claim, lease time.Duration) ([]trigger.Claim, error) {
	p := &dbsqlc.ClaimRenewParams{LeaseMs: lease.Milliseconds()}
	for _, claim := range claims {
		p.Sids, p.Tokens = append(p.Sids, claim.SID), append(p.Tokens, claim.Token)
	}
	kept, err := db.queries.ClaimRenew(ctx, db.pool, p)
	if err != nil {
		return nil, failed("renew claims", err)
	}
	held := make(map[trigger.Claim]bool, len(kept))
	for _, row := range kept {
		held[trigger.Claim{SID: row.Sid, Token: row.Token}] = true
	}
	var lost []trigger.Claim
	for _, claim := range claims {
		if !held[claim] {
			lost = append(lost, claim)
		}
	}
	return lost, nil
}

// ReapExpired gives back what dead dispatchers held. The lost attempt counts,
// and waits from the lease's end.
func (db *DB) ReapExpired(ctx context.Context) ([]trigger.LostAttempt, error) {
	waits := make([]int64, trigger.MaxAttempts)
	for i := range waits {
		waits[i] = trigger.RetryWait(i + 1).Milliseconds()
	}
	rows, err := db.queries.ClaimReap(ctx, db.pool, &dbsqlc.ClaimReapParams{
		MaxAttempts: trigger.MaxAttempts, WaitsMs: waits,
		BaseMs: trigger.PolicyDelay.Milliseconds(), CeilingMs: trigger.PolicyCeiling.Milliseconds(),
	})
	if err != nil {
		return nil, failed("reap claims", err)
	}
	if _, err := db.queries.QueueSweepEnded(ctx, db.pool); err != nil {
		return nil, failed("sweep ended subscriptions", err)
	}
	lost := make([]trigger.LostAttempt, len(rows))
	for i, row := range rows {
		lost[i] = trigger.LostAttempt{EventID: row.EventID, SID: row.Sid, Owner: row.Owner, Attempt: int(row.Attempt)}
	}
	return lost, nil
}

// Peek is one cheap look at the queue.
func (db *DB) Peek(ctx context.Context) (trigger.DuePeek, error) {
	row, err := db.queries.QueuePeek(ctx, db.pool)
	if err != nil {
		return trigger.DuePeek{}, failed("peek at the queue", err)
	}
	return trigger.DuePeek{Due: row.Due, Expired: row.Expired, Next: max(0, time.Duration(row.NextMs)*time.Millisecond)}, nil
}

// maxBacklog bounds what Backlog counts.
const maxBacklog = 100_000

// Backlog counts the due events, up to 100,000, and gives the oldest one's age.
func (db *DB) Backlog(ctx context.Context) (int64, time.Duration, error) {
	row, err := db.queries.QueueBacklog(ctx, db.pool, maxBacklog)
	if err != nil {
		return 0, 0, failed("count the backlog", err)
	}
	return row.Due, time.Duration(row.OldestMs) * time.Millisecond, nil
}

// Requeue puts a dead-lettered event back, attempts from 0 (RFC §Retry
// backoff). trigger.ErrNotRequeueable when it is not failed, has no normalized
// event or its subscription is gone; one of several at once wins.
func (db *DB) Requeue(ctx context.Context, tenant, eventID string) error {
	n, err := db.queries.EventRequeue(ctx, db.pool, &dbsqlc.EventRequeueParams{EventID: eventID, Tenant: tenant})
	if err != nil {
		return failed("requeue event", err)
	}
	if n == 1 {
		db.bell.after()
		return nil
	}
	if _, err := db.Event(ctx, tenant, eventID); errors.Is(err, trigger.ErrUnknownEvent) {
		return err
	} else if err != nil {
		return failed("requeue event", err)
	}
	return trigger.ErrNotRequeueable
}

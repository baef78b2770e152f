package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/db"
	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// storedOpenWOP is the openwop column's JSON.
type storedOpenWOP struct {
	DedupEnabled bool            `json:"dedupEnabled"`
	Verification string          `json:"verification"`
	InputMapping json.RawMessage `json:"inputMapping,omitempty"`
	Fingerprint  string          `json:"fingerprint,omitempty"`
}

// reserveOpenWOP fills in what a row of that surface has beyond others, and the
// secret's fingerprint.
func (db *DB) reserveOpenWOP(s *trigger.Subscription, p *dbsqlc.SubscriptionReserveParams) {
	if s.Retry != nil {
		p.MaxAttempts = pgtype.Int2{Int16: int16(s.Retry.MaxAttempts), Valid: true} // at most MaxPolicyAttempts
		p.Backoff = orNil(string(s.Retry.Backoff))
	}
	if s.OpenWOP == nil {
		return
	}
	if s.OpenWOP.Secret != "" {
		key := []byte(s.OpenWOP.Secret.Reveal())
		s.OpenWOP.Fingerprint = db.keys.Fingerprint(key)
		p.IngestSecret = db.keys.Seal(sealSecret, key)
	}
	text, _ := json.Marshal(storedOpenWOP{ //nolint:errchkjson // the one RawMessage was read from a request
		s.OpenWOP.DedupEnabled, string(s.OpenWOP.Verification), s.OpenWOP.InputMapping, s.OpenWOP.Fingerprint,
	})
	column := string(text)
	p.Openwop = &column
}

func retryPolicy(attempts pgtype.Int2, backoff *string) *trigger.RetryPolicy {
	if !attempts.Valid {
		return nil
	}
	return &trigger.RetryPolicy{MaxAttempts: int(attempts.Int16), Backoff: trigger.Backoff(orEmpty(backoff))}
}

func (db *DB) openwop(row *dbsqlc.Subscription) (*trigger.OpenWOP, error) {
	if row.Openwop == nil {
		return nil, nil
	}
	var stored storedOpenWOP
	if err := json.Unmarshal([]byte(*row.Openwop), &stored); err != nil {
		return nil, err
	}
	key, err := db.open(sealSecret, row.IngestSecret)
	if err != nil {
		return nil, err
	}
	return &trigger.OpenWOP{
		DedupEnabled: stored.DedupEnabled, Verification: trigger.VerificationMode(stored.Verification),
		InputMapping: stored.InputMapping, Fingerprint: stored.Fingerprint, Secret: trigger.IngestSecret(key),
	}, nil
}

// changeDelivery writes a change of state and its record. A schedule that comes
// back starts afresh.
func (db *DB) changeDelivery(ctx context.Context, tx pgx.Tx, sid int64, from, to trigger.DeliveryState) (*dbsqlc.Subscription, error) {
	row, err := db.queries.SubscriptionSetDelivery(ctx, tx, &dbsqlc.SubscriptionSetDeliveryParams{Sid: sid, Delivery: string(to)})
	if err != nil {
		return nil, err
	}
	reason := ""
	if to == trigger.DeliveryPaused {
		reason = trigger.ChangeOperatorPaused
	}
	err = db.queries.SubscriptionNoteChange(ctx, tx, &dbsqlc.SubscriptionNoteChangeParams{
		ChangeID: ident.New(ident.Change), Sid: sid, FromState: string(from), ToState: string(to), Reason: orNil(reason),
	})
	if err != nil || to != trigger.DeliveryActive {
		return row, err
	}
	return row, db.queries.ScheduleRenew(ctx, tx, sid)
}

// maxChanges bounds one list of changes.
const maxChanges = 1000

// StateChanges lists the changes of a subscription's delivery state, oldest
// first.
func (db *DB) StateChanges(ctx context.Context, sid int64) ([]trigger.StateChange, error) {
	rows, err := db.queries.SubscriptionChanges(ctx, db.pool, &dbsqlc.SubscriptionChangesParams{Sid: sid, MaxRows: maxChanges})
	if err != nil {
		return nil, failed("list state changes", err)
	}
	list := make([]trigger.StateChange, len(rows))
	for i, row := range rows {
		list[i] = trigger.StateChange{
			ID: row.ChangeID, From: trigger.DeliveryState(row.FromState), To: trigger.DeliveryState(row.ToState), Reason: orEmpty(row.Reason),
			AttemptID: orEmpty(row.AttemptID), EventID: orEmpty(row.EventID), At: row.ChangedAt,
		}
	}
	return list, nil
}

// ringOutcomes wakes whoever waits for an outcome. They look by a timer, too.
func (db *DB) ringOutcomes(ctx context.Context) {
	if err := db.queries.OutcomeRing(ctx, db.pool, outcomeChannel); err != nil {
		db.log.Debug("outcome.ring_lost", zap.Error(err))
	}
}

const outcomeChannel = db.OutcomeChannel

// Outcomes tells how events ended; those that have not are left out.
func (db *DB) Outcomes(ctx context.Context, eventIDs []string) ([]trigger.EventOutcome, error) {
	rows, err := db.queries.OutcomesOf(ctx, db.pool, eventIDs)
	if err != nil {
		return nil, failed("ask for outcomes", err)
	}
	list := make([]trigger.EventOutcome, len(rows))
	for i, row := range rows {
		list[i] = trigger.EventOutcome{
			EventID: row.EventID, Status: trigger.Status(row.Status), RunID: orEmpty(row.RunID), AttemptID: orEmpty(row.AttemptID),
		}
	}
	return list, nil
}

// DeadLetters lists a subscription's dead letters within their retention,
// newest first, behind a position (nil: from the start).
func (db *DB) DeadLetters(ctx context.Context, sid int64, after *trigger.DeadLetterPosition, limit int) ([]trigger.DeadLetter, error) {
	p := &dbsqlc.DeadLetterListParams{
		Sid: sid, KeepMs: trigger.DeadLetterRetention.Milliseconds(), Before: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), MaxRows: int32(limit),
	}
	if after != nil {
		p.Before, p.BeforeID = after.At, after.AttemptID
	}
	rows, err := db.queries.DeadLetterList(ctx, db.pool, p)
	if err != nil {
		return nil, failed("list dead letters", err)
	}
	list := make([]trigger.DeadLetter, len(rows))
	for i, row := range rows {
		list[i] = trigger.DeadLetter{
			AttemptID: row.AttemptID, EventID: row.EventID, Attempt: int(row.Attempt), DedupKey: orEmpty(row.DedupKey), At: row.EndedAt,
			Refused: row.ErrorCode == string(trigger.ReasonVerificationFailed),
		}
		if row.ToState != nil {
			list[i].Change = &trigger.StateChange{
				From: trigger.DeliveryState(orEmpty(row.FromState)), To: trigger.DeliveryState(*row.ToState), Reason: orEmpty(row.Reason),
			}
		}
	}
	return list, nil
}

// Deliveries lists the newest attempts of a subscription's events.
func (db *DB) Deliveries(ctx context.Context, sid int64, limit int) ([]trigger.Delivery, error) {
	rows, err := db.queries.DeliveryList(ctx, db.pool, &dbsqlc.DeliveryListParams{Sid: sid, MaxRows: int32(limit)})
	if err != nil {
		return nil, failed("list deliveries", err)
	}
	list := make([]trigger.Delivery, len(rows))
	for i, row := range rows {
		list[i] = trigger.Delivery{
			AttemptID: row.AttemptID, EventID: row.EventID, DedupKey: orEmpty(row.DedupKey), Attempt: int(row.Attempt), Outcome: row.Outcome,
			RunID: row.RunID, At: row.EndedAt,
		}
	}
	return list, nil
}

// EventSubscription finds the subscription of an event of the tenant;
// trigger.ErrUnknownEvent when there is none.
func (db *DB) EventSubscription(ctx context.Context, tenant, eventID string) (*trigger.Subscription, error) {
	row, err := db.queries.EventOfTenant(ctx, db.pool, &dbsqlc.EventOfTenantParams{EventID: eventID, Tenant: tenant})
	if err != nil {
		return nil, notFound("find event", err, trigger.ErrUnknownEvent)
	}
	return db.SubscriptionBySID(ctx, row.Sid)
}

const idempotencyKept = 24 * time.Hour

// BeginIdempotent takes a key for the lease. When it is taken or answered
// already, the answer is not nil.
func (db *DB) BeginIdempotent(ctx context.Context, r trigger.IdempotentRequest, lease time.Duration) (*trigger.IdempotentAnswer, error) {
	for range 3 { // the holder may end between the two questions
		_, err := db.queries.IdempotencyBegin(ctx, db.pool, &dbsqlc.IdempotencyBeginParams{
			Tenant: r.Tenant, Operation: r.Operation, Key: r.Key, Digest: r.Digest, Owner: r.Owner,
			LeaseMs: lease.Milliseconds(), KeepMs: idempotencyKept.Milliseconds(),
		})
		if err == nil {
			return nil, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, failed("take idempotency key", err)
		}
		row, err := db.queries.IdempotencyGet(ctx, db.pool, &dbsqlc.IdempotencyGetParams{Tenant: r.Tenant, Operation: r.Operation, Key: r.Key})
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, failed("read idempotency key", err)
		}
		body, err := db.open(sealResponse, row.Response)
		if err != nil {
			return nil, failed("read idempotency key", err)
		}
		return &trigger.IdempotentAnswer{
			SameRequest: string(row.Digest) == string(r.Digest), Pending: row.State == "pending" || row.State == "retryable-failure",
			Status: int(row.Status), Body: body,
		}, nil
	}
	return nil, trigger.ErrConflict
}

// EndIdempotent keeps the answer of a request. One that says try again frees
// the key for the same request; one that is not to be kept frees it for any.
func (db *DB) EndIdempotent(ctx context.Context, r trigger.IdempotentRequest, status int, body []byte) error {
	p := &dbsqlc.IdempotencyEndParams{Tenant: r.Tenant, Operation: r.Operation, Key: r.Key, Owner: r.Owner, Status: int32(status)}
	switch {
	case status == 400, status == 401, status == 403:
		err := db.queries.IdempotencyDrop(ctx, db.pool, &dbsqlc.IdempotencyDropParams{Tenant: r.Tenant, Operation: r.Operation, Key: r.Key, Owner: r.Owner})
		if err != nil {
			return failed("free idempotency key", err)
		}
		return nil
	case status == 429, status >= 500:
		p.State = "retryable-failure"
	case status >= 400:
		p.State, p.Response = "terminal-failure", db.keys.Seal(sealResponse, body)
	default:
		p.State, p.Response = "completed", db.keys.Seal(sealResponse, body)
	}
	if _, err := db.queries.IdempotencyEnd(ctx, db.pool, p); err != nil {
		return failed("keep idempotent answer", err)
	}
	return nil
}

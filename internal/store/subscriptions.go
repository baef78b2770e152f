package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// ReserveSubscription writes the row before onSubscribe runs and fills in SID,
// Version, Lifecycle and the times.
func (db *DB) ReserveSubscription(ctx context.Context, s *trigger.Subscription) error {
	if s.Surface == "" {
		s.Surface = trigger.SurfaceW6W
	}
	if s.Source == "" {
		s.Source = trigger.SourceWebhook
	}
	p := &dbsqlc.SubscriptionReserveParams{
		ID: s.ID.Reveal(), Tenant: s.Tenant, AppID: s.AppID, TriggerKey: s.TriggerKey, ConnectionID: orNil(s.ConnectionID),
		WorkflowID: s.WorkflowID, Params: db.keys.Seal(sealParams, orObject(s.Params)), Host: db.sealHost(s.Host),
		Surface: string(s.Surface), Source: string(s.Source),
	}
	db.reserveOpenWOP(s, p)
	row, err := db.queries.SubscriptionReserve(ctx, db.pool, p)
	if err != nil {
		return failed("reserve subscription", err)
	}
	s.SID, s.Version, s.CreatedAt, s.UpdatedAt = row.Sid, row.Version, row.CreatedAt, row.UpdatedAt
	s.Delivery, s.Lifecycle = trigger.DeliveryActive, trigger.LifecycleReserved
	return nil
}

func (db *DB) sealHost(text json.RawMessage) []byte {
	if len(text) == 0 {
		return nil
	}
	return db.keys.Seal(sealHostData, text)
}

func orObject(text json.RawMessage) []byte {
	if len(text) == 0 {
		return []byte("{}")
	}
	return text
}

// ActivateSubscription makes a reserved row live with the state that
// onSubscribe returned. trigger.ErrConflict when it is no longer reserved.
func (db *DB) ActivateSubscription(ctx context.Context, s *trigger.Subscription, state json.RawMessage) error {
	var row *dbsqlc.SubscriptionActivateRow
	err := db.inTx(ctx, func(tx pgx.Tx) (err error) {
		row, err = db.queries.SubscriptionActivate(ctx, tx, &dbsqlc.SubscriptionActivateParams{
			Sid: s.SID, HookState: db.keys.Seal(sealState, state),
		})
		if err != nil {
			return err
		}
		if err := db.schedule(ctx, tx, s); err != nil || s.PollInterval == 0 {
			return err
		}
		return db.queries.PollSchedule(ctx, tx, &dbsqlc.PollScheduleParams{Sid: s.SID, IntervalMs: s.PollInterval.Milliseconds()})
	})
	if err != nil {
		return notFound("activate subscription", err, trigger.ErrConflict)
	}
	db.cache.forget(s.ID)
	s.State, s.Lifecycle, s.Version, s.UpdatedAt = state, trigger.LifecycleLive, row.Version, row.UpdatedAt
	// What came in while it was reserved is due now.
	db.bell.after()
	return nil
}

// AbandonSubscription turns a reserved row into a tombstone, and the calls
// stored meanwhile into ignored ones.
func (db *DB) AbandonSubscription(ctx context.Context, s *trigger.Subscription) error {
	return db.endSubscription(ctx, s, trigger.LifecycleFailed)
}

// DeleteSubscription turns a live row into a tombstone. Its open events are
// ignored; what is being started this moment ends as it ends.
func (db *DB) DeleteSubscription(ctx context.Context, s *trigger.Subscription) error {
	return db.endSubscription(ctx, s, trigger.LifecycleDeleted)
}

func (db *DB) endSubscription(ctx context.Context, s *trigger.Subscription, to trigger.Lifecycle) error {
	_, err := db.queries.SubscriptionEnd(ctx, db.pool, &dbsqlc.SubscriptionEndParams{Sid: s.SID, Lifecycle: string(to)})
	if err != nil {
		return notFound("end subscription", err, trigger.ErrUnknownSubscription)
	}
	db.cache.forget(s.ID)
	if err := db.queries.PollForget(ctx, db.pool, s.SID); err != nil {
		return failed("end subscription", err)
	}
	if err := db.queries.ScheduleForget(ctx, db.pool, s.SID); err != nil {
		return failed("end subscription", err)
	}
	if _, err := db.queries.QueueSweepEnded(ctx, db.pool); err != nil {
		return failed("end subscription", err)
	}
	return nil
}

// SetDelivery changes the delivery state of a live row and notes the change.
// trigger.ErrIllegalState when there is no such transition.
func (db *DB) SetDelivery(ctx context.Context, tenant string, id trigger.SubscriptionID, to trigger.DeliveryState) (*trigger.Subscription, error) {
	var row *dbsqlc.Subscription
	err := db.inTx(ctx, func(tx pgx.Tx) error {
		held, err := db.queries.SubscriptionLock(ctx, tx, &dbsqlc.SubscriptionLockParams{Tenant: tenant, ID: id.Reveal()})
		if err != nil {
			return err
		}
		from := trigger.DeliveryState(held.Delivery)
		if from == to {
			row, err = db.queries.SubscriptionBySID(ctx, tx, held.Sid)
			return err
		}
		if !from.CanBecome(to) {
			return trigger.ErrIllegalState
		}
		row, err = db.changeDelivery(ctx, tx, held.Sid, from, to)
		return err
	})
	if errors.Is(err, trigger.ErrIllegalState) {
		return nil, err
	}
	if err != nil {
		return nil, notFound("set delivery state", err, trigger.ErrUnknownSubscription)
	}
	db.cache.forget(id)
	if to == trigger.DeliveryActive {
		db.bell.after() // its backlog is due now
	}
	return db.subscription(row)
}

// SubscriptionForCall finds a live or reserved row by the id alone. It may be
// a cached copy; SaveCall refuses a stale one.
func (db *DB) SubscriptionForCall(ctx context.Context, id trigger.SubscriptionID) (*trigger.Subscription, error) {
	if s := db.cache.get(id); s != nil {
		return s, nil
	}
	row, err := db.queries.SubscriptionForCall(ctx, db.pool, id.Reveal())
	if err != nil {
		return nil, notFound("find subscription", err, trigger.ErrUnknownSubscription)
	}
	s, err := db.subscription(row)
	if err != nil {
		return nil, err
	}
	db.cache.put(s)
	return s, nil
}

// Subscription finds a live row of the tenant.
func (db *DB) Subscription(ctx context.Context, tenant string, id trigger.SubscriptionID) (*trigger.Subscription, error) {
	row, err := db.queries.SubscriptionGet(ctx, db.pool, &dbsqlc.SubscriptionGetParams{Tenant: tenant, ID: id.Reveal()})
	if err != nil {
		return nil, notFound("get subscription", err, trigger.ErrUnknownSubscription)
	}
	return db.subscription(row)
}

// SubscriptionBySID finds any row, tombstones included, by its number.
func (db *DB) SubscriptionBySID(ctx context.Context, sid int64) (*trigger.Subscription, error) {
	row, err := db.queries.SubscriptionBySID(ctx, db.pool, sid)
	if err != nil {
		return nil, notFound("get subscription", err, trigger.ErrUnknownSubscription)
	}
	return db.subscription(row)
}

// SubscriptionsForWorkflow lists the tenant's live rows, newest first, and
// gives the next page's cursor. An empty workflow lists all.
func (db *DB) SubscriptionsForWorkflow(ctx context.Context, tenant, workflow string, page trigger.Page) ([]*trigger.Subscription, string, error) {
	before := int64(math.MaxInt64)
	if page.Cursor != "" {
		var err error
		if before, err = strconv.ParseInt(page.Cursor, 36, 64); err != nil {
			return nil, "", badCursor()
		}
	}
	rows, err := db.queries.SubscriptionList(ctx, db.pool, &dbsqlc.SubscriptionListParams{
		Tenant: tenant, WorkflowID: workflow, Before: before, MaxRows: int32(page.Size() + 1),
	})
	if err != nil {
		return nil, "", failed("list subscriptions", err)
	}
	next := ""
	if len(rows) > page.Size() {
		rows = rows[:page.Size()]
		next = strconv.FormatInt(rows[len(rows)-1].Sid, 36)
	}
	list := make([]*trigger.Subscription, len(rows))
	for i, row := range rows {
		if list[i], err = db.subscription(row); err != nil {
			return nil, "", err
		}
	}
	return list, next, nil
}

func badCursor() error {
	return &trigger.InvalidError{Code: "invalid_cursor", Message: "the cursor is not one that this list gave out"}
}

func (db *DB) subscription(row *dbsqlc.Subscription) (*trigger.Subscription, error) {
	params, err := db.open(sealParams, row.Params)
	if err != nil {
		return nil, fmt.Errorf("subscription %s: %w", trigger.ShortSubscription(row.ID), err)
	}
	state, err := db.open(sealState, row.HookState)
	if err != nil {
		return nil, fmt.Errorf("subscription %s: %w", trigger.ShortSubscription(row.ID), err)
	}
	s := &trigger.Subscription{
		SID: row.Sid, ID: trigger.SubscriptionID(row.ID), Tenant: row.Tenant, AppID: row.AppID, TriggerKey: row.TriggerKey,
		ConnectionID: orEmpty(row.ConnectionID), WorkflowID: row.WorkflowID, Params: params, State: state,
		Delivery: trigger.DeliveryState(row.Delivery), Lifecycle: trigger.Lifecycle(row.Lifecycle), Version: row.Version,
		CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt,
		Surface: trigger.Surface(row.Surface), Source: trigger.Source(row.Source), Retry: retryPolicy(row.MaxAttempts, row.Backoff),
	}
	if s.Host, err = db.open(sealHostData, row.Host); err != nil {
		return nil, fmt.Errorf("subscription %s: %w", trigger.ShortSubscription(row.ID), err)
	}
	kept, err := db.open(sealKept, row.HandshakeSecret)
	if err != nil {
		return nil, fmt.Errorf("subscription %s: %w", trigger.ShortSubscription(row.ID), err)
	}
	s.HandshakeSecret = trigger.IngestSecret(kept)
	if s.OpenWOP, err = db.openwop(row); err != nil {
		return nil, fmt.Errorf("subscription %s: %w", trigger.ShortSubscription(row.ID), err)
	}
	return s, nil
}

// KeepHandshakeSecret keeps the secret that a vendor's handshake brought and
// gives the row's new version. trigger.ErrConflict when the row changed since it
// was read, or has one already.
func (db *DB) KeepHandshakeSecret(ctx context.Context, s *trigger.Subscription, value string) (int64, error) {
	defer db.cache.forget(s.ID)
	version, err := db.queries.SubscriptionKeepSecret(ctx, db.pool, &dbsqlc.SubscriptionKeepSecretParams{
		HandshakeSecret: db.keys.Seal(sealKept, []byte(value)), Sid: s.SID, Version: s.Version,
	})
	return version, notFound("keep handshake secret", err, trigger.ErrConflict)
}

// subscriptionCache spares the ingest path a query per call. Entries need no
// expiry: a commit that was decided on a stale one is refused and forgets it.
type subscriptionCache struct {
	mu   sync.RWMutex
	byID map[trigger.SubscriptionID]*trigger.Subscription
}

// maxCached bounds the cache; past it, it starts anew, which costs each
// subscription one query.
const maxCached = 10_000

func newSubscriptionCache() *subscriptionCache {
	return &subscriptionCache{byID: map[trigger.SubscriptionID]*trigger.Subscription{}}
}

func (c *subscriptionCache) get(id trigger.SubscriptionID) *trigger.Subscription {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byID[id]
}

func (c *subscriptionCache) put(s *trigger.Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byID) >= maxCached {
		clear(c.byID)
	}
	c.byID[s.ID] = s
}

func (c *subscriptionCache) forget(id trigger.SubscriptionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byID, id)
}

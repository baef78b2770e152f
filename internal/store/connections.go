package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Connection reads a connection of the tenant, its credential opened.
func (db *DB) Connection(ctx context.Context, tenant, id string) (*trigger.Connection, error) {
	row, err := db.queries.ConnectionGet(ctx, db.pool, &dbsqlc.ConnectionGetParams{Tenant: tenant, ConnectionID: id})
	if err != nil {
		return nil, notFound("get connection", err, trigger.ErrUnknownConnection)
	}
	credential, err := db.open(sealCredential, row.Credential)
	if err != nil {
		return nil, failed("get connection", err)
	}
	return &trigger.Connection{
		ID: row.ConnectionID, Tenant: row.Tenant, AppID: row.AppID, Auth: row.Auth, State: trigger.ConnectionState(row.State), Owner: row.Owner,
		Label: row.Label, Target: orNone(row.Target), Display: orNone(row.Display), Credential: credential, ExpiresAt: row.ExpiresAt,
		CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt, LastRefreshedAt: row.LastRefreshedAt, Version: row.Version,
		RefreshDue: row.RefreshDue, RefreshHeld: row.RefreshHeld, Refreshing: row.RefreshHeld && row.RefreshToken != nil, Error: row.Error,
	}, nil
}

func orNone(column *string) json.RawMessage {
	if column == nil {
		return nil
	}
	return json.RawMessage(*column)
}

// PutConnection creates a connection or replaces what is said of one; created
// tells which. Without a credential the stored one stays. trigger.ErrConflict
// when the id is taken by a connection of another app.
func (db *DB) PutConnection(ctx context.Context, c *trigger.Connection) (created bool, err error) {
	var credential []byte
	if len(c.Credential) > 0 {
		credential = db.keys.Seal(sealCredential, c.Credential)
	}
	version, err := db.queries.ConnectionPut(ctx, db.pool, &dbsqlc.ConnectionPutParams{
		Tenant: c.Tenant, ConnectionID: c.ID, AppID: c.AppID, Auth: cleanText(c.Auth), State: string(c.State), Owner: cleanText(c.Owner), Label: cleanText(c.Label),
		Target: orNil(string(c.Target)), Display: orNil(string(c.Display)), Credential: credential, ExpiresAt: c.ExpiresAt,
	})
	if err != nil {
		return false, notFound("put connection", err, trigger.ErrConflict)
	}
	return version == 1, nil
}

// DeleteConnection forgets a connection and its credential.
func (db *DB) DeleteConnection(ctx context.Context, tenant, id string) error {
	n, err := db.queries.ConnectionDelete(ctx, db.pool, &dbsqlc.ConnectionDeleteParams{Tenant: tenant, ConnectionID: id})
	if err != nil {
		return failed("delete connection", err)
	}
	if n == 0 {
		return trigger.ErrUnknownConnection
	}
	return nil
}

// SubscriptionsOfConnection lists live subscriptions that use a connection.
func (db *DB) SubscriptionsOfConnection(ctx context.Context, tenant, id string, limit int) ([]*trigger.Subscription, error) {
	rows, err := db.queries.SubscriptionsOfConnection(ctx, db.pool, &dbsqlc.SubscriptionsOfConnectionParams{
		Tenant: tenant, ConnectionID: &id, MaxRows: int32(min(limit, trigger.MaxPage)),
	})
	if err != nil {
		return nil, failed("list subscriptions", err)
	}
	list := make([]*trigger.Subscription, len(rows))
	for i, row := range rows {
		if list[i], err = db.subscription(row); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// ClaimRefresh takes the right to refresh this version of a credential; false
// when another has it, or a refresh failed a moment ago, or there is a newer
// version.
func (db *DB) ClaimRefresh(ctx context.Context, c *trigger.Connection, token string, lease time.Duration) (bool, error) {
	n, err := db.queries.ConnectionClaimRefresh(ctx, db.pool, &dbsqlc.ConnectionClaimRefreshParams{
		Tenant: c.Tenant, ConnectionID: c.ID, Version: c.Version, Token: token, LeaseMs: lease.Milliseconds(),
	})
	if err != nil {
		return false, failed("claim refresh", err)
	}
	return n == 1, nil
}

// EndRefresh stores what a refresh gave, for the holder of its token alone;
// trigger.ErrConflict for anybody else.
func (db *DB) EndRefresh(ctx context.Context, c *trigger.Connection, token string, credential trigger.Credential, expires *time.Time) error {
	n, err := db.queries.ConnectionRefreshed(ctx, db.pool, &dbsqlc.ConnectionRefreshedParams{
		Tenant: c.Tenant, ConnectionID: c.ID, Token: token, Credential: db.keys.Seal(sealCredential, credential), ExpiresAt: expires,
	})
	if err == nil && n == 0 {
		err = pgx.ErrNoRows
	}
	return notFound("end refresh", err, trigger.ErrConflict)
}

// FailRefresh notes why a refresh failed and keeps the next one off for a while.
func (db *DB) FailRefresh(ctx context.Context, c *trigger.Connection, token, reason string, wait time.Duration) error {
	_, err := db.queries.ConnectionRefreshFailed(ctx, db.pool, &dbsqlc.ConnectionRefreshFailedParams{
		Tenant: c.Tenant, ConnectionID: c.ID, Token: token, Error: cleanText(reason), WaitMs: wait.Milliseconds(),
	})
	if err != nil {
		return failed("fail refresh", err)
	}
	return nil
}

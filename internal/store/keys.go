package store

import (
	"context"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
)

// CreateKey stores a management key's record.
func (db *DB) CreateKey(ctx context.Context, r apikey.Record) error {
	scopes := make([]string, len(r.Scopes))
	for i, scope := range r.Scopes {
		scopes[i] = string(scope)
	}
	err := db.queries.KeyInsert(ctx, db.pool, &dbsqlc.KeyInsertParams{
		ID: r.ID, Hash: r.Hash[:], Tenant: r.Tenant, Name: cleanText(r.Name), Scopes: scopes, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt,
	})
	if err != nil {
		return failed("create key", err)
	}
	return nil
}

// Key finds a key by its id; apikey.ErrUnknownKey when there is none.
func (db *DB) Key(ctx context.Context, id string) (apikey.Record, error) {
	row, err := db.queries.KeyGet(ctx, db.pool, id)
	if err != nil {
		return apikey.Record{}, notFound("get key", err, apikey.ErrUnknownKey)
	}
	return keyRecord(row), nil
}

// Keys lists a tenant's keys, oldest first; an empty tenant lists all.
func (db *DB) Keys(ctx context.Context, tenant string) ([]apikey.Record, error) {
	rows, err := db.queries.KeyList(ctx, db.pool, tenant)
	if err != nil {
		return nil, failed("list keys", err)
	}
	list := make([]apikey.Record, len(rows))
	for i, row := range rows {
		list[i] = keyRecord(row)
	}
	return list, nil
}

// RevokeKey ends a key, of any tenant when tenant is empty. Doing it again is
// no error; apikey.ErrUnknownKey when there is none.
func (db *DB) RevokeKey(ctx context.Context, tenant, id string) error {
	n, err := db.queries.KeyRevoke(ctx, db.pool, &dbsqlc.KeyRevokeParams{ID: id, Tenant: tenant})
	if err != nil {
		return failed("revoke key", err)
	}
	if n == 0 {
		return apikey.ErrUnknownKey
	}
	return nil
}

func keyRecord(row *dbsqlc.ApiKey) apikey.Record {
	r := apikey.Record{
		ID: row.ID, Tenant: row.Tenant, Name: row.Name, CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt, RevokedAt: row.RevokedAt,
	}
	copy(r.Hash[:], row.Hash)
	for _, scope := range row.Scopes {
		r.Scopes = append(r.Scopes, apikey.Scope(scope))
	}
	return r
}

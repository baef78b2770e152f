-- name: KeyInsert :exec
INSERT INTO api_keys (id, hash, tenant, name, scopes, created_at, expires_at)
VALUES (@id, @hash, @tenant, @name, @scopes, @created_at, sqlc.narg('expires_at'));

-- name: KeyGet :one
SELECT id, hash, tenant, name, scopes, created_at, expires_at, revoked_at FROM api_keys WHERE id = @id;

-- name: KeyList :many
SELECT id, hash, tenant, name, scopes, created_at, expires_at, revoked_at FROM api_keys
WHERE @tenant::text = '' OR tenant = @tenant::text ORDER BY created_at, id;

-- name: KeyRevoke :execrows
UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE id = @id AND (@tenant::text = '' OR tenant = @tenant::text);

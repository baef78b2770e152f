-- name: ConnectionGet :one
SELECT tenant, connection_id, app_id, auth, state, owner, label, target, display, credential, expires_at, version, refresh_token,
    refresh_until, error, created_at, updated_at, last_refreshed_at,
    coalesce(state = 'needs_refresh' OR state = 'connected' AND expires_at <= now(), false)::bool AS refresh_due,
    coalesce(refresh_until > now(), false)::bool AS refresh_held
FROM connections WHERE tenant = @tenant AND connection_id = @connection_id;

-- name: ConnectionPut :one
-- Creates or replaces a connection of one app; without a credential the stored
-- one stays. No row: the id is another app's.
WITH ask AS (
    SELECT @tenant::text AS tenant, @connection_id::text AS connection_id, @app_id::text AS app_id, @auth::text AS auth, @state::text AS state,
        @owner::text AS owner, @label::text AS label, sqlc.narg('target')::text AS target, sqlc.narg('display')::text AS display,
        sqlc.narg('credential')::bytea AS credential, sqlc.narg('expires_at')::timestamptz AS expires_at
)
INSERT INTO connections AS c (tenant, connection_id, app_id, auth, state, owner, label, target, display, credential, expires_at)
SELECT a.tenant, a.connection_id, a.app_id, a.auth, a.state, a.owner, a.label, a.target, a.display, a.credential, a.expires_at FROM ask AS a
ON CONFLICT (tenant, connection_id) DO UPDATE SET auth = excluded.auth, state = excluded.state, owner = excluded.owner, label = excluded.label,
    target = excluded.target, display = excluded.display, credential = coalesce(excluded.credential, c.credential),
    expires_at = CASE WHEN excluded.credential IS NULL THEN coalesce(excluded.expires_at, c.expires_at) ELSE excluded.expires_at END,
    -- A refresh under way goes on, unless the credential that it refreshes is gone.
    refresh_token = CASE WHEN excluded.credential IS NULL THEN c.refresh_token END,
    refresh_until = CASE WHEN excluded.credential IS NULL THEN c.refresh_until END,
    error = CASE WHEN excluded.credential IS NULL THEN c.error ELSE '' END,
    version = c.version + 1, updated_at = now()
WHERE c.app_id = excluded.app_id
RETURNING version;

-- name: ConnectionDelete :execrows
DELETE FROM connections WHERE tenant = @tenant AND connection_id = @connection_id;

-- name: ConnectionClaimRefresh :execrows
-- Takes the right to refresh one version of a credential, for a while.
UPDATE connections AS c SET refresh_token = a.token, refresh_until = now() + a.lease_ms * interval '1 millisecond'
FROM (SELECT @tenant::text AS tenant, @connection_id::text AS connection_id, @version::bigint AS version, @token::text AS token,
    @lease_ms::bigint AS lease_ms) AS a
WHERE c.tenant = a.tenant AND c.connection_id = a.connection_id AND c.version = a.version
    AND (c.refresh_until IS NULL OR c.refresh_until <= now());

-- name: ConnectionRefreshed :execrows
UPDATE connections AS c SET credential = a.credential, expires_at = a.expires_at, state = 'connected', version = c.version + 1,
    refresh_token = NULL, refresh_until = NULL, error = '', updated_at = now(), last_refreshed_at = now()
FROM (SELECT @tenant::text AS tenant, @connection_id::text AS connection_id, @token::text AS token, @credential::bytea AS credential,
    sqlc.narg('expires_at')::timestamptz AS expires_at) AS a
WHERE c.tenant = a.tenant AND c.connection_id = a.connection_id AND c.refresh_token = a.token;

-- name: ConnectionRefreshFailed :execrows
UPDATE connections AS c SET refresh_token = NULL, refresh_until = now() + a.wait_ms * interval '1 millisecond', error = a.error, updated_at = now()
FROM (SELECT @tenant::text AS tenant, @connection_id::text AS connection_id, @token::text AS token, @error::text AS error,
    @wait_ms::bigint AS wait_ms) AS a
WHERE c.tenant = a.tenant AND c.connection_id = a.connection_id AND c.refresh_token = a.token;

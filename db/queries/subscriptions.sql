-- name: SubscriptionReserve :one
INSERT INTO subscriptions (id, tenant, app_id, trigger_key, connection_id, workflow_id, params, host, lifecycle,
    surface, source, max_attempts, backoff, openwop, ingest_secret)
VALUES (@id, @tenant, @app_id, @trigger_key, sqlc.narg('connection_id'), @workflow_id, @params, sqlc.narg('host'), 'reserved',
    @surface, @source, sqlc.narg('max_attempts'), sqlc.narg('backoff'), sqlc.narg('openwop'), sqlc.narg('ingest_secret'))
RETURNING sid, version, created_at, updated_at;

-- name: SubscriptionActivate :one
UPDATE subscriptions SET lifecycle = 'live', hook_state = @hook_state, version = version + 1, updated_at = now()
WHERE sid = @sid AND lifecycle = 'reserved'
RETURNING version, updated_at;

-- name: SubscriptionEnd :one
UPDATE subscriptions SET lifecycle = @lifecycle, version = version + 1, updated_at = now(), ended_at = now()
WHERE sid = @sid AND lifecycle IN ('reserved', 'live')
RETURNING version;

-- name: SubscriptionLock :one
-- Holds a live row for a change of its delivery state.
SELECT sid, delivery FROM subscriptions WHERE tenant = @tenant AND id = @id AND lifecycle = 'live' FOR UPDATE;

-- name: SubscriptionSetDelivery :one
UPDATE subscriptions SET delivery = @delivery, failures = 0, version = version + 1, updated_at = now()
WHERE sid = @sid
RETURNING sid, id, tenant, app_id, trigger_key, connection_id, workflow_id, params, hook_state, host, delivery, lifecycle, version, created_at, updated_at, ended_at,
    surface, source, max_attempts, backoff, failures, openwop, ingest_secret, handshake_secret;

-- name: SubscriptionNoteChange :exec
INSERT INTO subscription_changes (change_id, sid, tenant, from_state, to_state, reason)
SELECT @change_id, s.sid, s.tenant, @from_state, @to_state, sqlc.narg('reason')
FROM subscriptions AS s WHERE s.sid = @sid;

-- name: SubscriptionChanges :many
-- The changes of a subscription's delivery state, oldest first.
SELECT c.change_id, c.from_state, c.to_state, c.reason, c.attempt_id, c.event_id, c.changed_at
FROM subscription_changes AS c WHERE c.sid = @sid ORDER BY c.changed_at, c.change_id LIMIT @max_rows;

-- name: SubscriptionForCall :one
SELECT sid, id, tenant, app_id, trigger_key, connection_id, workflow_id, params, hook_state, host, delivery, lifecycle, version, created_at, updated_at, ended_at,
    surface, source, max_attempts, backoff, failures, openwop, ingest_secret, handshake_secret
FROM subscriptions WHERE id = @id AND lifecycle IN ('reserved', 'live');

-- name: SubscriptionGet :one
SELECT sid, id, tenant, app_id, trigger_key, connection_id, workflow_id, params, hook_state, host, delivery, lifecycle, version, created_at, updated_at, ended_at,
    surface, source, max_attempts, backoff, failures, openwop, ingest_secret, handshake_secret
FROM subscriptions WHERE tenant = @tenant AND id = @id AND lifecycle = 'live';

-- name: SubscriptionBySID :one
SELECT sid, id, tenant, app_id, trigger_key, connection_id, workflow_id, params, hook_state, host, delivery, lifecycle, version, created_at, updated_at, ended_at,
    surface, source, max_attempts, backoff, failures, openwop, ingest_secret, handshake_secret
FROM subscriptions WHERE sid = @sid;

-- name: SubscriptionList :many
SELECT sid, id, tenant, app_id, trigger_key, connection_id, workflow_id, params, hook_state, host, delivery, lifecycle, version, created_at, updated_at, ended_at,
    surface, source, max_attempts, backoff, failures, openwop, ingest_secret, handshake_secret
FROM subscriptions
WHERE tenant = @tenant AND lifecycle = 'live' AND (@workflow_id::text = '' OR workflow_id = @workflow_id::text) AND sid < @before
ORDER BY sid DESC LIMIT @max_rows;

-- name: SubscriptionsOfConnection :many
SELECT sid, id, tenant, app_id, trigger_key, connection_id, workflow_id, params, hook_state, host, delivery, lifecycle, version, created_at, updated_at, ended_at,
    surface, source, max_attempts, backoff, failures, openwop, ingest_secret, handshake_secret
FROM subscriptions
WHERE tenant = @tenant AND connection_id = @connection_id AND lifecycle = 'live'
ORDER BY sid LIMIT @max_rows;

-- name: SubscriptionSetHookState :one
UPDATE subscriptions SET hook_state = @hook_state, version = version + 1, updated_at = now()
WHERE sid = @sid AND version = @version AND lifecycle = 'live'
RETURNING version;

-- name: SubscriptionAbandonStale :execrows
-- Reservations whose process died while onSubscribe ran: well past any hook.
UPDATE subscriptions SET lifecycle = 'failed', version = version + 1, updated_at = now(), ended_at = now()
WHERE lifecycle = 'reserved' AND created_at < now() - interval '15 minutes';

-- name: SubscriptionKeepSecret :one
-- Keeps the secret that a handshake brought. The first one wins.
UPDATE subscriptions SET handshake_secret = @handshake_secret, version = version + 1, updated_at = now()
WHERE sid = @sid AND version = @version AND handshake_secret IS NULL AND lifecycle IN ('reserved', 'live')
RETURNING version;

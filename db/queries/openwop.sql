-- name: DeadLetterList :many
-- Dead-lettered deliveries of a subscription within their retention, newest
-- first (OpenWOP RFC 0232 §B), behind a position.
WITH ask AS (
    SELECT @sid::bigint AS sid, @keep_ms::bigint AS keep_ms, @before::timestamptz AS before, @before_id::text AS before_id
)
SELECT t.attempt_id, t.event_id, t.attempt, t.error_code, t.ended_at, e.dedup_key,
    c.from_state, c.to_state, c.reason
FROM ask AS a
JOIN trigger_attempts AS t ON t.sid = a.sid AND t.outcome = 'dead-lettered'
JOIN trigger_events AS e ON e.event_id = t.event_id
LEFT JOIN subscription_changes AS c ON c.sid = t.sid AND c.attempt_id = t.attempt_id
WHERE t.ended_at > now() - a.keep_ms * interval '1 millisecond' AND (t.ended_at, t.attempt_id) < (a.before, a.before_id)
ORDER BY t.ended_at DESC, t.attempt_id DESC
LIMIT @max_rows;

-- name: DeliveryList :many
-- The newest attempts of a subscription's events, however they ended.
SELECT x.attempt_id::text AS attempt_id, x.event_id::text AS event_id, x.attempt::int AS attempt, x.outcome::text AS outcome, x.run_id::text AS run_id,
    x.ended_at::timestamptz AS ended_at, e.dedup_key
FROM (
    (SELECT t.attempt_id, t.event_id, t.attempt, t.outcome, '' AS run_id, t.ended_at
    FROM trigger_attempts AS t JOIN trigger_events AS n ON n.event_id = t.event_id
    WHERE n.sid = @sid ORDER BY t.event_id DESC, t.attempt_id DESC LIMIT @max_rows)
    UNION ALL
    (SELECT coalesce(d.attempt_id, ''), d.event_id, d.attempts, 'delivered', coalesce(d.run_id, ''), d.ended_at
    FROM trigger_events AS n JOIN trigger_deliveries AS d ON d.event_id = n.event_id
    WHERE n.sid = @sid AND d.status = 'dispatched' ORDER BY n.event_id DESC LIMIT @max_rows)
) AS x
JOIN trigger_events AS e ON e.event_id = x.event_id
ORDER BY x.ended_at DESC, x.attempt_id DESC LIMIT @max_rows;

-- name: EventOfTenant :one
-- An event's place, for the records of a delivery that started no run.
SELECT e.event_id, e.sid, e.dedup_key, s.id AS subscription_id, s.source
FROM trigger_events AS e JOIN subscriptions AS s ON s.sid = e.sid
WHERE e.event_id = @event_id AND e.tenant = @tenant;

-- name: IdempotencyBegin :one
-- Takes a key: one that is new, or whose holder failed so that it may be tried
-- again, or has gone. No row: somebody else has it, or it is answered.
INSERT INTO idempotency_keys AS k (tenant, operation, key, digest, state, owner, lease_until, expires_at)
SELECT a.tenant, a.operation, a.key, a.digest, 'pending', a.owner, now() + a.lease_ms * interval '1 millisecond', now() + a.keep_ms * interval '1 millisecond'
FROM (SELECT @tenant::text AS tenant, @operation::text AS operation, @key::bytea AS key, @digest::bytea AS digest, @owner::text AS owner,
    @lease_ms::bigint AS lease_ms, @keep_ms::bigint AS keep_ms) AS a
ON CONFLICT (tenant, operation, key) DO UPDATE SET digest = excluded.digest, state = 'pending', owner = excluded.owner,
    lease_until = excluded.lease_until, status = 0, response = NULL, expires_at = excluded.expires_at
WHERE k.expires_at <= now()
    OR k.digest = excluded.digest AND (k.state = 'retryable-failure' OR k.state = 'pending' AND k.lease_until <= now())
RETURNING k.owner;

-- name: IdempotencyGet :one
SELECT digest, state, status, response FROM idempotency_keys
WHERE tenant = @tenant AND operation = @operation AND key = @key AND expires_at > now();

-- name: IdempotencyEnd :execrows
-- Ends a request, for the holder alone.
UPDATE idempotency_keys SET state = @state, status = @status, response = sqlc.narg('response'), lease_until = now()
WHERE tenant = @tenant AND operation = @operation AND key = @key AND owner = @owner AND state = 'pending';

-- name: IdempotencyDrop :exec
-- Forgets a request that was not valid: its key is free for one that is.
DELETE FROM idempotency_keys
WHERE tenant = @tenant AND operation = @operation AND key = @key AND owner = @owner AND state = 'pending';

-- name: IdempotencyPurge :execrows
DELETE FROM idempotency_keys AS k
USING (SELECT i.tenant, i.operation, i.key FROM idempotency_keys AS i WHERE i.expires_at <= now() ORDER BY i.expires_at LIMIT @max_rows FOR UPDATE SKIP LOCKED) AS x
WHERE k.tenant = x.tenant AND k.operation = x.operation AND k.key = x.key;

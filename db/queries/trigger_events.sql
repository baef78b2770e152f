-- name: EventInsertBatch :many
-- Writes the rows of many calls and puts the open ones into the queue. A row
-- whose subscription is gone or has another version is left out and its id
-- returned: its caller decided on a stale copy.
WITH input AS (
    SELECT
        unnest(@event_ids::text[]) AS event_id,
        unnest(@call_ids::text[]) AS call_id,
        unnest(@sids::bigint[]) AS sid,
        unnest(@versions::bigint[]) AS version,
        unnest(@initial_statuses::text[]) AS initial_status,
        unnest(@reasons::text[]) AS reason,
        unnest(@errors::text[]) AS error,
        unnest(@duplicates_of::text[]) AS duplicate_of,
        unnest(@sources::text[]) AS source,
        unnest(@app_versions::text[]) AS app_version,
        unnest(@traceparents::text[]) AS traceparent,
        unnest(@normalizeds::bytea[]) AS normalized,
        unnest(@methods::text[]) AS method,
        unnest(@paths::text[]) AS path,
        unnest(@raw_queries::text[]) AS raw_query,
        unnest(@headers::text[]) AS headers,
        unnest(@bodies::bytea[]) AS body,
        unnest(@verifications::text[]) AS verification,
        unnest(@dedup_keys::text[]) AS dedup_key
), accepted AS (
    SELECT i.event_id, i.call_id, i.sid, s.tenant, i.initial_status, i.reason, i.error, i.duplicate_of, i.source,
        i.app_version, i.traceparent, i.normalized, i.method, i.path, i.raw_query, i.headers, i.body, i.verification, i.dedup_key, s.surface
    FROM input AS i
    JOIN subscriptions AS s ON s.sid = i.sid AND s.version = i.version AND s.lifecycle IN ('reserved', 'live')
), written AS (
    INSERT INTO trigger_events (event_id, call_id, sid, tenant, initial_status, reason, error, duplicate_of, source,
        app_version, traceparent, normalized, method, path, raw_query, headers, body, verification, dedup_key)
    SELECT event_id, call_id, sid, tenant, initial_status, nullif(reason, ''), nullif(error, ''), nullif(duplicate_of, ''), source,
        nullif(app_version, ''), nullif(traceparent, ''), normalized, nullif(method, ''), nullif(path, ''),
        nullif(raw_query, ''), nullif(headers, ''), body, nullif(verification, ''), nullif(dedup_key, '')
    FROM accepted
), queued AS (
    INSERT INTO trigger_queue (sid, received_at, event_id, due_at)
    SELECT sid, now(), event_id, now() FROM accepted WHERE initial_status = 'received'
), refused AS (
    -- A refused post is a dead-lettered delivery and changes no state (RFC 0230 §C.1).
    INSERT INTO trigger_attempts (attempt_id, event_id, sid, tenant, attempt, outcome, error_code, error)
    SELECT 'att_' || substr(event_id, 5), event_id, sid, tenant, 1, 'dead-lettered', 'verification_failed', ''
    FROM accepted WHERE surface = 'openwop' AND initial_status = 'failed' AND reason = 'verification_failed'
)
SELECT i.event_id::text FROM input AS i WHERE NOT EXISTS (SELECT 1 FROM accepted AS a WHERE a.event_id = i.event_id);

-- name: BellRing :exec
SELECT pg_notify(@channel::text, '');

-- name: DedupClaimBatch :many
-- Claims dedup keys for events about to be written; an expired key is free
-- again. Returns the keys that were won. Sorted, so that writers cannot wait
-- for each other in a ring.
WITH input AS (
    SELECT unnest(@sids::bigint[]) AS sid, unnest(@keys::bytea[]) AS key, unnest(@event_ids::text[]) AS event_id,
        unnest(@window_ms::bigint[]) AS window_ms
)
INSERT INTO dedup_keys AS d (sid, key, event_id, expires_at)
SELECT sid, key, event_id, now() + window_ms * interval '1 millisecond' FROM input ORDER BY sid, key
ON CONFLICT (sid, key) DO UPDATE SET event_id = excluded.event_id, expires_at = excluded.expires_at
WHERE d.expires_at <= now()
RETURNING d.sid, d.key;

-- name: DedupHolders :many
SELECT d.sid, d.key, d.event_id
FROM (SELECT unnest(@sids::bigint[]) AS sid, unnest(@keys::bytea[]) AS key) AS i
JOIN dedup_keys AS d ON d.sid = i.sid AND d.key = i.key;

-- name: EventPayload :one
SELECT normalized, body FROM trigger_events WHERE event_id = @event_id;

-- name: EventCall :one
-- The call an event came with: its own row's, or its first sibling's.
SELECT c.event_id, c.received_at, c.source, c.method, c.path, c.raw_query, c.headers, c.body, c.verification, s.id AS subscription_id
FROM trigger_events AS e
JOIN trigger_events AS c ON c.event_id = e.call_id
JOIN subscriptions AS s ON s.sid = c.sid
WHERE e.event_id = @event_id;

-- name: EventsOfSubscription :many
SELECT sqlc.embed(v), s.id AS subscription_id, s.workflow_id, s.delivery, s.lifecycle
FROM trigger_event_status AS v
JOIN subscriptions AS s ON s.sid = v.sid
WHERE v.sid = @sid AND v.tenant = @tenant AND (@before::text = '' OR v.event_id < @before::text)
    AND (@status::text = '' OR v.status = @status::text)
ORDER BY v.event_id DESC
LIMIT @max_rows;

-- name: EventByID :one
SELECT sqlc.embed(v), s.id AS subscription_id, s.workflow_id, s.delivery, s.lifecycle, s.max_attempts, e.traceparent, e.normalized,
    (e.initial_status = 'received')::bool AS has_event, e.body
FROM trigger_event_status AS v
JOIN trigger_events AS e ON e.event_id = v.event_id
JOIN subscriptions AS s ON s.sid = v.sid
WHERE v.event_id = @event_id AND v.tenant = @tenant;

-- name: EventAttempts :many
SELECT attempt_id, attempt, outcome, error_code, error, duration_ms, ended_at
FROM trigger_attempts WHERE event_id = @event_id ORDER BY attempt_id;

-- name: EventRequeue :one
-- failed → received, attempts from 0. One of several at once wins.
WITH taken AS (
    DELETE FROM trigger_deliveries AS d USING subscriptions AS s
    WHERE d.event_id = @event_id AND d.tenant = @tenant AND d.status = 'failed' AND s.sid = d.sid AND s.lifecycle = 'live'
    RETURNING d.event_id, d.sid
), queued AS (
    INSERT INTO trigger_queue (sid, received_at, event_id, due_at)
    SELECT e.sid, e.received_at, e.event_id, now() FROM taken AS t JOIN trigger_events AS e ON e.event_id = t.event_id
    RETURNING event_id
)
SELECT count(*) FROM queued;

-- name: DedupPurge :execrows
DELETE FROM dedup_keys AS d
USING (SELECT k.sid, k.key FROM dedup_keys AS k WHERE k.expires_at <= now() ORDER BY k.expires_at LIMIT @max_rows FOR UPDATE SKIP LOCKED) AS x
WHERE d.sid = x.sid AND d.key = x.key;

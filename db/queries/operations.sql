-- name: OperationCreate :one
-- Notes a requeue of many and counts what it is for.
WITH ask AS (
    SELECT @operation_id::text AS operation_id, @tenant::text AS tenant, @sid::bigint AS sid, @workflow_id::text AS workflow_id,
        @app_id::text AS app_id, @error_code::text AS error_code,
        sqlc.narg('failed_after')::timestamptz AS failed_after, sqlc.narg('failed_before')::timestamptz AS failed_before
), matching AS (
    SELECT count(*) AS n
    FROM ask AS a
    JOIN trigger_deliveries AS d ON d.tenant = a.tenant AND d.status = 'failed'
    JOIN subscriptions AS s ON s.sid = d.sid AND s.lifecycle = 'live'
    WHERE (a.sid = 0 OR d.sid = a.sid) AND (a.workflow_id = '' OR s.workflow_id = a.workflow_id) AND (a.app_id = '' OR s.app_id = a.app_id)
        AND (a.error_code = '' OR d.error_code = a.error_code)
        AND (a.failed_after IS NULL OR d.ended_at >= a.failed_after) AND (a.failed_before IS NULL OR d.ended_at < a.failed_before)
)
INSERT INTO operations (operation_id, tenant, sid, workflow_id, app_id, error_code, failed_after, failed_before, total)
SELECT a.operation_id, a.tenant, nullif(a.sid, 0), nullif(a.workflow_id, ''), nullif(a.app_id, ''), nullif(a.error_code, ''),
    a.failed_after, a.failed_before, m.n
FROM ask AS a CROSS JOIN matching AS m
RETURNING operation_id, state, total, requeued, created_at, ended_at;

-- name: OperationStep :one
-- Puts the next dead letters of the oldest running operation back, oldest
-- first. One process takes a step at a time, and a cancel waits for it. A dead
-- letter that somebody requeues at the same time is left to them.
WITH ask AS (
    SELECT @max_rows::int AS max_rows
), op AS (
    SELECT o.operation_id, o.tenant, o.sid, o.workflow_id, o.app_id, o.error_code, o.failed_after, o.failed_before, o.reached, o.created_at
    FROM operations AS o WHERE o.state = 'running' ORDER BY o.operation_id LIMIT 1 FOR UPDATE SKIP LOCKED
), picked AS (
    SELECT d.event_id
    FROM op AS o
    JOIN trigger_deliveries AS d ON d.tenant = o.tenant AND d.status = 'failed' AND d.event_id > o.reached AND d.ended_at <= o.created_at
    JOIN subscriptions AS s ON s.sid = d.sid AND s.lifecycle = 'live'
    WHERE (o.sid IS NULL OR d.sid = o.sid) AND (o.workflow_id IS NULL OR s.workflow_id = o.workflow_id) AND (o.app_id IS NULL OR s.app_id = o.app_id)
        AND (o.error_code IS NULL OR d.error_code = o.error_code)
        AND (o.failed_after IS NULL OR d.ended_at >= o.failed_after) AND (o.failed_before IS NULL OR d.ended_at < o.failed_before)
    ORDER BY d.event_id LIMIT (SELECT a.max_rows FROM ask AS a)
    FOR UPDATE OF d SKIP LOCKED
), taken AS (
    DELETE FROM trigger_deliveries AS d USING picked AS p WHERE d.event_id = p.event_id RETURNING d.event_id
), queued AS (
    INSERT INTO trigger_queue (sid, received_at, event_id, due_at)
    SELECT e.sid, e.received_at, e.event_id, now() FROM taken AS t JOIN trigger_events AS e ON e.event_id = t.event_id
    RETURNING event_id
), moved AS (
    SELECT count(*) AS n, max(q.event_id) AS last FROM queued AS q
)
UPDATE operations AS o SET
    requeued = o.requeued + m.n,
    reached = coalesce(m.last, o.reached),
    state = CASE WHEN m.n = 0 THEN 'done' ELSE o.state END,
    ended_at = CASE WHEN m.n = 0 THEN now() END
FROM op, moved AS m
WHERE o.operation_id = op.operation_id
RETURNING o.operation_id, o.tenant, o.state, o.total, o.requeued, m.n AS moved;

-- name: OperationGet :one
SELECT operation_id, state, total, requeued, created_at, ended_at FROM operations WHERE operation_id = @operation_id AND tenant = @tenant;

-- name: OperationCancel :one
-- What was put back stays so. An operation that has ended is left as it is.
UPDATE operations AS o SET
    state = CASE WHEN o.state = 'running' THEN 'cancelled' ELSE o.state END,
    ended_at = coalesce(o.ended_at, now())
WHERE o.operation_id = @operation_id AND o.tenant = @tenant
RETURNING o.operation_id, o.state, o.total, o.requeued, o.created_at, o.ended_at;

-- name: OperationPurge :execrows
DELETE FROM operations AS o WHERE o.ended_at < now() - interval '30 days';

-- name: EventPurge :one
-- Forgets calls whose events are all over and past their time: the next ones of
-- a walk in the order of their ids, which is that of their receipt. A call goes
-- as a whole. Dead letters are locked first, so that one that is requeued at
-- the same time is either gone before or stays.
WITH ask AS (
    SELECT @after::text AS after, @upto::text AS upto, @max_rows::int AS max_rows, @keep_ms::bigint AS keep_ms, @keep_failed_ms::bigint AS keep_failed_ms
), calls AS (
    SELECT e.event_id
    FROM ask AS a
    JOIN trigger_events AS e ON e.event_id > a.after AND e.event_id < a.upto
    WHERE e.call_id = e.event_id
    ORDER BY e.event_id LIMIT (SELECT a.max_rows FROM ask AS a)
), members AS (
    SELECT c.event_id AS call_id, e.event_id, e.received_at, e.initial_status
    FROM calls AS c JOIN trigger_events AS e ON e.event_id = c.event_id
    UNION ALL
    SELECT c.event_id, e.event_id, e.received_at, e.initial_status
    FROM calls AS c JOIN trigger_events AS e ON e.call_id = c.event_id AND e.call_id <> e.event_id
), ended AS (
    SELECT d.event_id, d.status, d.ended_at
    FROM trigger_deliveries AS d WHERE d.event_id IN (SELECT m.event_id FROM members AS m)
    FOR UPDATE SKIP LOCKED
), past AS (
    SELECT m.call_id
    FROM members AS m
    CROSS JOIN ask AS a
    LEFT JOIN ended AS d ON d.event_id = m.event_id
    GROUP BY m.call_id
    HAVING bool_and(CASE
        WHEN m.initial_status = 'received' AND d.event_id IS NULL THEN false
        WHEN coalesce(d.status, m.initial_status) = 'failed'
            THEN a.keep_failed_ms > 0 AND coalesce(d.ended_at, m.received_at) < now() - a.keep_failed_ms * interval '1 millisecond'
        ELSE a.keep_ms > 0 AND coalesce(d.ended_at, m.received_at) < now() - a.keep_ms * interval '1 millisecond'
    END)
), rows AS (
    SELECT m.event_id FROM members AS m JOIN past AS p ON p.call_id = m.call_id
), attempts AS (
    DELETE FROM trigger_attempts AS t USING rows AS r WHERE t.event_id = r.event_id
), deliveries AS (
    DELETE FROM trigger_deliveries AS d USING rows AS r WHERE d.event_id = r.event_id
), events AS (
    DELETE FROM trigger_events AS e USING rows AS r WHERE e.event_id = r.event_id RETURNING e.event_id
)
SELECT (SELECT count(*) FROM events)::bigint AS deleted, (SELECT count(*) FROM calls)::bigint AS looked_at,
    coalesce((SELECT max(c.event_id) FROM calls AS c), '')::text AS reached;

-- name: RunPurge :one
-- Forgets runs past their time, like EventPurge.
WITH ask AS (
    SELECT @after::text AS after, @upto::text AS upto, @max_rows::int AS max_rows, @keep_ms::bigint AS keep_ms
), looked AS (
    SELECT r.run_id, coalesce(r.finished_at, r.started_at) AS at
    FROM ask AS a JOIN runs AS r ON r.run_id > a.after AND r.run_id < a.upto
    ORDER BY r.run_id LIMIT (SELECT a.max_rows FROM ask AS a)
), gone AS (
    DELETE FROM runs AS r USING looked AS l, ask AS a
    WHERE r.run_id = l.run_id AND l.at < now() - a.keep_ms * interval '1 millisecond'
    RETURNING r.run_id
)
SELECT (SELECT count(*) FROM gone)::bigint AS deleted, (SELECT count(*) FROM looked)::bigint AS looked_at,
    coalesce((SELECT max(l.run_id) FROM looked AS l), '')::text AS reached;

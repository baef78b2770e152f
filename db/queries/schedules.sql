-- name: ScheduleCreate :exec
INSERT INTO schedules (sid, cron, timezone, missed, due_at) VALUES (@sid, @cron, @timezone, @missed, sqlc.narg('due_at'));

-- name: ScheduleDue :many
-- Schedules whose slot has come, or is to be worked out. Nobody claims them:
-- moving one on is what decides who fires it.
SELECT p.sid, p.cron, p.timezone, p.missed, p.due_at, now()::timestamptz AS now
FROM schedules AS p
JOIN subscriptions AS s ON s.sid = p.sid AND s.lifecycle = 'live' AND s.delivery = 'active'
WHERE p.due_at IS NULL OR p.due_at <= now()
ORDER BY p.due_at NULLS FIRST
LIMIT @max_rows;

-- name: ScheduleNext :one
-- How long until the next slot; -1 when there is none.
SELECT coalesce(extract(epoch FROM min(p.due_at) - now()) * 1000, -1)::bigint AS next_ms
FROM schedules AS p
JOIN subscriptions AS s ON s.sid = p.sid AND s.lifecycle = 'live' AND s.delivery = 'active'
WHERE p.due_at < 'infinity';

-- name: ScheduleAdvance :execrows
-- Moves a schedule on from a slot. One of several at once does it. A schedule
-- without a next slot is over.
WITH ask AS (
    SELECT @sid::bigint AS sid, sqlc.narg('slot')::timestamptz AS slot, sqlc.narg('next')::timestamptz AS next, @fired::bool AS fired
)
UPDATE schedules AS p SET due_at = coalesce(a.next, 'infinity'), fired_at = CASE WHEN a.fired THEN now() ELSE p.fired_at END
FROM ask AS a WHERE p.sid = a.sid AND p.due_at IS NOT DISTINCT FROM a.slot;

-- name: ScheduleRenew :exec
-- A schedule that comes back starts afresh: what passed meanwhile is skipped
-- (OpenWOP RFC 0083, question 5). One-shots that passed are over.
UPDATE schedules SET due_at = CASE WHEN cron = '' THEN CASE WHEN due_at > now() THEN due_at ELSE 'infinity' END END WHERE sid = @sid;

-- name: ScheduleForget :exec
DELETE FROM schedules WHERE sid = @sid;

-- name: ScheduleMove :exec
-- Puts a slot into the past, for tests.
UPDATE schedules AS p SET due_at = now() - a.ago_ms * interval '1 millisecond'
FROM (SELECT @sid::bigint AS sid, @ago_ms::bigint AS ago_ms) AS a WHERE p.sid = a.sid;

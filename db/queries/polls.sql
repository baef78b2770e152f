-- name: PollSchedule :exec
INSERT INTO polls (sid, interval_ms) VALUES (@sid, @interval_ms)
ON CONFLICT (sid) DO UPDATE SET interval_ms = excluded.interval_ms;

-- name: PollClaim :many
-- Takes due checks. The next one is an interval after this one started; paused
-- subscriptions and inactive apps are passed over, and are due once when they
-- come back.
WITH ask AS (
    SELECT @token::text AS token, @lease_ms::bigint AS lease_ms
), due AS (
    SELECT p.sid
    FROM polls AS p
    JOIN subscriptions AS s ON s.sid = p.sid AND s.lifecycle = 'live' AND s.delivery = 'active'
    JOIN apps AS a ON a.app_id = s.app_id AND a.state = 'active'
    WHERE p.due_at <= now() AND (p.lease_until IS NULL OR p.lease_until <= now())
    ORDER BY p.due_at
    LIMIT @max_rows
    FOR UPDATE OF p SKIP LOCKED
)
UPDATE polls AS p SET token = a.token, lease_until = now() + a.lease_ms * interval '1 millisecond',
    due_at = now() + p.interval_ms * interval '1 millisecond'
FROM due AS d CROSS JOIN ask AS a
WHERE p.sid = d.sid
RETURNING p.sid, p.failures, p.interval_ms;

-- name: PollDone :execrows
-- Ends a check, for the holder of its token alone.
UPDATE polls AS p SET token = NULL, lease_until = NULL, checked_at = now(), failures = a.failures,
    error_code = nullif(a.error_code, ''), error = nullif(a.error, ''),
    due_at = CASE WHEN a.wait_ms < 0 THEN p.due_at ELSE now() + a.wait_ms * interval '1 millisecond' END
FROM (SELECT @sid::bigint AS sid, @token::text AS token, @failures::int AS failures, @error_code::text AS error_code,
    @error::text AS error, @wait_ms::bigint AS wait_ms) AS a
WHERE p.sid = a.sid AND p.token = a.token;

-- name: PollGet :one
SELECT sid, interval_ms, due_at, token, lease_until, failures, checked_at, error_code, error FROM polls WHERE sid = @sid;

-- name: PollForget :exec
DELETE FROM polls WHERE sid = @sid;

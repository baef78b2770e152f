-- name: ClaimLanes :one
-- First half of a claim: walks the subscriptions that have open events, from a
-- cursor on, and locks those that have a due one and no claim. The lanes are
-- handed to ClaimEvents through a transaction-local setting, so that both go
-- out in one round trip, while the second one sees what the lock protects with
-- a snapshot of its own. An advisory lock, since a dispatcher should skip a
-- lane that another one is claiming, not wait for it. LATERAL with OFFSET 0
-- keeps the planner to one look-up a lane, whatever it thinks of the size of
-- subscriptions.
WITH RECURSIVE lane AS (
    (SELECT q.sid, 1 AS n FROM trigger_queue AS q WHERE q.sid > @after::bigint ORDER BY q.sid LIMIT 1)
    UNION ALL
    SELECT (SELECT q.sid FROM trigger_queue AS q WHERE q.sid > lane.sid ORDER BY q.sid LIMIT 1), lane.n + 1
    FROM lane WHERE lane.sid IS NOT NULL AND lane.n < @max_scan::int
), due AS (
    SELECT l.sid
    FROM lane AS l
    CROSS JOIN LATERAL (
        SELECT 1 FROM subscriptions AS t WHERE t.sid = l.sid AND t.delivery = 'active' AND t.lifecycle = 'live' OFFSET 0
    ) AS s
    WHERE NOT EXISTS (SELECT 1 FROM trigger_claims AS c WHERE c.sid = l.sid)
        AND EXISTS (SELECT 1 FROM trigger_queue AS q WHERE q.sid = l.sid AND q.due_at <= now())
    LIMIT @max_lanes::int
), locked AS (
    SELECT d.sid FROM due AS d WHERE pg_try_advisory_xact_lock(1952805731, (d.sid % 2147483647)::int)
)
SELECT
    set_config('tocsin.lanes', coalesce((SELECT string_agg(k.sid::text, ',') FROM locked AS k), ''), true)::text AS lanes,
    coalesce((SELECT max(d.sid) FROM due AS d), 0)::bigint AS last_due,
    (SELECT count(*) FROM due)::int AS due_lanes,
    coalesce((SELECT max(l.sid) FROM lane AS l), 0)::bigint AS scanned_to,
    (SELECT bool_or(l.sid IS NULL) OR count(*) = 0 FROM lane AS l)::bool AS at_end;

-- name: ClaimEvents :many
-- Second half of a claim: takes the oldest due events of the locked lanes and
-- writes one claim a lane. A lane that this snapshot shows as claimed is left
-- alone, although its claim may be settled and gone by now: so would be the
-- events that the snapshot still shows. Times are by the server clock.
WITH ask AS (
    SELECT string_to_array(current_setting('tocsin.lanes'), ',') AS ids, @max_events::bigint AS max_events,
        @max_per_lane::bigint AS max_per_lane, @one_at_a_time::text[] AS one_at_a_time,
        @token::text AS token, @owner::text AS owner, @lease_ms::bigint AS lease_ms
), lanes AS (
    SELECT unnest(a.ids)::bigint AS sid, cardinality(a.ids) AS in_all, a.max_events, a.max_per_lane, a.one_at_a_time FROM ask AS a
), share AS (
    SELECT l.sid, (CASE
        WHEN (s.app_id || '/' || s.trigger_key) = ANY (l.one_at_a_time) THEN 1
        ELSE greatest(1, least(l.max_per_lane, l.max_events / l.in_all))
    END)::bigint AS quota
    FROM lanes AS l
    CROSS JOIN LATERAL (
        SELECT t.app_id, t.trigger_key FROM subscriptions AS t
        WHERE t.sid = l.sid AND t.delivery = 'active' AND t.lifecycle = 'live' OFFSET 0
    ) AS s
    WHERE NOT EXISTS (SELECT 1 FROM trigger_claims AS c WHERE c.sid = l.sid)
), picked AS (
    SELECT e.sid, e.received_at, e.event_id, e.attempts
    FROM share AS l
    CROSS JOIN LATERAL (
        SELECT q.sid, q.received_at, q.event_id, q.attempts
        FROM trigger_queue AS q
        WHERE q.sid = l.sid AND q.due_at <= now()
        ORDER BY q.received_at, q.event_id
        LIMIT l.quota
    ) AS e
), claimed AS (
    INSERT INTO trigger_claims (sid, token, owner, claimed_at, lease_until, event_ids)
    SELECT p.sid, min(a.token), min(a.owner), now(), now() + min(a.lease_ms) * interval '1 millisecond',
        array_agg(p.event_id ORDER BY p.received_at, p.event_id)
    FROM picked AS p CROSS JOIN ask AS a GROUP BY p.sid
    ON CONFLICT (sid) DO NOTHING
    RETURNING sid
)
SELECT p.event_id::text AS event_id, p.sid::bigint AS sid, p.received_at::timestamptz AS received_at, p.attempts::int AS attempts,
    (extract(epoch FROM clock_timestamp() - p.received_at) * 1000000)::bigint AS age_us,
    s.id AS subscription_id, s.tenant, s.workflow_id, s.app_id, s.trigger_key, s.connection_id, s.surface, s.max_attempts, s.backoff,
    e.dedup_key, e.source, e.traceparent, (e.normalized IS NULL)::bool AS is_body, coalesce(e.normalized, e.body) AS payload
FROM claimed AS c
JOIN picked AS p ON p.sid = c.sid
JOIN subscriptions AS s ON s.sid = p.sid
JOIN trigger_events AS e ON e.event_id = p.event_id
ORDER BY p.sid, p.received_at, p.event_id;

-- name: ClaimSettle :many
-- Ends claims: only rows whose claim still has the given token are touched,
-- and the claims that were held are returned. A batch may hold an old claim of
-- a subscription beside its present one, so a subscription alone names none.
-- Waits count from now, the end of the attempt. A retry for a subscription that
-- has ended is over.
WITH result AS (
    SELECT
        unnest(@sids::bigint[]) AS sid,
        unnest(@tokens::text[]) AS token,
        unnest(@event_ids::text[]) AS event_id,
        unnest(@received_ats::timestamptz[]) AS received_at,
        unnest(@tenants::text[]) AS tenant,
        unnest(@outcomes::text[]) AS outcome,
        unnest(@attempts::smallint[]) AS attempt,
        unnest(@attempt_ids::text[]) AS attempt_id,
        unnest(@run_ids::text[]) AS run_id,
        unnest(@error_codes::text[]) AS error_code,
        unnest(@errors::text[]) AS error,
        unnest(@durations_ms::int[]) AS duration_ms,
        unnest(@waits_ms::bigint[]) AS wait_ms
), held AS (
    DELETE FROM trigger_claims AS c
    USING (SELECT DISTINCT r.sid, r.token FROM result AS r) AS l
    WHERE c.sid = l.sid AND c.token = l.token
    RETURNING c.sid, c.token
), mine AS (
    SELECT r.sid, r.event_id, r.received_at, r.tenant, r.attempt, r.attempt_id, r.run_id, r.error_code, r.error, r.duration_ms, r.wait_ms,
        CASE WHEN r.outcome IN ('retrying', 'unattempted') AND s.lifecycle <> 'live' THEN 'ended' ELSE r.outcome END AS outcome
    FROM result AS r JOIN held AS h ON h.sid = r.sid AND h.token = r.token JOIN subscriptions AS s ON s.sid = r.sid
), gone AS (
    DELETE FROM trigger_queue AS q USING mine AS m
    WHERE q.sid = m.sid AND q.received_at = m.received_at AND q.event_id = m.event_id
        AND m.outcome IN ('delivered', 'dead-lettered', 'ended')
), back AS (
    UPDATE trigger_queue AS q SET attempts = m.attempt, due_at = clock_timestamp() + m.wait_ms * interval '1 millisecond'
    FROM mine AS m
    WHERE q.sid = m.sid AND q.received_at = m.received_at AND q.event_id = m.event_id AND m.outcome = 'retrying'
), ended AS (
    INSERT INTO trigger_deliveries (event_id, sid, tenant, status, attempts, attempt_id, run_id, error_code, error, duration_ms)
    SELECT m.event_id, m.sid, m.tenant,
        CASE m.outcome WHEN 'delivered' THEN 'dispatched' WHEN 'dead-lettered' THEN 'failed' ELSE 'ignored' END,
        m.attempt, m.attempt_id, nullif(m.run_id, ''),
        CASE WHEN m.outcome = 'ended' THEN 'subscription_deleted' ELSE nullif(m.error_code, '') END, nullif(m.error, ''), m.duration_ms
    FROM mine AS m WHERE m.outcome IN ('delivered', 'dead-lettered', 'ended')
), tried AS (
    INSERT INTO trigger_attempts (attempt_id, event_id, sid, tenant, attempt, outcome, error_code, error, duration_ms)
    SELECT m.attempt_id, m.event_id, m.sid, m.tenant, m.attempt, m.outcome, m.error_code, m.error, m.duration_ms
    FROM mine AS m WHERE m.outcome IN ('retrying', 'dead-lettered')
), tally AS (
    SELECT m.sid, count(*) FILTER (WHERE m.outcome = 'retrying')::int AS failed, bool_or(m.outcome = 'delivered') AS delivered,
        max(m.attempt_id) FILTER (WHERE m.outcome = 'dead-lettered') AS dead, max(m.attempt_id) AS last, @break_after::int AS break_after
    FROM mine AS m JOIN subscriptions AS s ON s.sid = m.sid AND s.surface = 'openwop'
    GROUP BY m.sid
), moved AS (
    -- A sender's refused post never comes here; what does is the engine's word.
    -- Only an active subscription is moved: an operator's pause stands.
    UPDATE subscriptions AS s SET
        failures = CASE WHEN t.delivered THEN t.failed ELSE s.failures + t.failed END,
        delivery = CASE WHEN t.dead IS NOT NULL THEN 'dead-lettered' WHEN NOT t.delivered AND s.failures + t.failed >= t.break_after THEN 'failed' ELSE s.delivery END,
        version = s.version + CASE WHEN t.dead IS NOT NULL OR NOT t.delivered AND s.failures + t.failed >= t.break_after THEN 1 ELSE 0 END,
        updated_at = CASE WHEN t.dead IS NOT NULL OR NOT t.delivered AND s.failures + t.failed >= t.break_after THEN now() ELSE s.updated_at END
    FROM tally AS t
    WHERE s.sid = t.sid AND s.delivery = 'active' AND s.lifecycle = 'live' AND (t.dead IS NOT NULL OR t.failed > 0 OR s.failures > 0)
    RETURNING s.sid, s.tenant, s.delivery, t.dead, t.last
), noted AS (
    INSERT INTO subscription_changes (change_id, sid, tenant, from_state, to_state, reason, attempt_id, event_id)
    SELECT 'chg_' || substr(coalesce(v.dead, v.last), 5), v.sid, v.tenant, 'active', v.delivery,
        CASE WHEN v.delivery = 'dead-lettered' THEN 'retry-exhausted' END, coalesce(v.dead, v.last),
        (SELECT m.event_id FROM mine AS m WHERE m.attempt_id = coalesce(v.dead, v.last))
    FROM moved AS v WHERE v.delivery <> 'active'
)
SELECT h.sid, h.token FROM held AS h;

-- name: OutcomeRing :exec
-- Tells whoever waits for the outcome of an event that there is one.
SELECT pg_notify(@channel::text, '');

-- name: OutcomesOf :many
-- How events ended; those that have not are left out.
SELECT d.event_id, d.status, d.run_id, d.attempt_id
FROM trigger_deliveries AS d WHERE d.event_id = ANY (@event_ids::text[]);

-- name: ClaimRenew :many
-- Lengthens claims; those not returned are lost.
UPDATE trigger_claims AS c SET lease_until = now() + a.lease_ms * interval '1 millisecond'
FROM (SELECT unnest(@sids::bigint[]) AS sid, unnest(@tokens::text[]) AS token, @lease_ms::bigint AS lease_ms) AS a
WHERE c.sid = a.sid AND c.token = a.token AND c.lease_until > now()
RETURNING c.sid, c.token;

-- name: ClaimReap :many
-- Takes claims whose lease has run out. The attempt counts and waits from the
-- end of the lease, so a poison event ends as failed.
WITH ask AS (
    SELECT @max_attempts::int AS max_attempts, @waits_ms::bigint[] AS waits_ms, @base_ms::bigint AS base_ms, @ceiling_ms::bigint AS ceiling_ms
), expired AS (
    SELECT c.sid FROM trigger_claims AS c WHERE c.lease_until <= now() ORDER BY c.sid LIMIT 500 FOR UPDATE SKIP LOCKED
), dead AS (
    DELETE FROM trigger_claims AS c USING expired AS x WHERE c.sid = x.sid
    RETURNING c.sid, c.owner, c.lease_until, c.event_ids
), lost AS (
    SELECT d.sid, d.owner, d.lease_until, e.event_id, e.received_at, e.tenant, (q.attempts + 1)::smallint AS attempt, s.lifecycle, s.surface,
        'att_' || replace(gen_random_uuid()::text, '-', '') AS attempt_id, coalesce(s.max_attempts, a.max_attempts) AS max_attempts,
        CASE s.backoff
            WHEN 'none' THEN 0
            WHEN 'fixed' THEN a.base_ms
            WHEN 'exponential' THEN least(a.base_ms * power(2, q.attempts)::bigint, a.ceiling_ms)
            ELSE a.waits_ms[q.attempts + 1]
        END AS wait_ms
    FROM (SELECT x.sid, x.owner, x.lease_until, unnest(x.event_ids) AS event_id FROM dead AS x) AS d
    JOIN trigger_events AS e ON e.event_id = d.event_id
    JOIN trigger_queue AS q ON q.sid = e.sid AND q.received_at = e.received_at AND q.event_id = e.event_id
    JOIN subscriptions AS s ON s.sid = e.sid
    CROSS JOIN ask AS a
), gone AS (
    DELETE FROM trigger_queue AS q USING lost AS l
    WHERE q.sid = l.sid AND q.received_at = l.received_at AND q.event_id = l.event_id
        AND (l.attempt >= l.max_attempts OR l.lifecycle <> 'live')
), back AS (
    UPDATE trigger_queue AS q SET attempts = l.attempt,
        due_at = l.lease_until + l.wait_ms * interval '1 millisecond'
    FROM lost AS l
    WHERE q.sid = l.sid AND q.received_at = l.received_at AND q.event_id = l.event_id
        AND l.attempt < l.max_attempts AND l.lifecycle = 'live'
), tried AS (
    INSERT INTO trigger_attempts (attempt_id, event_id, sid, tenant, attempt, outcome, error_code, error)
    SELECT l.attempt_id, l.event_id, l.sid, l.tenant, l.attempt,
        CASE WHEN l.surface = 'openwop' AND l.attempt >= l.max_attempts AND l.lifecycle = 'live' THEN 'dead-lettered' ELSE 'lost' END, 'lease_lost', 'the dispatcher ' || l.owner || ' did not report back'
    FROM lost AS l
), ended AS (
    INSERT INTO trigger_deliveries (event_id, sid, tenant, status, attempts, attempt_id, error_code, error)
    SELECT l.event_id, l.sid, l.tenant, CASE WHEN l.lifecycle = 'live' THEN 'failed' ELSE 'ignored' END, l.attempt, l.attempt_id,
        CASE WHEN l.lifecycle = 'live' THEN 'lease_lost' ELSE 'subscription_deleted' END,
        'the dispatcher ' || l.owner || ' did not report back'
    FROM lost AS l WHERE l.attempt >= l.max_attempts OR l.lifecycle <> 'live'
), moved AS (
    UPDATE subscriptions AS s SET delivery = 'dead-lettered', version = s.version + 1, updated_at = now()
    FROM (SELECT x.sid, max(x.attempt_id) AS dead FROM lost AS x WHERE x.attempt >= x.max_attempts GROUP BY x.sid) AS t
    WHERE s.sid = t.sid AND s.surface = 'openwop' AND s.delivery = 'active' AND s.lifecycle = 'live'
    RETURNING s.sid, s.tenant, t.dead
), noted AS (
    INSERT INTO subscription_changes (change_id, sid, tenant, from_state, to_state, reason, attempt_id, event_id)
    SELECT 'chg_' || substr(v.dead, 5), v.sid, v.tenant, 'active', 'dead-lettered', 'retry-exhausted', v.dead,
        (SELECT x.event_id FROM lost AS x WHERE x.attempt_id = v.dead)
    FROM moved AS v
)
SELECT l.event_id::text AS event_id, l.sid::bigint AS sid, l.owner::text AS owner, l.attempt::int AS attempt FROM lost AS l;

-- name: QueueSweepEnded :execrows
-- Open events of subscriptions that ended lately: what was committed while the
-- subscription was being ended. What a dispatcher holds is left to its settle.
WITH ended AS (
    SELECT s.sid FROM subscriptions AS s WHERE s.ended_at > now() - interval '10 minutes'
), gone AS (
    DELETE FROM trigger_queue AS q USING ended AS s
    WHERE q.sid = s.sid AND NOT EXISTS (SELECT 1 FROM trigger_claims AS c WHERE c.sid = q.sid)
    RETURNING q.event_id, q.sid, q.attempts
)
INSERT INTO trigger_deliveries (event_id, sid, tenant, status, attempts, error_code)
SELECT g.event_id, g.sid, s.tenant, 'ignored', g.attempts,
    CASE s.lifecycle WHEN 'failed' THEN 'subscribe_failed' ELSE 'subscription_deleted' END
FROM gone AS g JOIN subscriptions AS s ON s.sid = g.sid;

-- name: QueuePeek :one
-- One cheap look: is anything due or expired, and when is the next time that
-- something will be. In milliseconds from now; -1 when there is none.
WITH RECURSIVE lane AS (
    (SELECT q.sid FROM trigger_queue AS q ORDER BY q.sid LIMIT 1)
    UNION ALL
    SELECT (SELECT q.sid FROM trigger_queue AS q WHERE q.sid > lane.sid ORDER BY q.sid LIMIT 1)
    FROM lane WHERE lane.sid IS NOT NULL
), soon AS (
    SELECT q.due_at AS at FROM trigger_queue AS q WHERE q.attempts > 0 AND q.due_at > now() ORDER BY q.due_at LIMIT 1
), expiry AS (
    SELECT min(c.lease_until) AS at FROM trigger_claims AS c
)
SELECT
    (EXISTS (
        SELECT 1 FROM lane AS l
        JOIN subscriptions AS s ON s.sid = l.sid AND s.delivery = 'active' AND s.lifecycle = 'live'
        WHERE NOT EXISTS (SELECT 1 FROM trigger_claims AS c WHERE c.sid = l.sid)
            AND EXISTS (SELECT 1 FROM trigger_queue AS q WHERE q.sid = l.sid AND q.due_at <= now())
    ))::bool AS due,
    coalesce((SELECT x.at <= now() FROM expiry AS x), false)::bool AS expired,
    coalesce((SELECT extract(epoch FROM min(t.at) - now()) * 1000
        FROM (SELECT at FROM soon UNION ALL SELECT at FROM expiry) AS t), -1)::bigint AS next_ms;

-- name: QueueBacklog :one
-- Open events that are due, counted up to a bound, and the age of the oldest.
SELECT count(*)::bigint AS due, coalesce(extract(epoch FROM now() - min(b.received_at)) * 1000, 0)::bigint AS oldest_ms
FROM (SELECT q.received_at FROM trigger_queue AS q WHERE q.due_at <= now() LIMIT @max_rows) AS b;

-- name: RunInsertBatch :exec
-- One row a run; a run that exists already is left as it is.
INSERT INTO runs (run_id, tenant, workflow_id, event_id, sid, attempt_id, trigger, status, input, log, finished_at)
SELECT r.run_id, r.tenant, r.workflow_id, nullif(r.event_id, ''), nullif(r.sid, 0), nullif(r.attempt_id, ''), r.trigger, r.status,
    r.input, r.log, now()
FROM (
    SELECT unnest(@run_ids::text[]) AS run_id, unnest(@tenants::text[]) AS tenant, unnest(@workflow_ids::text[]) AS workflow_id,
        unnest(@event_ids::text[]) AS event_id, unnest(@sids::bigint[]) AS sid, unnest(@attempt_ids::text[]) AS attempt_id,
        unnest(@triggers::text[]) AS trigger, unnest(@statuses::text[]) AS status, unnest(@inputs::bytea[]) AS input,
        unnest(@logs::text[]) AS log
) AS r
ON CONFLICT (run_id) DO NOTHING;

-- name: RunGet :one
SELECT r.run_id, r.tenant, r.workflow_id, r.event_id, r.attempt_id, r.trigger, r.status, r.input, r.log, r.started_at, r.finished_at,
    s.id AS subscription_id, e.normalized, e.body
FROM runs AS r
LEFT JOIN subscriptions AS s ON s.sid = r.sid
LEFT JOIN trigger_events AS e ON e.event_id = r.event_id
WHERE r.run_id = @run_id AND r.tenant = @tenant;

-- name: RunsOfWorkflow :many
SELECT r.run_id, r.tenant, r.workflow_id, r.event_id, r.attempt_id, r.trigger, r.status, r.started_at, r.finished_at, s.id AS subscription_id
FROM runs AS r LEFT JOIN subscriptions AS s ON s.sid = r.sid
WHERE r.tenant = @tenant AND r.workflow_id = @workflow_id AND (@before::text = '' OR r.run_id < @before::text)
ORDER BY r.run_id DESC LIMIT @max_rows;

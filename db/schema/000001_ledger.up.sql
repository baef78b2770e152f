BEGIN;

-- Each migration notes itself here in its own transaction, so that one which
-- was cut off can be told from one that was not (store.Migrate).
CREATE TABLE schema_applied (
    version    integer     PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO schema_applied (version) VALUES (1);

-- Management keys. The secret is 256 random bits, so a plain SHA-256 of it is
-- what is stored.
CREATE TABLE api_keys (
    id         text        COLLATE "C" PRIMARY KEY,
    hash       bytea       NOT NULL,
    tenant     text        NOT NULL,
    name       text        NOT NULL DEFAULT '',
    scopes     text[]      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz
);
CREATE INDEX api_keys_tenant ON api_keys (tenant, id);

-- The registry mirrors what is loaded; state is the operator's word and
-- outlives any load.
CREATE TABLE apps (
    app_id     text        COLLATE "C" PRIMARY KEY,
    version    text        NOT NULL,
    hash       text        NOT NULL,
    title      text        NOT NULL DEFAULT '',
    state      text        NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'disabled', 'archived')),
    load_error text        NOT NULL DEFAULT '',
    loaded_at  timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE app_triggers (
    app_id     text NOT NULL COLLATE "C",
    key        text NOT NULL COLLATE "C",
    type       text NOT NULL CHECK (type IN ('webhook', 'poll')),
    title      text NOT NULL DEFAULT '',
    definition text NOT NULL,
    PRIMARY KEY (app_id, key)
);

-- How often an operator has asked for APPS_DIR to be read again; every process
-- reads it when this has grown.
CREATE TABLE app_reloads (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    requested bigint  NOT NULL
);
INSERT INTO app_reloads (requested) VALUES (0);

-- A tenant's access to an app's vendor (w6w contract §5). version grows with
-- every change; refresh_token and refresh_until keep two processes from using
-- up one refresh token, and a failed refresh from being tried at once again.
CREATE TABLE connections (
    tenant            text        NOT NULL,
    connection_id     text        NOT NULL COLLATE "C",
    app_id            text        NOT NULL,
    auth              text        NOT NULL DEFAULT '', -- key of the app's auth method
    state             text        NOT NULL CHECK (state IN ('pending', 'connected', 'needs_refresh', 'broken', 'revoked')),
    owner             text        NOT NULL DEFAULT '',
    label             text        NOT NULL DEFAULT '',
    target            text,                -- JSON
    display           text,                -- JSON
    credential        bytea,               -- sealed JSON
    expires_at        timestamptz,
    version           bigint      NOT NULL DEFAULT 1,
    refresh_token     text,
    refresh_until     timestamptz,
    error             text        NOT NULL DEFAULT '', -- why the last refresh failed
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    last_refreshed_at timestamptz,
    PRIMARY KEY (tenant, connection_id)
);

-- id is the secret in the callback URL; everything else refers to sid. A row
-- is reserved before onSubscribe runs and stays as a tombstone while its
-- events are kept. version grows with every change, so that a commit notices
-- a decision taken on a stale copy.
CREATE TABLE subscriptions (
    sid           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id            text        NOT NULL COLLATE "C" UNIQUE,
    tenant        text        NOT NULL,
    app_id        text        NOT NULL,
    trigger_key   text        NOT NULL,
    connection_id text,
    workflow_id   text        NOT NULL,
    params        bytea       NOT NULL, -- sealed JSON
    hook_state    bytea,                -- sealed JSON
    host          bytea,                -- sealed JSON: preset, verify, handshake, dedup
    delivery      text        NOT NULL DEFAULT 'active' CHECK (delivery IN ('active', 'paused', 'failed', 'dead-lettered')),
    lifecycle     text        NOT NULL CHECK (lifecycle IN ('reserved', 'live', 'failed', 'deleted')),
    version       bigint      NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    ended_at      timestamptz,
    -- OpenWOP (docs/openwop.md). max_attempts and backoff are NULL where the
    -- platform's retry constant holds; failures counts failed attempts in a row.
    surface       text        NOT NULL DEFAULT 'w6w' CHECK (surface IN ('w6w', 'openwop')),
    source        text        NOT NULL DEFAULT 'webhook' CHECK (source IN ('webhook', 'poll', 'schedule', 'queue')),
    max_attempts  smallint,
    backoff       text        CHECK (backoff IN ('none', 'fixed', 'exponential')),
    failures      integer     NOT NULL DEFAULT 0,
    openwop       text,       -- JSON: dedupEnabled, verification, inputMapping, fingerprint
    ingest_secret bytea,      -- sealed
    -- What a handshake brought (vendors contract §3, class 7), sealed; set once.
    handshake_secret bytea
);
CREATE INDEX subscriptions_tenant ON subscriptions (tenant, sid) WHERE lifecycle = 'live';
CREATE INDEX subscriptions_reserved ON subscriptions (created_at) WHERE lifecycle = 'reserved';
CREATE INDEX subscriptions_ended ON subscriptions (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX subscriptions_connection ON subscriptions (tenant, connection_id, sid) WHERE lifecycle = 'live' AND connection_id IS NOT NULL;
CREATE INDEX subscriptions_workflow ON subscriptions (tenant, workflow_id, sid) WHERE lifecycle = 'live';

-- Every change of a delivery state (OpenWOP RFC 0083 §B), without content.
CREATE TABLE subscription_changes (
    change_id  text        COLLATE "C" PRIMARY KEY,
    sid        bigint      NOT NULL,
    tenant     text        NOT NULL,
    from_state text        NOT NULL,
    to_state   text        NOT NULL,
    reason     text        CHECK (reason IN ('retry-exhausted', 'operator-paused', 'signature-invalid', 'backpressure', 'source-removed')),
    attempt_id text        COLLATE "C", -- the attempt that caused it
    event_id   text        COLLATE "C",
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX subscription_changes_sid ON subscription_changes (sid, changed_at);

-- When a schedule fires next. due_at is the slot, NULL when it is to be worked
-- out anew; whoever moves it on from a slot has fired that slot, so no slot
-- fires twice.
CREATE TABLE schedules (
    sid      bigint      PRIMARY KEY,
    cron     text        NOT NULL DEFAULT '', -- "": once
    timezone text        NOT NULL DEFAULT 'UTC',
    missed   text        NOT NULL CHECK (missed IN ('skip', 'fire-once')),
    due_at   timestamptz,
    fired_at timestamptz
) WITH (fillfactor = 50);
CREATE INDEX schedules_due ON schedules (due_at);

-- When a poll subscription is checked next. A check holds the row by token and
-- lease, so that replicas make one check an interval and none overlaps.
CREATE TABLE polls (
    sid         bigint      PRIMARY KEY,
    interval_ms bigint      NOT NULL,
    due_at      timestamptz NOT NULL DEFAULT now(),
    token       text,
    lease_until timestamptz,
    failures    integer     NOT NULL DEFAULT 0,
    checked_at  timestamptz,
    error_code  text,
    error       text
) WITH (fillfactor = 50);
CREATE INDEX polls_due ON polls (due_at);

-- The ledger: append-only. A call's first row carries the call; call_id of the
-- other rows names it. initial_status is what ingest decided. Where an event
-- stands since then follows from which other table it lies in (view
-- trigger_event_status), so a status change never writes here.
CREATE TABLE trigger_events (
    event_id       text        COLLATE "C" PRIMARY KEY,
    call_id        text        NOT NULL COLLATE "C",
    sid            bigint      NOT NULL,
    tenant         text        NOT NULL,
    received_at    timestamptz NOT NULL DEFAULT now(),
    initial_status text        NOT NULL CHECK (initial_status IN ('received', 'failed', 'ignored')),
    reason         text,
    error          text,       -- JSON {code, message, phase, stack}
    duplicate_of   text,
    source         text        NOT NULL,
    app_version    text,
    traceparent    text,
    normalized     bytea,      -- sealed JSON; NULL: the call's body is the event
    method         text,
    path           text,       -- NULL: the canonical path of the subscription
    raw_query      text,       -- masked
    headers        text,       -- JSON [[name, value], …], masked
    body           bytea,      -- sealed, the exact bytes
    verification   text,       -- JSON
    dedup_key      text        -- opaque, as OpenWOP's records show it
);
CREATE INDEX trigger_events_history ON trigger_events (sid, event_id);
CREATE INDEX trigger_events_call ON trigger_events (call_id) WHERE call_id <> event_id;

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a stored call is immutable' USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER trigger_events_immutable BEFORE UPDATE ON trigger_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trigger_events_no_truncate BEFORE TRUNCATE ON trigger_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The open events and nothing else: its size follows the backlog. The key is
-- the claim's order (FIFO by receipt within a subscription).
CREATE TABLE trigger_queue (
    sid         bigint      NOT NULL,
    received_at timestamptz NOT NULL,
    event_id    text        NOT NULL COLLATE "C",
    due_at      timestamptz NOT NULL,
    attempts    smallint    NOT NULL DEFAULT 0,
    PRIMARY KEY (sid, received_at, event_id)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
-- Only retries wait, so only they need to be found by time.
CREATE INDEX trigger_queue_waiting ON trigger_queue (due_at) WHERE attempts > 0;

-- What is being started: at most one row a subscription, which is what keeps
-- its events in order across dispatchers. token fences; lease_until is on this
-- server's clock.
CREATE TABLE trigger_claims (
    sid         bigint      PRIMARY KEY,
    token       text        NOT NULL COLLATE "C",
    owner       text        NOT NULL,
    claimed_at  timestamptz NOT NULL,
    lease_until timestamptz NOT NULL,
    event_ids   text[]      NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- How an event ended. Requeue takes a failed row out again. An event that was
-- stored for a subscription that then ended is ignored, and error_code says why.
CREATE TABLE trigger_deliveries (
    event_id    text        COLLATE "C" PRIMARY KEY,
    sid         bigint      NOT NULL,
    tenant      text        NOT NULL,
    status      text        NOT NULL CHECK (status IN ('dispatched', 'failed', 'ignored')),
    attempts    smallint    NOT NULL,
    attempt_id  text,
    run_id      text,
    error_code  text,
    error       text,
    duration_ms integer     NOT NULL DEFAULT 0,
    ended_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX trigger_deliveries_failed ON trigger_deliveries (sid, event_id) WHERE status = 'failed';
CREATE INDEX trigger_deliveries_dead ON trigger_deliveries (tenant, event_id) WHERE status = 'failed';

-- Attempts that did not start a run; the one that did is the delivery's row.
CREATE TABLE trigger_attempts (
    attempt_id  text        COLLATE "C" PRIMARY KEY,
    event_id    text        NOT NULL COLLATE "C",
    sid         bigint      NOT NULL,
    tenant      text        NOT NULL,
    attempt     smallint    NOT NULL,
    outcome     text        NOT NULL CHECK (outcome IN ('retrying', 'dead-lettered', 'lost')),
    error_code  text        NOT NULL,
    error       text        NOT NULL,
    duration_ms integer     NOT NULL DEFAULT 0,
    ended_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX trigger_attempts_event ON trigger_attempts (event_id, attempt_id);
CREATE INDEX trigger_attempts_dead ON trigger_attempts (sid, ended_at, attempt_id) WHERE outcome = 'dead-lettered';

-- Requeues of many dead letters, which a process takes a step at a time. reached
-- is the last event that was put back. What fails after created_at is none of
-- an operation's, so that it ends, and takes an event once.
CREATE TABLE operations (
    operation_id  text        COLLATE "C" PRIMARY KEY,
    tenant        text        NOT NULL,
    sid           bigint,
    workflow_id   text,
    app_id        text,
    error_code    text,
    failed_after  timestamptz,
    failed_before timestamptz,
    state         text        NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled')),
    total         bigint      NOT NULL,
    requeued      bigint      NOT NULL DEFAULT 0,
    reached       text        NOT NULL DEFAULT '' COLLATE "C",
    created_at    timestamptz NOT NULL DEFAULT now(),
    ended_at      timestamptz
);
CREATE INDEX operations_running ON operations (operation_id) WHERE state = 'running';

-- One row a dedup key seen, written in the event's own transaction.
CREATE TABLE dedup_keys (
    sid        bigint      NOT NULL,
    key        bytea       NOT NULL,
    event_id   text        NOT NULL COLLATE "C",
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (sid, key)
);
CREATE INDEX dedup_keys_expiry ON dedup_keys (expires_at);

-- Runs of the embedded engine. run_id follows from the event id, so the primary
-- key is what keeps an event from running twice.
CREATE TABLE runs (
    run_id      text        COLLATE "C" PRIMARY KEY,
    tenant      text        NOT NULL,
    workflow_id text        NOT NULL,
    event_id    text        COLLATE "C",
    sid         bigint,
    attempt_id  text,
    trigger     text        NOT NULL,
    status      text        NOT NULL,
    input       bytea,      -- sealed JSON; NULL: the stored event as it stands
    log         text        NOT NULL, -- JSON array of run events, content-free
    started_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz
);
CREATE INDEX runs_workflow ON runs (tenant, workflow_id, run_id);

-- Answers to requests with an Idempotency-Key, so that a repeat gets the same
-- one. A pending row is held until its lease ends.
CREATE TABLE idempotency_keys (
    tenant      text        NOT NULL,
    operation   text        NOT NULL,
    key         bytea       NOT NULL, -- SHA-256
    digest      bytea       NOT NULL, -- of the request
    state       text        NOT NULL CHECK (state IN ('pending', 'completed', 'retryable-failure', 'terminal-failure')),
    owner       text        NOT NULL,
    lease_until timestamptz NOT NULL,
    status      integer     NOT NULL DEFAULT 0,
    response    bytea,                -- sealed: a registration's holds a secret
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant, operation, key)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

-- Where every event stands.
CREATE VIEW trigger_event_status AS
SELECT
    e.event_id, e.call_id, e.sid, e.tenant, e.received_at, e.error AS ingest_error,
    coalesce(e.reason, CASE WHEN d.status = 'ignored' THEN d.error_code END) AS reason,
    e.duplicate_of, e.source, e.app_version,
    (CASE
        WHEN e.initial_status <> 'received' THEN e.initial_status
        WHEN d.event_id IS NOT NULL THEN d.status
        WHEN c.sid IS NOT NULL THEN 'dispatching'
        ELSE 'received'
    END)::text AS status,
    coalesce(d.attempts, q.attempts, 0)::int AS attempts,
    d.attempt_id, d.run_id, d.error_code, d.error, d.duration_ms, d.ended_at,
    q.due_at, c.owner AS claim_owner, c.lease_until
FROM trigger_events AS e
LEFT JOIN trigger_deliveries AS d ON d.event_id = e.event_id
LEFT JOIN trigger_queue AS q ON q.sid = e.sid AND q.received_at = e.received_at AND q.event_id = e.event_id
LEFT JOIN trigger_claims AS c ON c.sid = e.sid AND q.event_id = ANY (c.event_ids);

COMMIT;

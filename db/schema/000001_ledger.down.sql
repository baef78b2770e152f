BEGIN;
DROP VIEW trigger_event_status;
DROP TABLE operations, idempotency_keys, subscription_changes, schedules, runs, dedup_keys, trigger_attempts, trigger_deliveries, trigger_claims, trigger_queue, trigger_events, polls,
    subscriptions, connections, app_reloads, app_triggers, apps, api_keys, schema_applied;
DROP FUNCTION refuse_change();
COMMIT;

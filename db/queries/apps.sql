-- name: AppUpsert :one
INSERT INTO apps (app_id, version, hash, title, load_error) VALUES (@app_id, @version, @hash, @title, @load_error)
ON CONFLICT (app_id) DO UPDATE SET version = excluded.version, hash = excluded.hash, title = excluded.title,
    load_error = excluded.load_error, loaded_at = now()
RETURNING state;

-- name: AppTriggersDelete :exec
DELETE FROM app_triggers WHERE app_id = @app_id;

-- name: AppTriggerInsert :exec
INSERT INTO app_triggers (app_id, key, type, title, definition) VALUES (@app_id, @key, @type, @title, @definition)
ON CONFLICT (app_id, key) DO UPDATE SET type = excluded.type, title = excluded.title, definition = excluded.definition;

-- name: AppStates :many
SELECT app_id, state FROM apps ORDER BY app_id;

-- name: AppSetState :execrows
UPDATE apps SET state = @state WHERE app_id = @app_id;

-- name: AppReloadRequest :one
UPDATE app_reloads SET requested = requested + 1 RETURNING requested;

-- name: AppReloadsRequested :one
SELECT requested FROM app_reloads;

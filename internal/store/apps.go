package store

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// MirrorApps writes the loaded apps and their triggers into the registry
// tables (RFC §AppDefinition update) and sets each app's State to what the
// operator last said. Apps that are no longer loaded keep their rows.
func (db *DB) MirrorApps(ctx context.Context, apps []*trigger.App) error {
	err := db.inTx(ctx, func(tx pgx.Tx) error {
		for _, app := range apps {
			if err := db.mirrorApp(ctx, tx, app); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return failed("mirror apps", err)
	}
	return nil
}

func (db *DB) mirrorApp(ctx context.Context, tx pgx.Tx, app *trigger.App) error {
	state, err := db.queries.AppUpsert(ctx, tx, &dbsqlc.AppUpsertParams{
		AppID: app.ID, Version: app.Version, Hash: app.Hash, Title: cleanText(app.Title), LoadError: cleanText(app.LoadError),
	})
	if err != nil {
		return err
	}
	app.State = trigger.AppState(state)
	if app.LoadError != "" {
		return nil // what it declared before still stands
	}
	if err := db.queries.AppTriggersDelete(ctx, tx, app.ID); err != nil {
		return err
	}
	for _, def := range app.Triggers {
		definition, err := json.Marshal(map[string]any{
			"title": def.Title, "description": def.Description, "requiresAuth": def.RequiresAuth, "type": def.Type,
			"minIntervalMs": def.MinInterval.Milliseconds(), "params": orNull(def.Params), "output": orNull(def.Output),
			"sample": orNull(def.Sample), "hooks": def.Hooks,
		})
		if err != nil {
			return err
		}
		err = db.queries.AppTriggerInsert(ctx, tx, &dbsqlc.AppTriggerInsertParams{
			AppID: app.ID, Key: def.Key, Type: string(def.Type), Title: cleanText(def.Title), Definition: cleanText(string(definition)),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func orNull(text json.RawMessage) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage("null")
	}
	return text
}

// AppStates gives what operators said of apps.
func (db *DB) AppStates(ctx context.Context) (map[string]trigger.AppState, error) {
	rows, err := db.queries.AppStates(ctx, db.pool)
	if err != nil {
		return nil, failed("read app states", err)
	}
	states := make(map[string]trigger.AppState, len(rows))
	for _, row := range rows {
		states[row.AppID] = trigger.AppState(row.State)
	}
	return states, nil
}

// SetAppState records an operator's word on an app; trigger.ErrUnknownApp when
// it was never loaded.
func (db *DB) SetAppState(ctx context.Context, appID string, state trigger.AppState) error {
	n, err := db.queries.AppSetState(ctx, db.pool, &dbsqlc.AppSetStateParams{AppID: appID, State: string(state)})
	if err != nil {
		return failed("set app state", err)
	}
	if n == 0 {
		return trigger.ErrUnknownApp
	}
	return nil
}

// RequestReload asks every process to read APPS_DIR again.
func (db *DB) RequestReload(ctx context.Context) error {
	if _, err := db.queries.AppReloadRequest(ctx, db.pool); err != nil {
		return failed("request a reload", err)
	}
	return nil
}

// ReloadsRequested counts the reloads that were asked for.
func (db *DB) ReloadsRequested(ctx context.Context) (int64, error) {
	n, err := db.queries.AppReloadsRequested(ctx, db.pool)
	if err != nil {
		return 0, failed("read requested reloads", err)
	}
	return n, nil
}

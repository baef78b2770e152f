package store

import (
	"context"
	"encoding/json"

	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// SaveRuns records runs of the embedded engine, all in one transaction. A run
// that is there already is left as it is: starting an event twice is one run.
// A run's Event is stored only where it is not the stored event as it stands.
func (db *DB) SaveRuns(ctx context.Context, runs []trigger.Run) error {
	p := &dbsqlc.RunInsertBatchParams{}
	for i := range runs {
		r := &runs[i]
		p.RunIds = append(p.RunIds, r.ID)
		p.Tenants = append(p.Tenants, r.Tenant)
		p.WorkflowIds = append(p.WorkflowIds, r.WorkflowID)
		p.EventIds = append(p.EventIds, r.EventID)
		p.Sids = append(p.Sids, r.SID)
		p.AttemptIds = append(p.AttemptIds, r.AttemptID)
		p.Triggers = append(p.Triggers, r.Trigger)
		p.Statuses = append(p.Statuses, r.Status)
		p.Inputs = append(p.Inputs, db.keys.Seal(sealRunInput, r.Event))
		p.Logs = append(p.Logs, string(r.Log))
	}
	if err := db.queries.RunInsertBatch(ctx, db.pool, p); err != nil {
		return failed("save runs", err)
	}
	return nil
}

// Run gives a run with its event and log; trigger.ErrUnknownRun when the tenant
// has none of that id.
func (db *DB) Run(ctx context.Context, tenant, runID string) (*trigger.Run, error) {
	row, err := db.queries.RunGet(ctx, db.pool, &dbsqlc.RunGetParams{RunID: runID, Tenant: tenant})
	if err != nil {
		return nil, notFound("get run", err, trigger.ErrUnknownRun)
	}
	run := &trigger.Run{
		ID: row.RunID, Tenant: row.Tenant, WorkflowID: row.WorkflowID, EventID: orEmpty(row.EventID),
		Subscription: trigger.SubscriptionID(orEmpty(row.SubscriptionID)), AttemptID: orEmpty(row.AttemptID),
		Trigger: row.Trigger, Status: row.Status, StartedAt: row.StartedAt, FinishedAt: row.FinishedAt, Log: json.RawMessage(row.Log),
	}
	if row.Input != nil {
		run.Event, err = db.open(sealRunInput, row.Input)
	} else {
		run.Event, err = db.normalized(row.Normalized, row.Body, row.EventID != nil)
	}
	if err != nil {
		return nil, failed("get run", err)
	}
	return run, nil
}

// RunsOfWorkflow lists a workflow's runs, newest first, without event and log,
// and gives the next page's cursor.
func (db *DB) RunsOfWorkflow(ctx context.Context, tenant, workflowID string, page trigger.Page) ([]trigger.Run, string, error) {
	rows, err := db.queries.RunsOfWorkflow(ctx, db.pool, &dbsqlc.RunsOfWorkflowParams{
		Tenant: tenant, WorkflowID: workflowID, Before: page.Cursor, MaxRows: int32(page.Size() + 1),
	})
	if err != nil {
		return nil, "", failed("list runs", err)
	}
	next := ""
	if len(rows) > page.Size() {
		rows = rows[:page.Size()]
		next = rows[len(rows)-1].RunID
	}
	list := make([]trigger.Run, len(rows))
	for i, row := range rows {
		list[i] = trigger.Run{
			ID: row.RunID, Tenant: row.Tenant, WorkflowID: row.WorkflowID, EventID: orEmpty(row.EventID),
			Subscription: trigger.SubscriptionID(orEmpty(row.SubscriptionID)), AttemptID: orEmpty(row.AttemptID),
			Trigger: row.Trigger, Status: row.Status, StartedAt: row.StartedAt, FinishedAt: row.FinishedAt,
		}
	}
	return list, next, nil
}

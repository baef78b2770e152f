package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/store/internal/dbsqlc"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// operationStep bounds how many dead letters are put back in one transaction.
const operationStep = 200

// RequeueAll makes an operation that requeues the dead letters that fit the
// filter now; StepOperations does the work. trigger.ErrUnknownSubscription when
// the filter names one that the tenant does not have.
func (db *DB) RequeueAll(ctx context.Context, tenant string, filter trigger.RequeueFilter) (*trigger.Operation, error) {
	params := &dbsqlc.OperationCreateParams{
		OperationID: ident.New(ident.Operation), Tenant: tenant, WorkflowID: filter.WorkflowID, AppID: filter.AppID, ErrorCode: filter.ErrorCode,
		FailedAfter: filter.FailedAfter, FailedBefore: filter.FailedBefore,
	}
	if filter.Subscription != "" {
		s, err := db.Subscription(ctx, tenant, filter.Subscription)
		if err != nil {
			return nil, err
		}
		params.Sid = s.SID
	}
	row, err := db.queries.OperationCreate(ctx, db.pool, params)
	if err != nil {
		return nil, failed("create operation", err)
	}
	return operation(row.OperationID, row.State, row.Total, row.Requeued, row.CreatedAt, row.EndedAt), nil
}

// Operation reads an operation of the tenant.
func (db *DB) Operation(ctx context.Context, tenant, id string) (*trigger.Operation, error) {
	row, err := db.queries.OperationGet(ctx, db.pool, &dbsqlc.OperationGetParams{OperationID: id, Tenant: tenant})
	if err != nil {
		return nil, notFound("read operation", err, trigger.ErrUnknownOperation)
	}
	return operation(row.OperationID, row.State, row.Total, row.Requeued, row.CreatedAt, row.EndedAt), nil
}

// CancelOperation stops an operation where it is; what was put back stays so.
func (db *DB) CancelOperation(ctx context.Context, tenant, id string) (*trigger.Operation, error) {
	row, err := db.queries.OperationCancel(ctx, db.pool, &dbsqlc.OperationCancelParams{OperationID: id, Tenant: tenant})
	if err != nil {
		return nil, notFound("cancel operation", err, trigger.ErrUnknownOperation)
	}
	return operation(row.OperationID, row.State, row.Total, row.Requeued, row.CreatedAt, row.EndedAt), nil
}

func operation(id, state string, total, requeued int64, created time.Time, ended *time.Time) *trigger.Operation {
	return &trigger.Operation{ID: id, State: trigger.OperationState(state), Total: total, Requeued: requeued, CreatedAt: created, EndedAt: ended}
}

// StepOperation takes one step of the oldest running operation, and says
// whether there was one. Any number of processes may do it.
func (db *DB) StepOperation(ctx context.Context) (bool, error) {
	row, err := db.queries.OperationStep(ctx, db.pool, operationStep)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, failed("step of an operation", err)
	}
	if row.Moved > 0 {
		db.bell.after()
	}
	if trigger.OperationState(row.State) == trigger.OperationDone {
		db.log.Info("operation.done", zap.String("operation_id", row.OperationID), zap.String("tenant", row.Tenant),
			zap.Int64("requeued", row.Requeued), zap.Int64("total", row.Total))
	}
	return true, nil
}

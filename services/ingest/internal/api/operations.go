package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// requeueFilterJSON is which dead letters to requeue. What is set must fit; to
// requeue all of them takes a word of its own, so that no slip does.
type requeueFilterJSON struct {
	SubscriptionID string     `json:"subscriptionId"`
	WorkflowID     string     `json:"workflowId"`
	AppID          string     `json:"appId"`
	ErrorCode      string     `json:"errorCode"`
	FailedAfter    *time.Time `json:"failedAfter"`
	FailedBefore   *time.Time `json:"failedBefore"`
	All            bool       `json:"all"`
}

type operationJSON struct {
	ID        string                 `json:"id"`
	State     trigger.OperationState `json:"state"`
	Total     int64                  `json:"total"`
	Requeued  int64                  `json:"requeued"`
	CreatedAt string                 `json:"createdAt"`
	EndedAt   *string                `json:"endedAt"`
}

// requeueAll makes an operation that requeues every dead letter that fits, and
// answers before it is done.
func (a *API) requeueAll(c echo.Context, who *apikey.Principal) error {
	filter, err := requeueFilter(c)
	if err != nil {
		return err
	}
	op, err := a.Ledger.RequeueAll(c.Request().Context(), who.Tenant, filter)
	if err != nil {
		return err
	}
	a.Log.Info("operation.created", zap.String("operation_id", op.ID), obs.Tenant(who.Tenant), zap.String("key_id", who.KeyID), zap.Int64("total", op.Total))
	return writeOperation(c, http.StatusAccepted, op)
}

func requeueFilter(c echo.Context) (trigger.RequeueFilter, error) {
	raw, err := readBody(c)
	if err != nil {
		return trigger.RequeueFilter{}, err
	}
	var doc requeueFilterJSON
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields() // a word that is passed over would widen the filter
	if err := decoder.Decode(&doc); err != nil || decoder.More() {
		return trigger.RequeueFilter{}, &trigger.InvalidError{
			Code: "invalid_body", Message: "want a JSON object with some of subscriptionId, workflowId, appId, errorCode, failedAfter and failedBefore, or all",
		}
	}
	for name, text := range map[string]string{
		"subscriptionId": doc.SubscriptionID, "workflowId": doc.WorkflowID, "appId": doc.AppID, "errorCode": doc.ErrorCode,
	} {
		if text != "" && !plain(text) {
			return trigger.RequeueFilter{}, &trigger.InvalidError{Code: "invalid_body", Message: name + " cannot be the name of anything"}
		}
	}
	filter := trigger.RequeueFilter{
		Subscription: trigger.SubscriptionID(doc.SubscriptionID), WorkflowID: doc.WorkflowID, AppID: doc.AppID, ErrorCode: doc.ErrorCode,
		FailedAfter: doc.FailedAfter, FailedBefore: doc.FailedBefore,
	}
	if empty := filter == (trigger.RequeueFilter{}); empty != doc.All {
		return trigger.RequeueFilter{}, &trigger.InvalidError{Code: "invalid_body", Message: `say which dead letters to requeue, or {"all":true} and nothing else`}
	}
	return filter, nil
}

func (a *API) getOperation(c echo.Context, who *apikey.Principal) error {
	id, ok := param(c, "id")
	if !ok {
		return trigger.ErrUnknownOperation
	}
	op, err := a.Ledger.Operation(c.Request().Context(), who.Tenant, id)
	if err != nil {
		return err
	}
	return writeOperation(c, http.StatusOK, op)
}

// cancelOperation stops an operation where it is. One that is over stays as it
// is.
func (a *API) cancelOperation(c echo.Context, who *apikey.Principal) error {
	id, ok := param(c, "id")
	if !ok {
		return trigger.ErrUnknownOperation
	}
	op, err := a.Ledger.CancelOperation(c.Request().Context(), who.Tenant, id)
	if err != nil {
		return err
	}
	a.Log.Info("operation.cancelled", zap.String("operation_id", op.ID), obs.Tenant(who.Tenant), zap.String("key_id", who.KeyID), zap.Int64("requeued", op.Requeued))
	return writeOperation(c, http.StatusOK, op)
}

func writeOperation(c echo.Context, status int, op *trigger.Operation) error {
	return writeJSON(c, status, struct {
		Operation operationJSON `json:"operation"`
	}{operationJSON{ID: op.ID, State: op.State, Total: op.Total, Requeued: op.Requeued, CreatedAt: iso(op.CreatedAt), EndedAt: isoOrNull(op.EndedAt)}})
}

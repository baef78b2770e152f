package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tocsin-dev/tocsin/internal/apikey"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// runJSON is a line of a workflow's runs.
type runJSON struct {
	RunID      string  `json:"runId"`
	Status     string  `json:"status"`
	Trigger    string  `json:"trigger"`
	StartedAt  string  `json:"startedAt"`
	FinishedAt *string `json:"finishedAt"`
	EventID    *string `json:"eventId"`
}

func runOf(r *trigger.Run) runJSON {
	return runJSON{r.ID, r.Status, r.Trigger, iso(r.StartedAt), isoOrNull(r.FinishedAt), orNull(r.EventID)}
}

// getRun shows a run on the embedded engine in the shape of the w6w host API,
// with the event it was started for, byte for byte.
func (a *API) getRun(c echo.Context, who *apikey.Principal) error {
	id, ok := param(c, "id")
	if !ok {
		return trigger.ErrUnknownRun
	}
	r, err := a.Ledger.Run(c.Request().Context(), who.Tenant, id)
	if err != nil {
		return err
	}
	var run document
	line := runOf(r)
	run.value("runId", line.RunID).
		value("workflowId", r.WorkflowID).
		value("status", line.Status).
		value("trigger", line.Trigger).
		value("variables", struct{}{}).
		value("steps", struct{}{}).
		value("startedAt", line.StartedAt).
		value("finishedAt", line.FinishedAt).
		value("eventId", line.EventID).
		value("subscriptionId", orNull(r.Subscription.Reveal())).
		value("causationId", orNull(r.AttemptID)).
		raw("event", r.Event).
		raw("log", r.Log)
	var out document
	return out.raw("run", run.done()).write(c)
}

func (a *API) listRuns(c echo.Context, who *apikey.Principal) error {
	workflow, ok := param(c, "id")
	if !ok {
		return trigger.ErrUnknownWorkflow
	}
	p, err := page(c)
	if err != nil {
		return err
	}
	list, next, err := a.Ledger.RunsOfWorkflow(c.Request().Context(), who.Tenant, workflow, p)
	if err != nil {
		return err
	}
	out := struct {
		Runs       []runJSON `json:"runs"`
		NextCursor string    `json:"nextCursor,omitempty"`
	}{make([]runJSON, len(list)), next}
	for i := range list {
		out.Runs[i] = runOf(&list[i])
	}
	return writeJSON(c, http.StatusOK, out)
}

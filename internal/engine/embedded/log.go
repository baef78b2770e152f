package embedded

import (
	"cmp"
	"encoding/json"
	"strconv"
	"time"

	"github.com/tocsin-dev/tocsin/internal/engine"
)

// runLog is the event log of a run (OpenWOP run-event.schema.json): what
// happened, and none of what was delivered. run.started is caused by the
// delivery attempt, which is an event of the log by the same id.
func runLog(request *engine.StartRequest, runID string, now time.Time) json.RawMessage {
	l := logWriter{runID: runID, time: now.Format("2006-01-02T15:04:05.000Z")}
	l.b = make([]byte, 0, 1<<10)
	l.event(runID+".0", "run.started", request.AttemptID)
	l.text(`"workflowId":`, request.WorkflowID)
	if request.AttemptID == "" {
		l.event(runID+".1", "run.completed", "")
		return append(l.b, "}}]"...)
	}
	l.event(request.AttemptID, "trigger.delivery.attempted", "")
	l.text(`"subscriptionId":`, request.Subscription.Reveal())
	l.text(`,"dedupKey":`, cmp.Or(request.DedupKey, request.EventID))
	l.b = append(l.b, `,"attempt":`...)
	l.b = strconv.AppendInt(l.b, int64(max(request.Attempt, 1)), 10)
	l.text(`,"outcome":`, "delivered")
	l.text(`,"runId":`, runID)
	l.event(runID+".2", "run.completed", "")
	return append(l.b, "}}]"...)
}

// logWriter puts the JSON together as text: a start is written sixteen thousand
// times a second.
type logWriter struct {
	b           []byte
	runID, time string
	sequence    int64
}

// event opens an event and its payload, and closes the one before.
func (l *logWriter) event(id, kind, cause string) {
	if l.sequence == 0 {
		l.text(`[{"eventId":`, id)
	} else {
		l.text(`}},{"eventId":`, id)
	}
	l.text(`,"runId":`, l.runID)
	l.text(`,"type":`, kind)
	l.text(`,"timestamp":`, l.time)
	l.b = append(l.b, `,"sequence":`...)
	l.b = strconv.AppendInt(l.b, l.sequence, 10)
	if cause != "" {
		l.text(`,"causationId":`, cause)
	}
	l.b = append(l.b, `,"payload":{`...)
	l.sequence++
}

// text appends a key and a JSON string.
func (l *logWriter) text(key, value string) {
	l.b = append(l.b, key...)
	if plain(value) {
		l.b = append(l.b, '"')
		l.b = append(l.b, value...)
		l.b = append(l.b, '"')
		return
	}
	quoted, _ := json.Marshal(value) // a string always marshals
	l.b = append(l.b, quoted...)
}

// plain says whether a JSON string holds the value as it is.
func plain(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

package httpengine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/internal/engine"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Codes of attempts that failed without the engine giving one.
const (
	CodeUnreachable   = "engine_unreachable"
	CodeTimeout       = "engine_timeout"
	CodeInvalidAnswer = "invalid_engine_answer"
)

// final lists the codes after which no try can succeed (DESIGN §8).
var final = map[string]bool{
	"plan_error": true, "invalid_variables": true, "unknown_workflow": true, "invalid_workflow": true, "invalid_body": true,
}

// maxRunID is what OpenWOP allows an id to have.
const maxRunID = 128

// answerBody is what a start may answer, good or bad.
type answerBody struct {
	RunID *string   `json:"runId"`
	Error *errorDoc `json:"error"`
}

type errorDoc struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable *bool  `json:"retryable"`
}

// classify reads an engine's answer (DESIGN §8).
func classify(got *answer) engine.StartResult {
	var doc answerBody
	err := json.Unmarshal(got.text, &doc)
	if got.status >= 200 && got.status < 300 {
		if err != nil || doc.RunID == nil || !validRunID(*doc.RunID) {
			return retry(CodeInvalidAnswer, fmt.Sprintf("the engine answered %d without a usable runId", got.status))
		}
		return engine.StartResult{Kind: engine.Started, RunID: *doc.RunID}
	}
	if doc.Error == nil {
		doc.Error = &errorDoc{}
	}
	step := stepError(got, doc.Error)
	if !step.Retryable {
		return engine.StartResult{Kind: engine.NonRetryable, Err: step}
	}
	after := got.header.Get("Retry-After")
	busy := got.status == http.StatusTooManyRequests || got.status == http.StatusServiceUnavailable
	if busy && after != "" {
		return engine.StartResult{Kind: engine.Overloaded, Err: step, Wait: retryAfter(after, time.Now())}
	}
	return engine.StartResult{Kind: engine.Retryable, Err: step}
}

func stepError(got *answer, doc *errorDoc) *trigger.StepError {
	step := &trigger.StepError{Code: doc.Code, Message: doc.Message, Phase: "execute"}
	if !validCode(step.Code) {
		step.Code = fmt.Sprintf("http_%d", got.status)
	}
	if step.Message == "" {
		step.Message = fmt.Sprintf("the engine answered %d: %s", got.status, got.text[:min(len(got.text), 512)])
	}
	step.Message = engine.CleanText(step.Message)
	switch {
	case doc.Retryable != nil:
		step.Retryable = *doc.Retryable
	case final[doc.Code]:
		step.Retryable = false
	default:
		step.Retryable = retryableStatus(got.status)
	}
	return step
}

// retryableStatus is for answers that do not say it themselves. What is neither
// success nor an error of a kind, a redirect say, counts as transient.
func retryableStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status < 400 || status >= 500
}

// noAnswer is for calls that no whole answer came back from. Only what shows
// that no engine is there counts towards the breaker: one that has taken the
// call and is slow may have started the run.
func noAnswer(ctx context.Context, err error, reached bool) engine.StartResult {
	timedOut := errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil
	if timedOut && reached {
		return retry(CodeTimeout, "the engine took the call and did not answer in time")
	}
	result := retry(CodeUnreachable, err.Error())
	result.Kind = engine.Unreachable
	return result
}

func retry(code, message string) engine.StartResult {
	return engine.StartResult{Kind: engine.Retryable, Err: &trigger.StepError{
		Code: code, Message: engine.CleanText(message), Phase: "execute", Retryable: true,
	}}
}

// refused is for requests that cannot be sent at all.
func refused(code string, err error) engine.StartResult {
	return engine.StartResult{Kind: engine.NonRetryable, Err: &trigger.StepError{
		Code: code, Message: engine.CleanText(err.Error()), Phase: "execute",
	}}
}

// validCode keeps an engine's code only if it looks like one.
func validCode(code string) bool {
	for _, r := range code {
		if r != '_' && r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return code != "" && len(code) <= 64
}

// validRunID says whether the id can be stored and shown as it is.
func validRunID(id string) bool {
	return id != "" && len(id) <= maxRunID && utf8.ValidString(id) && id == engine.CleanText(id)
}

package httpengine

import (
	"net/http"
	"testing"

	"github.com/tocsin-dev/tocsin/internal/engine"
)

// Whatever an engine answers, the outcome can be recorded.
func FuzzClassify(f *testing.F) {
	f.Add(200, `{"runId":"run_1"}`, "")
	f.Add(503, `{"error":{"code":"plan_error","message":"\u0000","retryable":true}}`, "5")
	f.Add(429, "\x00\xff", "Tue, 01 Dec 2099 00:00:00 GMT")
	f.Add(200, `{"runId":{}}`, "-1")
	f.Fuzz(func(t *testing.T, status int, text, after string) {
		got := classify(&answer{status: status, header: http.Header{"Retry-After": {after}}, text: []byte(text)})
		switch {
		case got.Kind == engine.Started:
			if got.RunID == "" || got.RunID != engine.CleanText(got.RunID) || got.Err != nil {
				t.Errorf("%+v", got)
			}
		case got.Err == nil || got.Err.Code == "" || got.Err.Message != engine.CleanText(got.Err.Message) || got.Wait < 0:
			t.Errorf("%+v %v", got, got.Err)
		}
	})
}

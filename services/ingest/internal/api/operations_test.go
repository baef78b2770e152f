package api_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

func operationLine(state string) string {
	return `{"id":"op_1","state":"` + state + `","total":130,"requeued":50,"createdAt":"2026-07-03T07:00:00.123Z","endedAt":null}`
}

// A filter that is empty, misspelt or half all must not requeue everything.
func TestARequeueOfManyNeedsAFilterOrTheWordAll(t *testing.T) {
	t.Parallel()

	s := serve(t)
	for _, body := range []string{
		``, `{}`, `[]`, `null`, `{"all":false}`, `{"subscriptionID ":"x"}`, `{"workflow":"wf"}`, `{"all":true,"workflowId":"wf"}`,
		`{"workflowId":"a\nb"}`, `{"failedAfter":"yesterday"}`, `{"all":true}{"all":true}`,
	} {
		if got := s.ask(t, "acme/admin", http.MethodPost, "/trigger-events/requeue", body); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	if len(s.filters) > 0 {
		t.Errorf("requeued %+v", s.filters)
	}
	s.ask(t, "acme/admin", http.MethodPost, "/trigger-events/requeue", `{"workflowId":"wf","appId":"io.x","errorCode":"e","subscriptionId":"sub_1"}`)
	want := []trigger.RequeueFilter{{Subscription: "sub_1", WorkflowID: "wf", AppID: "io.x", ErrorCode: "e"}}
	if diff := cmp.Diff(want, s.filters); diff != "" {
		t.Errorf("filters (-want +got):\n%s", diff)
	}
	if got := s.ask(t, "acme/admin", http.MethodGet, "/operations/op_2", ""); got.status != http.StatusNotFound {
		t.Errorf("an operation nobody knows: %d", got.status)
	}
}

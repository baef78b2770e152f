package examples

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
	"github.com/tocsin-dev/tocsin/internal/registry"
)

// feedHost is a feed and nothing else.
type feedHost struct {
	noHost
	feed string
}

func (h *feedHost) Fetch(_ context.Context, request hook.FetchRequest) (hook.FetchResponse, error) {
	if request.URL != "https://feed.example/feed.json" {
		return hook.FetchResponse{}, errors.New("no such feed")
	}
	if h.feed == "" {
		return hook.FetchResponse{Status: 503}, nil
	}
	return hook.FetchResponse{Status: 200, Headers: [][2]string{{"content-type", "application/json"}}, Body: []byte(h.feed)}, nil
}

func TestFeedAppFiresForWhatIsNew(t *testing.T) {
	t.Parallel()

	host := &feedHost{}
	runtime, err := workerpool.New(workerpool.Options{Host: host, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = runtime.Close() })
	report := registry.Check(t.Context(), "apps/feed", registry.Bundles{}, runtime)
	if !report.OK() {
		t.Fatalf("the app does not load: %+v", report.Problems)
	}
	state := json.RawMessage("null")
	for _, c := range []struct{ name, feed, want string }{
		{"the first check remembers", `{"items":[{"id":"2"},{"id":1}]}`, `{"events":[],"nextState":{"seen":["2","1"]}}`},
		{"nothing is new", `{"items":[{"id":"2"},{"id":1}]}`, `{"events":[],"nextState":{"seen":["2","1"]}}`},
		{"two are, oldest first", `{"items":[{"id":"4"},{"id":"3"},{"id":"2"}]}`, `{"events":[{"id":"3"},{"id":"4"}],"nextState":{"seen":["4","3","2","1"]}}`},
		{"an old one is back", `{"items":[{"id":1}]}`, `{"events":[],"nextState":{"seen":["1","4","3","2"]}}`},
	} {
		host.feed = c.feed
		result, err := runtime.Invoke(t.Context(), feedCheck(report.Ref, state))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, string(result.Output)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		var answer struct{ NextState json.RawMessage }
		if err := json.Unmarshal(result.Output, &answer); err != nil {
			t.Fatal(err)
		}
		state = answer.NextState
	}
	host.feed = ""
	if _, err := runtime.Invoke(t.Context(), feedCheck(report.Ref, state)); hook.CodeOf(err) != hook.CodeThrew {
		t.Errorf("a feed that is away: %v", err)
	}
}

func feedCheck(ref hook.AppRef, state json.RawMessage) hook.Call {
	input := `{"params":{"url":"https://feed.example/feed.json"},"state":` + string(state) + `,"subscriptionId":"sub_1"}`
	return hook.Call{App: ref, Hook: "item/poll", Input: json.RawMessage(input)}
}

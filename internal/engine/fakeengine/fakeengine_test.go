package fakeengine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-dev/tocsin/internal/engine/fakeengine"
)

func call(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

// until waits for the engine's numbers.
func until(t *testing.T, fake *fakeengine.Engine, is func(fakeengine.Stats) bool) {
	t.Helper()
	for {
		changed := fake.Changed()
		if is(fake.Stats()) {
			return
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatalf("not so: %+v", fake.Stats())
		}
	}
}

const start = `{"trigger":"webhook","variables":{},"event":{"n": 1e400},"eventId":"evt_1","subscriptionId":"sub_1","attempt":2,"causationId":"att_1"}`

func TestTheScriptIsPlayedStepByStep(t *testing.T) {
	t.Parallel()

	var log bytes.Buffer
	fake := fakeengine.New(&log)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	if status, text := call(t, http.MethodPut, server.URL+"/_fake/script",
		`{"steps":[{"do":"status","status":503,"times":2},{"do":"drop"},{"do":"ok","latency":"1ms","jitter":"1ms"}],"then":{"do":"norunid"}}`); status != 200 {
		t.Fatalf("script: %d %s", status, text)
	}
	var got []int
	for range 5 {
		status, _ := call(t, http.MethodPost, server.URL+"/workflows/wf%2F1/run", start)
		got = append(got, status)
	}
	if diff := cmp.Diff([]int{503, 503, 0, 202, 200}, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	until(t, fake, func(s fakeengine.Stats) bool { return s.Running == 0 })
	starts := fake.Starts()
	if s := starts[3]; s.WorkflowID != "wf%2F1" || string(s.Event) != `{"n": 1e400}` || s.RunID != "run_1" || s.Attempt != 2 {
		t.Errorf("%+v", s)
	}
	if lines := bytes.Count(log.Bytes(), []byte("\n")); lines != 5 {
		t.Errorf("%d lines in the log", lines)
	}
	_, text := call(t, http.MethodGet, server.URL+"/_fake/stats", "")
	var stats fakeengine.Stats
	if err := json.Unmarshal([]byte(text), &stats); err != nil || stats != (fakeengine.Stats{Starts: 5, Runs: 1}) {
		t.Errorf("stats %s, %v", text, err)
	}
}

func TestOverlappingStartsOfASubscriptionAreSeen(t *testing.T) {
	t.Parallel()

	fake := fakeengine.New(nil)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	fake.Play(fakeengine.Script{Then: fakeengine.Step{Do: fakeengine.DoHang}})
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/workflows/wf/run", strings.NewReader(start))
			if err != nil {
				t.Error(err)
				return
			}
			if answer, err := http.DefaultClient.Do(request); err == nil {
				_ = answer.Body.Close()
				t.Error("a hanging engine answered")
			}
		})
	}
	until(t, fake, func(s fakeengine.Stats) bool { return s.Running == 3 })
	cancel()
	wait.Wait()
	until(t, fake, func(s fakeengine.Stats) bool { return s.Running == 0 })
	if stats := fake.Stats(); stats != (fakeengine.Stats{Starts: 3, Overlaps: 2}) {
		t.Errorf("%+v", stats)
	}
	fake.Play(fakeengine.Script{})
	call(t, http.MethodPost, server.URL+"/workflows/wf/run", start)
	call(t, http.MethodPost, server.URL+"/workflows/wf/run", start)
	if stats := fake.Stats(); stats.Duplicates != 1 || stats.Runs != 1 {
		t.Errorf("%+v", stats)
	}
}

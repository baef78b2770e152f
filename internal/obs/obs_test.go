package obs_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/tocsin-dev/tocsin/internal/obs"
)

type shortID string

func (shortID) String() string { return "sub_short…" }

func logger(t *testing.T, out io.Writer) *zap.Logger {
	t.Helper()
	log, err := obs.NewLogger(out, obs.LogConfig{Level: "info", Format: "json", Service: "ingest", Instance: "here"})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestALineIsOneJSONObjectWithStableKeys(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer
	log := logger(t, &out)
	log.Debug("not.logged")
	log.Info("event.dispatched",
		obs.Event("evt_1"), obs.Subscription(shortID("sub_whole")), obs.Workflow("wf"), obs.Attempt(2), obs.Status("dispatched"), obs.Run("run_1"),
		obs.Duration(1500*time.Microsecond), obs.ErrorCode("plan_error"), obs.Err(errors.New("no\nplan")), obs.Reason(""), obs.Err(nil),
		obs.Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), obs.Trace("junk"), obs.Configured("engine_token", true),
	)
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("not one line of JSON: %v\n%s", err, out.String())
	}
	when, _ := got["time"].(string)
	if _, err := time.Parse("2006-01-02T15:04:05.000Z", when); err != nil {
		t.Errorf("time: %v", err)
	}
	delete(got, "time")
	want := map[string]any{
		"level": "info", "msg": "event.dispatched", "service": "ingest", "instance": "here", "event_id": "evt_1", "subscription": "sub_short…",
		"workflow_id": "wf", "attempt": 2.0, "status": "dispatched", "run_id": "run_1", "duration_ms": 1.5, "error.code": "plan_error",
		"error": "no\nplan", "trace_id": "0af7651916cd43dd8448eb211c80319c", "engine_token_configured": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func TestReadinessNamesTheFailingCheckAndNotItsReason(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		health := obs.NewHealth(logger(t, &logged))
		var broken atomic.Bool
		health.Add("engine", func(context.Context) error { return nil })
		health.Add("database", func(context.Context) error {
			if broken.Load() {
				return errors.New("CANARY")
			}
			return nil
		})
		expect(t, health, http.StatusOK, `{"checks":{"database":"ok","engine":"ok"},"status":"ready"}`)
		broken.Store(true)
		time.Sleep(time.Second) // the bubble's clock
		expect(t, health, http.StatusServiceUnavailable, `{"checks":{"database":"failing","engine":"ok"},"reason":"a check fails","status":"not ready"}`)
		time.Sleep(time.Second) // the bubble's clock
		expect(t, health, http.StatusServiceUnavailable, `{"checks":{"database":"failing","engine":"ok"},"reason":"a check fails","status":"not ready"}`)
		if n := strings.Count(logged.String(), "health.check_failed"); n != 1 {
			t.Errorf("the failure is logged %d times, want once", n)
		}
		broken.Store(false)
		time.Sleep(time.Second) // the bubble's clock
		expect(t, health, http.StatusOK, `{"checks":{"database":"ok","engine":"ok"},"status":"ready"}`)
	})
}

func TestACheckThatHangsIsAFailure(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		health := obs.NewHealth(zap.NewNop())
		health.Add("database", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		expect(t, health, http.StatusServiceUnavailable, `{"checks":{"database":"failing"},"reason":"a check fails","status":"not ready"}`)
	})
}

func TestManyProbesAskTheDatabaseOnce(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		health := obs.NewHealth(zap.NewNop())
		var asked atomic.Int32
		health.Add("database", func(context.Context) error { asked.Add(1); return nil })
		var wait sync.WaitGroup
		for range 50 {
			wait.Go(func() { expect(t, health, http.StatusOK, `{"checks":{"database":"ok"},"status":"ready"}`) })
		}
		wait.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times, want once", n)
		}
	})
}

func expect(t *testing.T, health *obs.Health, status int, body string) {
	t.Helper()
	answer := httptest.NewRecorder()
	health.Ready(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	if answer.Code != status || strings.TrimSpace(answer.Body.String()) != body {
		t.Errorf("%d %s, want %d %s", answer.Code, answer.Body, status, body)
	}
}

func TestShutdownIsNotReadyFirstAndLetsRequestsEnd(t *testing.T) {
	t.Parallel()

	health := obs.NewHealth(zap.NewNop())
	started, release := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	health.Register(mux)
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-release
		_, _ = io.WriteString(w, "done")
	})
	server, err := obs.Listen(t.Context(), "test", "127.0.0.1:0", mux, obs.Limits{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- obs.Serve(ctx, obs.Shutdown{Health: health, Drain: 300 * time.Millisecond, Grace: 10 * time.Second}, server)
	}()
	slow := make(chan string, 1)
	go func() { slow <- get(t, server, "/slow") }()
	<-started
	if got := get(t, server, "/readyz"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("before: %s", got)
	}
	stop()
	// While it drains it still answers: alive, and not ready.
	for got := ""; !strings.HasPrefix(got, "503 "); {
		got = get(t, server, "/readyz")
		if strings.HasPrefix(got, "error") {
			t.Fatalf("stopped accepting before it was not ready: %s", got)
		}
	}
	if got := get(t, server, "/healthz"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("alive while draining: %s", got)
	}
	close(release)
	if got := <-slow; got != "200 done" {
		t.Errorf("the running request got %q", got)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// A call on a connection that was idle when the drain began is answered, and its
// client told to go elsewhere.
func TestAnIdleConnectionIsServedWhileDraining(t *testing.T) {
	t.Parallel()

	health := obs.NewHealth(zap.NewNop())
	mux := http.NewServeMux()
	health.Register(mux)
	server, err := obs.Listen(t.Context(), "test", "127.0.0.1:0", mux, obs.Limits{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- obs.Serve(ctx, obs.Shutdown{Health: health, Drain: 2 * time.Second, Grace: 10 * time.Second}, server)
	}()

	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	ask := func() (status int, last bool) {
		t.Helper()
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		defer func() { _ = response.Body.Close() }()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode, response.Close
	}
	if status, last := ask(); status != http.StatusOK || last {
		t.Fatalf("before: %d, last %t", status, last)
	}
	stop()
	for !strings.HasPrefix(get(t, server, "/readyz"), "503 ") { // the drain has begun
	}
	if status, last := ask(); status != http.StatusOK || !last {
		t.Errorf("while draining: %d, last %t", status, last)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestARequestThatOutlivesTheGraceIsCut(t *testing.T) {
	t.Parallel()

	started := make(chan struct{})
	server, err := obs.Listen(t.Context(), "test", "127.0.0.1:0", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	}), obs.Limits{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- obs.Serve(ctx, obs.Shutdown{Grace: time.Millisecond}, server) }()
	go get(t, server, "/")
	<-started
	stop()
	if err := <-served; err == nil || !strings.Contains(err.Error(), "still running") {
		t.Errorf("Serve: %v", err)
	}
}

func TestAPortInUseIsFoundBeforeServing(t *testing.T) {
	t.Parallel()

	server, err := obs.Listen(t.Context(), "one", "127.0.0.1:0", http.NotFoundHandler(), obs.Limits{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := obs.Listen(t.Context(), "two", server.Addr(), http.NotFoundHandler(), obs.Limits{}, zap.NewNop()); err == nil {
		t.Error("the port was given twice")
	}
}

func TestMetricsAreOnARegistryOfTheirOwn(t *testing.T) {
	t.Parallel()

	answer := httptest.NewRecorder()
	obs.NewRegistry("again") // a second one does not clash
	obs.MetricsHandler(obs.NewRegistry("ingest")).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if !strings.Contains(answer.Body.String(), `tocsin_build_info{go="go`) || !strings.Contains(answer.Body.String(), "go_goroutines") {
		t.Errorf("metrics:\n%s", answer.Body)
	}
}

func get(t *testing.T, server *obs.Server, path string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server.Addr()+path, nil)
	if err != nil {
		return "error " + err.Error()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return "error " + err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	body, _ := io.ReadAll(answer.Body)
	return answer.Status[:4] + string(body)
}

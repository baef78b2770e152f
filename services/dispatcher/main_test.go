package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/internal/engine/fakeengine"
	"github.com/tocsin-dev/tocsin/internal/hook/workerpool"
	"github.com/tocsin-dev/tocsin/internal/ident"
	"github.com/tocsin-dev/tocsin/internal/obs"
	"github.com/tocsin-dev/tocsin/internal/store"
	"github.com/tocsin-dev/tocsin/internal/store/storetest"
	"github.com/tocsin-dev/tocsin/internal/trigger"
	"github.com/tocsin-dev/tocsin/services/dispatcher/internal/config"
)

func TestMain(m *testing.M) {
	workerpool.Main()
	os.Exit(m.Run())
}

// logTap keeps what is logged and hands on where the service listens.
type logTap struct {
	mu   sync.Mutex
	text bytes.Buffer
	addr chan string
}

func (l *logTap) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var line struct{ Msg, Addr string }
	if json.Unmarshal(p, &line) == nil && line.Msg == "http.listening" {
		l.addr <- line.Addr
	}
	return l.text.Write(p)
}

// lines gives the lines with a message.
func (l *logTap) lines(message string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []string
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, `"msg":"`+message+`"`) {
			list = append(list, line)
		}
	}
	return list
}

// bundle is a ledger of the test's own and an engine.
type bundle struct {
	*store.DB
	url    string
	engine *fakeengine.Engine
	server *httptest.Server
}

func setup(t testing.TB) *bundle {
	t.Helper()
	b := &bundle{url: storetest.NewURL(t), engine: fakeengine.New(nil)}
	b.DB = storetest.Open(t, b.url)
	b.server = httptest.NewServer(b.engine)
	t.Cleanup(b.server.Close)
	return b
}

type dispatcher struct {
	log  *logTap
	base string
	stop func() error
}

// dispatcher starts the service on the ledger; pairs are settings.
func (b *bundle) dispatcher(t testing.TB, pairs ...string) *dispatcher {
	t.Helper()
	env := map[string]string{
		"DATABASE_URL": b.url, "TOCSIN_DEV": "1", "APPS_DIR": filepath.FromSlash("../../examples/apps"), "DISPATCHER_ADDR": "127.0.0.1:0",
		"ENGINE_URL": b.server.URL, "ALLOW_PRIVATE_EGRESS": "true", "SHUTDOWN_GRACE": "1s",
	}
	for i := 0; i < len(pairs); i += 2 {
		env[pairs[i]] = pairs[i+1]
	}
	cfg, err := config.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	d := &dispatcher{log: &logTap{addr: make(chan string, 1)}}
	log, err := obs.NewLogger(d.log, obs.LogConfig{Level: "info", Format: "json", Service: service, Instance: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, cfg, ident.New("d_"), log) }()
	d.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case addr := <-d.log.addr:
		d.base = "http://" + addr
	case err := <-ended:
		ended <- err
		t.Fatalf("ended at start: %v\n%s", err, d.log.text.String())
	}
	return d
}

func (d *dispatcher) get(t *testing.T, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

func (b *bundle) subscribe(t testing.TB) *trigger.Subscription {
	t.Helper()
	s := &trigger.Subscription{
		ID: trigger.NewSubscriptionID(), Tenant: "default", AppID: "io.tocsin.example.receiver", TriggerKey: "call", WorkflowID: "wf_hello",
		Params: json.RawMessage(`{}`),
	}
	if err := b.ReserveSubscription(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := b.ActivateSubscription(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

func (b *bundle) call(t testing.TB, s *trigger.Subscription, body string) string {
	t.Helper()
	saved, err := b.SaveCall(t.Context(), &trigger.CallRecord{
		Subscription: s, MaskedHeader: json.RawMessage(`[]`), Events: []trigger.EventRecord{{}},
		Call: &trigger.Call{Source: trigger.SourceWebhook, Method: http.MethodPost, Path: trigger.CallbackPath + s.ID.Reveal(), Body: []byte(body)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return saved.EventIDs[0]
}

func (b *bundle) event(t testing.TB, id string) *trigger.EventDetail {
	t.Helper()
	e, err := b.Event(t.Context(), "default", id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// dispatched waits until the event's run was started.
func (b *bundle) dispatched(t testing.TB, id string, within time.Duration) *trigger.EventDetail {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(within)
	for {
		e := b.event(t, id)
		if e.Status == trigger.StatusDispatched {
			return e
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s is %s after %s (%s %s)", id, e.Status, within, e.LastErrorCode, e.LastError)
		}
	}
}

func TestAnEventBecomesARun(t *testing.T) {
	t.Parallel()

	b := setup(t)
	d := b.dispatcher(t, "ENGINE_URL", "embedded:", "FALLBACK_INTERVAL", "1m")
	id := b.call(t, b.subscribe(t), `{"hello":"tocsin"}`)
	e := b.dispatched(t, id, 10*time.Second)
	run, err := b.Run(t.Context(), "default", e.RunID)
	if err != nil || run.ID != ident.RunOfEvent(id) || string(run.Event) != `{"hello":"tocsin"}` || run.Trigger != "webhook" || run.Status != "succeeded" {
		t.Errorf("%+v, %v", run, err)
	}
	if status, text := d.get(t, "/readyz"); status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, text)
	}
	_, text := d.get(t, "/metrics")
	for _, want := range []string{
		`tocsin_dispatch_attempts_total{outcome="delivered"} 1`, `tocsin_listener_up 1`, `tocsin_wake_latency_seconds_count 1`,
		"tocsin_backlog_due", "tocsin_oldest_due_seconds", "tocsin_dead_letters 0", "tocsin_engine_up 1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if lines := d.log.lines("event.dispatched"); len(lines) != 1 || !strings.Contains(lines[0], `"run_id":"`+e.RunID+`"`) {
		t.Errorf("log %v", lines)
	}
}

// C19: one subscription is served in order by three dispatchers, and never
// twice at once; the others run beside it.
func TestSubscriptionsAreServedInOrderByManyDispatchers(t *testing.T) {
	t.Parallel()

	b := setup(t)
	b.engine.Play(fakeengine.Script{Then: fakeengine.Step{Jitter: fakeengine.Duration(20 * time.Millisecond)}})
	var last []string
	for range 5 {
		s := b.subscribe(t)
		for n := range 30 {
			last = append(last, b.call(t, s, fmt.Sprintf(`{"n":%d}`, n)))
		}
	}
	for range 3 {
		b.dispatcher(t)
	}
	for _, id := range last {
		b.dispatched(t, id, 30*time.Second)
	}
	if stats := b.engine.Stats(); stats != (fakeengine.Stats{Starts: 150, Runs: 150}) {
		t.Errorf("%+v", stats)
	}
	next := map[string]int{}
	for _, start := range b.engine.Starts() {
		if want := fmt.Sprintf(`{"n":%d}`, next[start.Subscription]); string(start.Event) != want {
			t.Errorf("started %s, want %s", start.Event, want)
		}
		next[start.Subscription]++
	}
}

// C24: the engine answers with a huge, dirty error.
func TestADirtyErrorIsARetryLikeAnyOther(t *testing.T) {
	t.Parallel()

	b := setup(t)
	b.engine.Play(fakeengine.Script{Steps: []fakeengine.Step{{Do: fakeengine.DoDirty}}})
	d := b.dispatcher(t)
	id := b.call(t, b.subscribe(t), `{}`)
	e := b.dispatched(t, id, 20*time.Second)
	starts := b.engine.Starts()
	if wait := starts[1].At.Sub(starts[0].Ended); wait < 5*time.Second {
		t.Errorf("waited %s, want 5 s", wait)
	}
	if e.Attempts != 2 || len(d.log.lines("event.retry")) != 1 {
		t.Errorf("%+v", e)
	}
}

// C25 b: the engine hangs; another dispatcher takes over, nothing is charged.
func TestAShutdownGivesTheEventToAnother(t *testing.T) {
	t.Parallel()

	b := setup(t)
	b.engine.Play(fakeengine.Script{Steps: []fakeengine.Step{{Do: fakeengine.DoHang}}})
	first := b.dispatcher(t)
	id := b.call(t, b.subscribe(t), `{}`)
	for changed := b.engine.Changed(); b.engine.Stats().Running == 0; changed = b.engine.Changed() {
		<-changed
	}
	second := b.dispatcher(t)
	began := time.Now()
	if err := first.stop(); err != nil {
		t.Errorf("run: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the shutdown took %s with a grace of 1s", took)
	}
	if e := b.dispatched(t, id, 10*time.Second); e.Attempts != 1 || len(second.log.lines("event.dispatched")) != 1 {
		t.Errorf("%+v", e)
	}
	if lines := first.log.lines("event.given_back"); len(lines) != 1 {
		t.Errorf("log %v", lines)
	}
}

// C15: a dispatcher dies right after the claim.
func TestADeadDispatchersEventRunsAfterItsLease(t *testing.T) {
	t.Parallel()

	b := setup(t)
	id := b.call(t, b.subscribe(t), `{}`)
	events, err := b.ClaimDue(t.Context(), trigger.ClaimRequest{Owner: "dead", Limit: 1, Lease: time.Second})
	if err != nil || len(events) != 1 {
		t.Fatal(events, err)
	}
	d := b.dispatcher(t)
	e := b.dispatched(t, id, 20*time.Second)
	if e.Attempts != 2 || len(d.log.lines("event.lost")) != 1 {
		t.Errorf("%+v", e)
	}
}

// C16: the LISTEN connection is cut; what comes in the gap is found by the
// catch-up and not by the timer.
func TestACutListenerCatchesUp(t *testing.T) {
	t.Parallel()

	b := setup(t)
	b.dispatcher(t, "FALLBACK_INTERVAL", "5m")
	conn := storetest.Conn(t, b.url)
	s := b.subscribe(t)
	b.dispatched(t, b.call(t, s, `{}`), 10*time.Second)
	for range 3 {
		if _, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE '%-bell'`); err != nil {
			t.Fatal(err)
		}
		b.dispatched(t, b.call(t, s, `{}`), 10*time.Second)
		b.dispatched(t, b.call(t, s, `{}`), 10*time.Second)
	}
}

func TestWithoutABellTheTimerFindsEvents(t *testing.T) {
	t.Parallel()

	b := setup(t)
	d := b.dispatcher(t, "LISTEN_DATABASE_URL", "off", "FALLBACK_INTERVAL", "200ms")
	b.dispatched(t, b.call(t, b.subscribe(t), `{}`), 10*time.Second)
	if len(d.log.lines("bell.poll_only")) != 1 {
		t.Error("nothing says that there is no bell")
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()

	var out, errs bytes.Buffer
	none := func(string) string { return "" }
	for arg, want := range map[string]int{"--help": 0, "--version": 0, "serve": 2} {
		if got := start([]string{arg}, none, &out, &errs); got != want {
			t.Errorf("%s: exit %d, want %d", arg, got, want)
		}
	}
	if got := start(nil, none, &out, &errs); got != 2 || !strings.Contains(errs.String(), "DATABASE_URL: is not set") {
		t.Errorf("exit %d: %s", got, errs.String())
	}
	if !strings.Contains(out.String(), "LISTEN_DATABASE_URL") {
		t.Errorf("--help: %s", out.String())
	}
}
